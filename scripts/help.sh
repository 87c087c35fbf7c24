# Sourced by the Bash scripts, with their arguments, before they change the directory.

# A script's first comment.
help=$(sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0")

# For arguments that a script does not know.
refuse_arguments() {
    echo "$help" >&2
    exit 2
}

case "${1:-}" in
-h | --help)
    echo "$help"
    exit
    ;;
esac
