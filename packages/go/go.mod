// Not published yet: whoever publishes the module gives it its address here, and in docs/languages.md.
module onewrite

go 1.19

require github.com/mattn/go-sqlite3 v1.14.39
