// Commits with the module, and is killed; or reads back.
//
//	commit DATABASE write    ends by SIGKILL
//	commit DATABASE read     ends with 0 if each commit is there
//
// scripts/release compiles it as a module of its own.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"syscall"

	"onewrite"
)

const rows = 50

func main() {
	db, err := sql.Open(onewrite.DriverName, os.Args[1])
	must(err)
	status, err := onewrite.Check(context.Background(), db)
	must(err)
	if status.Mode != "onewrite" {
		log.Fatal("the mode is ", status.Mode)
	}
	if os.Args[2] == "write" {
		write(db)
	}
	var found int
	var integrity string
	must(db.QueryRow("SELECT count(*) FROM t WHERE x = 'a row'").Scan(&found))
	must(db.QueryRow("PRAGMA integrity_check").Scan(&integrity))
	if found != rows || integrity != "ok" {
		log.Fatal(found, " rows, integrity ", integrity)
	}
	must(db.Close())
}

func write(db *sql.DB) {
	_, err := db.Exec("CREATE TABLE t(x)")
	must(err)
	for row := 0; row < rows; row++ {
		_, err = db.Exec("INSERT INTO t VALUES('a row')")
		must(err)
	}
	must(syscall.Kill(os.Getpid(), syscall.SIGKILL))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
