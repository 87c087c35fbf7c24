package onewrite

// Helpers of the tests. They need a library in ONEWRITE_EXTENSION_LIBRARY.

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const childVariable = "ONEWRITE_TEST_CHILD"

// children are the programs that a test runs as processes of their own, by name.
var children = map[string]func(arguments []string) error{}

func TestMain(m *testing.M) {
	name := os.Getenv(childVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := children[name](os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// child is a process that is not started yet. Its environment has nothing that Load or the user has set,
// but the variables given as NAME=VALUE.
func child(t *testing.T, name string, variables []string, arguments ...string) *exec.Cmd {
	t.Helper()
	if children[name] == nil {
		t.Fatalf("there is no program %s", name)
	}
	command := exec.Command(os.Args[0], arguments...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "ONEWRITE_") || strings.HasPrefix(variable, libraryVariable) {
			command.Env = append(command.Env, variable)
		}
	}
	command.Env = append(append(command.Env, childVariable+"="+name), variables...)
	return command
}

// printed is the output of a process, which must succeed within five minutes.
func printed(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	stop := time.AfterFunc(5*time.Minute, func() {
		if command.Process != nil {
			command.Process.Kill()
		}
	})
	defer stop.Stop()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return strings.TrimSpace(string(output))
}

// start starts a process, and returns the lines that it prints.
func start(t *testing.T, command *exec.Cmd) *bufio.Reader {
	t.Helper()
	output, err := command.StdoutPipe()
	must(t, err)
	command.Stderr = os.Stderr
	must(t, command.Start())
	t.Cleanup(func() {
		command.Process.Kill()
		io.Copy(io.Discard, output)
		command.Wait()
	})
	return bufio.NewReader(output)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fails expects an error that has these words, in this order.
func fails(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, where one should say %q", words)
	}
	rest := err.Error()
	for _, word := range words {
		at := strings.Index(rest, word)
		if at < 0 {
			t.Fatalf("the error does not say %q: %v", word, err)
		}
		rest = rest[at+len(word):]
	}
}

func equal(t *testing.T, expected, found any) {
	t.Helper()
	if expected != found {
		t.Fatalf("expected %v, found %v", expected, found)
	}
}

// path is that of a database in a directory of its own.
func path(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "app.db")
}

func openWith(t *testing.T, driverName, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driverName, dsn)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// open opens a database with the driver, and connects.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db := openWith(t, DriverName, dsn)
	must(t, db.Ping())
	return db
}

// openAs is open with a driver of other defaults.
func openAs(t *testing.T, driver *Driver, dsn string) *sql.DB {
	t.Helper()
	opener, err := driver.OpenConnector(dsn)
	must(t, err)
	db := sql.OpenDB(opener)
	t.Cleanup(func() { db.Close() })
	must(t, db.Ping())
	return db
}

// refusal is the error of opening and connecting.
func refusal(dsn string) error {
	db, err := sql.Open(DriverName, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Ping()
}

// stock opens a database with SQLite's own VFS, on one connection.
func stock(t *testing.T, name string) *sql.DB {
	t.Helper()
	db := openWith(t, "sqlite3", name+"?_busy_timeout=0")
	db.SetMaxOpenConns(1)
	return db
}

func run(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func one(t *testing.T, db *sql.DB, statement string) string {
	t.Helper()
	var value string
	if err := db.QueryRow(statement).Scan(&value); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return value
}

func commitARow(t *testing.T, db *sql.DB) {
	t.Helper()
	run(t, db, "CREATE TABLE IF NOT EXISTS t(x)", "INSERT INTO t VALUES(1)")
}

// checkAs is CheckConn on one connection of the pool.
func checkAs(db *sql.DB, mode, synchronous string) (Status, error) {
	conn, err := db.Conn(context.Background())
	if err != nil {
		return Status{}, err
	}
	defer conn.Close()
	return CheckConn(context.Background(), conn, mode, synchronous)
}

func checked(db *sql.DB) error {
	_, err := Check(context.Background(), db)
	return err
}
