package onewrite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sqlite3 "github.com/mattn/go-sqlite3"
)

func TestAnotherVFS(t *testing.T) {
	fails(t, checked(stock(t, path(t))), "does not use onewrite", "another VFS", DriverName)
	fails(t, checked(openWith(t, "sqlite3", ":memory:")), "does not use onewrite")
}

// On a stock VFS the pragma is no error, and an answer of SQLite is not taken for ours.
func TestThePragmaOnAStockVFS(t *testing.T) {
	db := stock(t, path(t))
	equal(t, "delete", one(t, db, "PRAGMA journal_mode=onewrite"))
	fails(t, checked(db), "does not use onewrite")
}

func TestAnotherMode(t *testing.T) {
	db := openAs(t, &Driver{Mode: "waldio"}, path(t))
	_, err := checkAs(db, "onewrite", "FULL")
	fails(t, err, "is in waldio mode, not in onewrite")
	db = open(t, path(t))
	db.SetMaxOpenConns(1)
	equal(t, "delete", one(t, db, "PRAGMA journal_mode=delete"))
	fails(t, checked(db), "is in delete mode, not in one of onewrite")
}

func TestALowerLevel(t *testing.T) {
	db := openAs(t, &Driver{Synchronous: "NORMAL"}, path(t))
	fails(t, checked(db), "synchronous is NORMAL, not FULL")
	_, err := checkAs(db, "onewrite", "normal")
	must(t, err)
	_, err = checkAs(db, "onewrite", "most")
	fails(t, err, `unknown synchronous "most"`)
	_, err = checkAs(db, "wal", "FULL")
	fails(t, err, `unknown mode "wal"`)
}

// durableCalls is how many calls made five commits durable. The first one is not counted: its level is new.
func durableCalls(t *testing.T, conn *sql.Conn) uint64 {
	t.Helper()
	var before, after uint64
	for n := 0; n <= 5; n++ {
		_, err := conn.ExecContext(context.Background(), "INSERT INTO t VALUES(1)")
		must(t, err)
		status, err := CheckConn(context.Background(), conn, "", "OFF")
		must(t, err)
		var counts struct {
			WriteThrough uint64 `json:"write_through"`
		}
		must(t, json.Unmarshal(status.JSON, &counts))
		after = status.Flushes + counts.WriteThrough
		if n == 0 {
			before = after
		}
	}
	return after - before
}

// lowered is a new connection of the pool, which a program then puts at NORMAL.
func lowered(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(context.Background())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	for _, statement := range []string{"CREATE TABLE IF NOT EXISTS t(x)", "PRAGMA synchronous=NORMAL"} {
		_, err = conn.ExecContext(context.Background(), statement)
		must(t, err)
	}
	return conn
}

func TestAProgramThatSaysNormalCommitsAtFullAboveAFloor(t *testing.T) {
	for _, mode := range Modes {
		for _, level := range []string{"full", "extra"} {
			db := openAs(t, &Driver{Mode: mode}, path(t)+"?onewrite_synchronous="+level)
			// Each connection of the pool has it.
			for n := 0; n < 2; n++ {
				conn := lowered(t, db)
				status, err := CheckConn(context.Background(), conn, mode, level)
				must(t, err)
				equal(t, level, status.Synchronous)
				equal(t, true, durableCalls(t, conn) >= 5)
			}
		}
	}
}

func TestAPragmaSetsTheFloorOfAnOpenConnection(t *testing.T) {
	conn := lowered(t, open(t, path(t)))
	equal(t, 0, int(durableCalls(t, conn)))
	_, err := conn.ExecContext(context.Background(), "PRAGMA onewrite_synchronous=full")
	must(t, err)
	_, err = CheckConn(context.Background(), conn, "", "FULL")
	must(t, err)
	equal(t, true, durableCalls(t, conn) >= 5)
}

func init() {
	// Prints the level of a connection that was opened and put at NORMAL.
	children["lower"] = func(arguments []string) error {
		db, err := sql.Open(DriverName, arguments[0])
		if err != nil {
			return err
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		if _, err = db.Exec("PRAGMA synchronous=NORMAL"); err != nil {
			return err
		}
		status, err := checkAs(db, "", "OFF")
		fmt.Println(status.Synchronous)
		return err
	}
}

func TestTheEnvironmentSetsTheFloor(t *testing.T) {
	equal(t, "full", printed(t, child(t, "lower", []string{"ONEWRITE_SYNCHRONOUS=full"}, path(t))))
	equal(t, "normal", printed(t, child(t, "lower", nil, path(t))))
}

func TestSettingsThatLoseCommits(t *testing.T) {
	fails(t, refusal("file:"+path(t)+"?onewrite_sync=normal"), "onewrite_sync=normal", "power cut")
	db := openAs(t, &Driver{Mode: "waldio"}, path(t))
	db.SetMaxOpenConns(1)
	one(t, db, "PRAGMA onewrite_group_synch='4,2'")
	_, err := checkAs(db, "waldio", "FULL")
	fails(t, err, "onewrite_group_synch=4,2", "power cut")
}

func TestAProgramThatAsksForWALKeepsTheMode(t *testing.T) {
	for _, mode := range Modes {
		db := openAs(t, &Driver{Mode: mode}, path(t))
		db.SetMaxOpenConns(1)
		equal(t, "wal", one(t, db, "PRAGMA journal_mode=WAL"))
		commitARow(t, db)
		_, err := checkAs(db, mode, "FULL")
		must(t, err)
	}
}

// A framework asks for WAL in a hook, in the name, or by a statement.
func TestADatabaseKeepsTheModeThatItRemembers(t *testing.T) {
	asks := func(conn *sqlite3.SQLiteConn) error {
		_, err := conn.Exec("PRAGMA journal_mode=WAL", nil)
		return err
	}
	for _, mode := range Modes {
		name := path(t)
		must(t, openAs(t, &Driver{Mode: mode}, name).Close())
		for _, opens := range []func() *sql.DB{
			func() *sql.DB { return open(t, name) },
			func() *sql.DB { return open(t, name+"?_journal_mode=WAL") },
			func() *sql.DB { return openAs(t, &Driver{SQLite: sqlite3.SQLiteDriver{ConnectHook: asks}}, name) },
		} {
			db := opens()
			db.SetMaxOpenConns(1)
			for _, word := range []string{"", mode} {
				status, err := checkAs(db, word, "FULL")
				must(t, err)
				equal(t, mode, status.Mode)
				equal(t, "wal", one(t, db, "PRAGMA journal_mode=WAL"))
				commitARow(t, db)
			}
			must(t, db.Close())
		}
		db := openAs(t, &Driver{Mode: "onewrite"}, name)
		_, err := checkAs(db, "onewrite", "FULL")
		must(t, err)
	}
}

func TestANameForOtherCode(t *testing.T) {
	_, err := Load()
	must(t, err)
	name := path(t)
	dsn, err := DSN(name + "?_fk=1")
	must(t, err)
	db := openWith(t, "sqlite3", dsn)
	commitARow(t, db)
	_, err = checkAs(db, "onewrite", "FULL")
	must(t, err)
	// The driver's own level is the lower one.
	low := openWith(t, "sqlite3", strings.ReplaceAll(dsn, "&_synchronous=FULL", ""))
	fails(t, checked(low), "synchronous is NORMAL")
	_, err = DSN(":memory:")
	fails(t, err, "in memory")
}

func TestTheReasonOfAModeThatIsKeptOut(t *testing.T) {
	name := path(t)
	db := open(t, name)
	commitARow(t, db)
	must(t, db.Close())
	one(t, stock(t, name), "SELECT count(*) FROM t")
	kept := openWith(t, "sqlite3", "file:"+name+"?vfs=onewrite&_busy_timeout=0")
	one(t, kept, "SELECT count(*) FROM t")
	fails(t, checked(kept), "is not in onewrite mode", "stock SQLite")
	fails(t, refusal(name+"?_busy_timeout=0"), name, "cannot change into onewrite mode", "stock SQLite")
}

func TestACheckEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Check(ctx, open(t, path(t)))
	fails(t, err, "canceled")
}
