// Not published yet. The path stands here, in purego/, in docs/languages.md and in README.md.
module onewrite

go 1.19

require github.com/mattn/go-sqlite3 v1.14.39
