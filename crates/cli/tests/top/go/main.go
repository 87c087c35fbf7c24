// A program for the tests of `onewrite top` and `onewrite scan`, with a statically linked SQLite.
//
//	top DATABASE MODE COUNT
//
// Like its siblings in programs.rs it opens, waits for a line, commits, and waits for another line.
package main

import (
	"bufio"
	"database/sql"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	_ "github.com/mattn/go-sqlite3"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	path, mode := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	db, err := sql.Open("sqlite3", path)
	must(err)
	// Pragmas hold for one connection. Its calls may come from any thread.
	db.SetMaxOpenConns(1)
	for _, statement := range []string{
		"PRAGMA journal_mode=" + mode, "PRAGMA synchronous=FULL", "CREATE TABLE t(x)",
	} {
		_, err = db.Exec(statement)
		must(err)
	}
	lines := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	_, err = lines.ReadString('\n')
	must(err)
	for i := 0; i < count; i++ {
		_, err = db.Exec("INSERT INTO t VALUES (?)", strings.Repeat("x", 100))
		must(err)
	}
	fmt.Println("done")
	_, _ = lines.ReadString('\n')
}
