package onewrite

import (
	"context"
	"database/sql"
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
