package onewrite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	sqlite3 "github.com/mattn/go-sqlite3"
)

func TestOneLineOpensInTheModeAtFull(t *testing.T) {
	db := open(t, path(t))
	commitARow(t, db)
	status, err := Check(context.Background(), db)
	must(t, err)
	equal(t, "onewrite", status.Mode)
	equal(t, Version, status.Version)
	equal(t, true, status.Guarded)
	equal(t, true, status.Writes > 0)
	equal(t, "full", status.Synchronous)
	equal(t, true, strings.Contains(status.String(), `"sqlite"`))
	equal(t, "2", one(t, db, "PRAGMA synchronous"))
	conn, err := db.Conn(context.Background())
	must(t, err)
	defer conn.Close()
	must(t, conn.Raw(func(made any) error {
		equal(t, true, made.(*sqlite3.SQLiteConn).AutoCommit())
		return nil
	}))
}

func TestEveryModeAndLevel(t *testing.T) {
	for _, mode := range Modes {
		for _, level := range []string{"OFF", "normal", "FULL", "EXTRA"} {
			db := openAs(t, &Driver{Mode: strings.ToUpper(mode), Synchronous: level}, path(t))
			commitARow(t, db)
			status, err := checkAs(db, mode, level)
			must(t, err)
			equal(t, mode, status.Mode)
		}
	}
}

func TestAStockDatabaseIsTakenOverAndIsStockAgainAfterTheLastClose(t *testing.T) {
	name := path(t)
	other := stock(t, name)
	run(t, other, "CREATE TABLE t(x)")
	must(t, other.Close())
	db := open(t, name)
	commitARow(t, db)
	must(t, db.Close())
	other = stock(t, name)
	equal(t, "1", one(t, other, "SELECT count(*) FROM t"))
	must(t, other.Close())
	equal(t, "1", one(t, open(t, name), "SELECT count(*) FROM t"))
}

func TestNamesOfAllKinds(t *testing.T) {
	directory := t.TempDir()
	must(t, os.Mkdir(filepath.Join(directory, "a b"), 0o700))
	for _, name := range []string{"a b/c#d%20e&f=g+h.db", "über.db", "file:x.db"} {
		full := filepath.Join(directory, name)
		for _, form := range []string{full, "/" + full, full + "?_busy_timeout=100"} {
			commitARow(t, open(t, form))
			_, err := os.Stat(full)
			must(t, err)
		}
	}
	before, err := os.Getwd()
	must(t, err)
	must(t, os.Chdir(directory))
	defer os.Chdir(before)
	commitARow(t, open(t, "relative.db"))
	_, err = os.Stat(filepath.Join(directory, "relative.db"))
	must(t, err)
}

func TestAURIKeepsItsParameters(t *testing.T) {
	name := path(t)
	db := open(t, "file:"+name+"?onewrite_compression=zstd&_foreign_keys=1#fragment")
	commitARow(t, db)
	status, err := Check(context.Background(), db)
	must(t, err)
	equal(t, true, strings.Contains(string(status.JSON), `"compression":"zstd"`))
	equal(t, "1", one(t, db, "PRAGMA foreign_keys"))
	reader := open(t, "file:"+name+"?mode=ro&vfs=onewrite")
	equal(t, "1", one(t, reader, "SELECT count(*) FROM t"))
	_, err = reader.Exec("INSERT INTO t VALUES(2)")
	fails(t, err, "readonly")
	fails(t, refusal("file:"+name+"?onewrite_synk=full"), name, "onewrite_synk")
}

func TestParametersThatOtherProgramsWrite(t *testing.T) {
	for _, parameters := range []string{"_journal_mode=WAL", "_journal=wal&_sync=2", "_journal_mode=WAL&_synchronous=FULL"} {
		db := open(t, path(t)+"?"+parameters)
		commitARow(t, db)
		must(t, checked(db))
	}
	db := open(t, path(t)+"?_journal_mode=waldio&_sync=extra")
	_, err := checkAs(db, "waldio", "EXTRA")
	must(t, err)
}

func TestWrongWordsAreLoud(t *testing.T) {
	name := path(t)
	for parameters, words := range map[string]string{
		"_journal_mode=wladio": `unknown _journal_mode "wladio": it is one of onewrite, waldio, swal, direct`,
		"_journal_mode=DELETE": `unknown _journal_mode "DELETE"`,
		"_synchronous=FUL":     `unknown _synchronous "FUL": it is one of OFF, NORMAL, FULL, EXTRA`,
		"_synchronous=NORMAL":  `_synchronous=NORMAL is less durable than FULL, the level of this driver: leave it out`,
		"_sync=0":              `_sync=0 is less durable than FULL`,
		"vfs=unix":             "vfs=unix",
		"_busy_timeout=soon":   "_busy_timeout",
		"_foreign_keys=maybe":  "maybe",
	} {
		fails(t, refusal(name+"?"+parameters), name, words)
	}
	_, err := (&Driver{Mode: "wal"}).OpenConnector(name)
	fails(t, err, `unknown mode "wal"`)
	_, err = (&Driver{Synchronous: "most"}).OpenConnector(name)
	fails(t, err, `unknown synchronous "most"`)
	entries, err := os.ReadDir(filepath.Dir(name))
	must(t, err)
	equal(t, 0, len(entries))
}

func TestANameThatIsCloseToAParameterIsRefused(t *testing.T) {
	name := path(t)
	for parameter, meant := range map[string]string{
		"_jurnal_mode": "_journal_mode", "_mode": "_journal_mode", "_Journal_Mode": "_journal_mode", "_jornal": "_journal",
		"journalmode": "_journal_mode", "synchronous": "_synchronous", "_synchronus": "_synchronous",
		"_busytimeout": "_busy_timeout", "busy_timeout": "_busy_timeout", "_sinc": "_sync",
	} {
		fails(t, refusal(name+"?"+parameter+"=waldio"), name, `unknown parameter "`+parameter+`": it is `+meant)
	}
	fails(t, refusal(name+"?_pragma=journal_mode(waldio)"), name, `unknown parameter "_pragma"`)
	_, err := os.Stat(name)
	equal(t, true, errors.Is(err, os.ErrNotExist))
	for _, known := range append(parameterNames, "_of_a_later_driver", "cache", "psow", "nolock", "immutable", "onewrite_sync") {
		must(t, checkName(known))
	}
}

// The list has each name that the driver asks for.
func TestTheDriversParametersAreKnown(t *testing.T) {
	place, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/mattn/go-sqlite3").Output()
	must(t, err)
	code, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(place)), "sqlite3.go"))
	must(t, err)
	found := regexp.MustCompile(`params(?:\.Get\(|\[)"(_\w+)"`).FindAllSubmatch(code, -1)
	equal(t, true, len(found) > 20)
	for _, each := range found {
		if !strings.Contains(" "+strings.Join(parameterNames, " ")+" ", " "+string(each[1])+" ") {
			t.Errorf("%s is missing", each[1])
		}
	}
}

// The driver adds a system error to its text, which may be one of another call.
func TestAReasonOfOursStandsAlone(t *testing.T) {
	name := path(t)
	commitARow(t, open(t, name))
	alone := filepath.Join(filepath.Dir(name), "copy.db")
	copyFile(t, name, alone, 0o600)
	for dsn, end := range map[string]string{
		alone:                                 `copies what the database holds without it`,
		"file:" + name + "?onewrite_sync=ful": `use auto, persistent, full or normal`,
		filepath.Dir(name):                    `is a directory: name a file in it`,
	} {
		err := refusal(dsn)
		fails(t, err, end)
		equal(t, true, strings.HasSuffix(err.Error(), end))
		equal(t, false, strings.Contains(err.Error(), "automatic extension"))
		var cause sqlite3.Error
		equal(t, true, errors.As(err, &cause))
	}
}

func TestAPlaceThatNoDatabaseCanHave(t *testing.T) {
	directory := t.TempDir()
	missing := filepath.Join(directory, "no such")
	for _, name := range []string{missing + "/app.db", "file:" + strings.ReplaceAll(missing, " ", "%20") + "/app.db"} {
		fails(t, refusal(name), name, ": there is no directory "+missing+": make it first")
	}
	fails(t, refusal(directory), directory, ": "+directory+" is a directory: name a file in it")
}

func TestMemoryHasNoJournal(t *testing.T) {
	for _, name := range []string{":memory:", "", "file::memory:?cache=shared", "file:x?mode=memory&cache=shared"} {
		fails(t, refusal(name), "in memory", "driver sqlite3")
	}
}

func TestWhatAHookSetsIsSetRightAgain(t *testing.T) {
	hook := func(conn *sqlite3.SQLiteConn) error {
		_, err := conn.Exec("PRAGMA journal_mode=delete; PRAGMA synchronous=OFF; PRAGMA cache_size=-77", nil)
		return err
	}
	db := openAs(t, &Driver{SQLite: sqlite3.SQLiteDriver{ConnectHook: hook}}, path(t))
	must(t, checked(db))
	equal(t, "-77", one(t, db, "PRAGMA cache_size"))
}

func TestAStockConnectionInTheWayIsNamed(t *testing.T) {
	name := path(t)
	other := stock(t, name)
	run(t, other, "CREATE TABLE t(x)", "BEGIN IMMEDIATE")
	fails(t, refusal(name+"?_busy_timeout=100"), name, "cannot change into onewrite mode", "another connection")
	run(t, other, "ROLLBACK", "PRAGMA journal_mode=WAL")
	one(t, other, "SELECT count(*) FROM t")
	fails(t, refusal(name+"?_busy_timeout=100"), name, "cannot change into onewrite mode", "another connection")
	run(t, other, "INSERT INTO t VALUES(1)") // it has lost nothing
}

func TestAStockConnectionThatClosesIsWaitedFor(t *testing.T) {
	name := path(t)
	other := stock(t, name)
	run(t, other, "CREATE TABLE t(x)", "PRAGMA journal_mode=WAL", "INSERT INTO t VALUES(1)")
	time.AfterFunc(300*time.Millisecond, func() { other.Close() })
	db := open(t, name+"?_busy_timeout=30000")
	equal(t, "1", one(t, db, "SELECT count(*) FROM t"))
	must(t, checked(db))
}

func TestAContextEndsTheWait(t *testing.T) {
	name := path(t)
	other := stock(t, name)
	run(t, other, "CREATE TABLE t(x)", "PRAGMA journal_mode=WAL", "INSERT INTO t VALUES(1)")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := openWith(t, DriverName, name+"?_busy_timeout=20000").PingContext(ctx)
	fails(t, err, "deadline", "cannot change into onewrite mode")
	equal(t, true, errors.Is(err, context.DeadlineExceeded))
}

// Each connection of the pool enters the mode, also the first ones, which all come at once.
func TestGoroutinesThatAllCommit(t *testing.T) {
	const writers, commits = 12, 20
	db := openWith(t, DriverName, path(t)+"?_txlock=immediate&_busy_timeout=60000")
	db.SetMaxIdleConns(writers)
	var all sync.WaitGroup
	errs := make(chan error, writers)
	for writer := 0; writer < writers; writer++ {
		all.Add(1)
		go func(writer int) {
			defer all.Done()
			errs <- commit(db, writer, commits)
		}(writer)
	}
	all.Wait()
	for writer := 0; writer < writers; writer++ {
		must(t, <-errs)
	}
	equal(t, "240", one(t, db, "SELECT count(*) FROM t"))
	equal(t, "ok", one(t, db, "PRAGMA integrity_check"))
	must(t, checked(db))
}

func commit(db *sql.DB, writer, commits int) error {
	conn, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close()
	for n := 0; n < commits; n++ {
		tx, err := conn.BeginTx(context.Background(), nil)
		if err != nil {
			return err
		}
		for _, statement := range []string{"CREATE TABLE IF NOT EXISTS t(x)", "INSERT INTO t VALUES(1)"} {
			if _, err = tx.Exec(statement); err != nil {
				tx.Rollback()
				return err
			}
		}
		if err = tx.Commit(); err != nil {
			return err
		}
	}
	_, err = CheckConn(context.Background(), conn, "onewrite", "FULL")
	return err
}
