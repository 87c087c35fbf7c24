// A worker of `onewrite-lab soak` on the SQLite of github.com/mattn/go-sqlite3.
//
//	soak --probe     prints the version of SQLite
//	soak JOB         JOB is the JSON document that soak/job.rs describes
//
// worker.rs says what a worker does.
package main

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	sqlite3 "github.com/mattn/go-sqlite3"
)

const clockMonotonic = 1

type job struct {
	Database    string   `json:"database"`
	Mode        string   `json:"mode"`
	Library     string   `json:"library"`
	History     string   `json:"history"`
	Notes       string   `json:"notes"`
	Process     int64    `json:"process"`
	Seed        int64    `json:"seed"`
	Rate        float64  `json:"rate"`
	BusyMs      int64    `json:"busy_ms"`
	Accounts    int64    `json:"accounts"`
	Total       int64    `json:"total"`
	Keys        int64    `json:"keys"`
	EpochS      int64    `json:"epoch_s"`
	LongReaders float64  `json:"long_readers"`
	Upkeep      []string `json:"upkeep"`
}

type operation struct {
	isAppend   bool
	key, value int64
	list       *string
}

type worker struct {
	job
	random         *rand.Rand
	history, notes *os.File
	db             *sqlite3.SQLiteConn
	seq            int64
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// The clock of all histories, which package time does not show.
func now() int64 {
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		log.Fatal(errno)
	}
	return t.Nano()
}

func open(name string) (*sqlite3.SQLiteConn, error) {
	conn, err := (&sqlite3.SQLiteDriver{}).Open(name)
	if err != nil {
		return nil, err
	}
	return conn.(*sqlite3.SQLiteConn), nil
}

func values(arguments []interface{}) []driver.Value {
	result := make([]driver.Value, len(arguments))
	for i, argument := range arguments {
		result[i] = argument
	}
	return result
}

func run(db *sqlite3.SQLiteConn, sql string, arguments ...interface{}) error {
	_, err := db.Exec(sql, values(arguments))
	return err
}

// The first value of the first row; nil if there is none.
func one(db *sqlite3.SQLiteConn, sql string, arguments ...interface{}) (interface{}, error) {
	rows, err := db.Query(sql, values(arguments))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	row := make([]driver.Value, len(rows.Columns()))
	switch err = rows.Next(row); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if bytes, is := row[0].([]byte); is {
		return string(bytes), nil
	}
	return row[0], nil
}

func edn(operations []operation) string {
	words := make([]string, len(operations))
	for i, o := range operations {
		switch {
		case o.isAppend:
			words[i] = fmt.Sprintf("[:append %d %d]", o.key, o.value)
		case o.list == nil:
			words[i] = fmt.Sprintf("[:r %d nil]", o.key)
		default:
			words[i] = fmt.Sprintf("[:r %d [%s]]", o.key, *o.list)
		}
	}
	return "[" + strings.Join(words, " ") + "]"
}

func (w *worker) record(kind string, operations []operation) {
	_, err := fmt.Fprintf(w.history, "{:type :%s, :process %d, :f :txn, :value %s, :time %d, :seq %d}\n",
		kind, w.Process, edn(operations), now(), w.seq)
	must(err)
}

func (w *worker) note(kind string, what error) {
	code := 0
	var failure sqlite3.Error
	if errors.As(what, &failure) {
		code = int(failure.ExtendedCode)
		if code == 0 {
			code = int(failure.Code)
		}
	}
	text := strings.ReplaceAll(what.Error(), "\n", " ")
	_, err := fmt.Fprintf(w.notes, "%d %s %d %s\n", now(), kind, code, text)
	must(err)
}

func isBusy(err error) bool {
	var failure sqlite3.Error
	return errors.As(err, &failure) && (failure.Code == sqlite3.ErrBusy || failure.Code == sqlite3.ErrLocked)
}

func (w *worker) plan() []operation {
	isRead := w.random.Float64() < 0.35
	epoch := now() / (w.EpochS * 1_000_000_000)
	operations := make([]operation, 1+w.random.Intn(4))
	for n := range operations {
		o := &operations[n]
		o.key = epoch*100 + w.random.Int63n(w.Keys)
		if !isRead && w.random.Float64() >= 0.4 {
			o.isAppend = true
			o.value = w.Process*1_000_000 + w.seq*10 + int64(n)
		}
	}
	return operations
}

func (w *worker) apply(operations []operation) ([]operation, error) {
	done := append([]operation(nil), operations...)
	for n := range done {
		o := &done[n]
		if o.isAppend {
			err := run(w.db, "INSERT INTO list VALUES(?, ?) ON CONFLICT(k) DO UPDATE SET v = v || ' ' || excluded.v",
				o.key, strconv.FormatInt(o.value, 10))
			if err != nil {
				return nil, err
			}
			continue
		}
		found, err := one(w.db, "SELECT v FROM list WHERE k = ?", o.key)
		if err != nil {
			return nil, err
		}
		list := ""
		if found != nil {
			list = fmt.Sprint(found)
		}
		o.list = &list
	}
	return done, nil
}

func (w *worker) transfer() error {
	debit, credit, amount := w.random.Int63n(w.Accounts), w.random.Int63n(w.Accounts), w.random.Int63n(50)
	if err := run(w.db, "UPDATE account SET balance = balance - ? WHERE id = ?", amount, debit); err != nil {
		return err
	}
	if err := run(w.db, "UPDATE account SET balance = balance + ? WHERE id = ?", amount, credit); err != nil {
		return err
	}
	if w.random.Float64() < 0.2 {
		err := run(w.db, "SAVEPOINT s; UPDATE ledger SET amount = amount + 1 "+
			"WHERE id > (SELECT max(id) FROM ledger) - 200; ROLLBACK TO s; RELEASE s")
		if err != nil {
			return err
		}
	}
	note := strings.Repeat("n", 10+w.random.Intn(290))
	return run(w.db, "INSERT INTO ledger(process, seq, debit, credit, amount, note) VALUES(?, ?, ?, ?, ?, ?)",
		w.Process, w.seq, debit, credit, amount, note)
}

func (w *worker) read(operations []operation) ([]operation, error) {
	if err := run(w.db, "BEGIN"); err != nil {
		return nil, err
	}
	done, err := w.apply(operations)
	if err != nil {
		return nil, err
	}
	if w.random.Float64() < w.LongReaders {
		time.Sleep(time.Duration(500+w.random.Intn(3500)) * time.Millisecond)
		// The snapshot must not have moved.
		again, err := w.apply(operations)
		if err != nil {
			return nil, err
		}
		done = append(done, again...)
	}
	total, err := one(w.db, "SELECT sum(balance) FROM account")
	if err != nil {
		return nil, err
	}
	if total != w.Total {
		w.note("wrong", fmt.Errorf("a snapshot has the sum %v", total))
	}
	return done, run(w.db, "COMMIT")
}

func (w *worker) write(operations []operation) (string, []operation, error) {
	// A deferred transaction reads first, and may fail when it begins to write.
	begin := "BEGIN IMMEDIATE"
	if w.random.Intn(3) == 0 {
		begin = "BEGIN"
	}
	if err := run(w.db, begin); err != nil {
		return "", nil, err
	}
	done, err := w.apply(operations)
	if err == nil {
		err = w.transfer()
	}
	if err != nil {
		return "", nil, err
	}
	if w.random.Float64() < 0.04 {
		return "fail", operations, run(w.db, "ROLLBACK")
	}
	switch err = run(w.db, "COMMIT"); {
	case err == nil:
		return "ok", done, nil
	case isBusy(err):
		return "", nil, err
	}
	// The worker does not know.
	w.note("commit", err)
	return "info", operations, nil
}

// Ends what is left of a transaction. A connection that cannot is closed.
func (w *worker) giveUp() {
	if w.db.AutoCommit() {
		return
	}
	if err := run(w.db, "ROLLBACK"); err != nil {
		w.note("rollback", err)
		w.db.Close()
		w.db = nil
	}
}

func (w *worker) step() {
	w.seq++
	operations := w.plan()
	w.record("invoke", operations)
	isRead := true
	for _, o := range operations {
		isRead = isRead && !o.isAppend
	}
	kind, done := "ok", operations
	var err error
	if isRead {
		done, err = w.read(operations)
	} else {
		kind, done, err = w.write(operations)
	}
	if err != nil {
		w.note("statement", err)
		kind, done = "fail", operations
	}
	w.giveUp()
	w.record(kind, done)
}

func (w *worker) connect() error {
	db, err := open("file:" + w.Database + "?vfs=onewrite&_busy_timeout=" + strconv.FormatInt(w.BusyMs, 10))
	if err != nil {
		return err
	}
	mode, err := one(db, "PRAGMA journal_mode="+w.Mode)
	if err == nil && mode != w.Mode {
		err = fmt.Errorf("journal_mode is %v", mode)
	}
	if err == nil {
		pages := []int{50, 200, 1000}[w.random.Intn(3)]
		err = run(db, fmt.Sprintf("PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=%d; PRAGMA cache_size=50", pages))
	}
	if err != nil {
		db.Close()
		return err
	}
	w.db = db
	return nil
}

func (w *worker) work() {
	for {
		time.Sleep(time.Duration(w.random.Float64() * 2 / w.Rate * float64(time.Second)))
		var err error
		if w.db == nil {
			err = w.connect()
		}
		if err == nil && w.random.Intn(100) == 0 {
			_, err = one(w.db, w.Upkeep[w.random.Intn(len(w.Upkeep))])
		}
		if err != nil {
			w.note("open", err)
			continue
		}
		w.step()
	}
}

func main() {
	memory, err := open(":memory:")
	must(err)
	if os.Args[1] == "--probe" {
		version, err := one(memory, "SELECT sqlite_version()")
		must(err)
		fmt.Println(version)
		return
	}
	w := &worker{}
	must(json.Unmarshal([]byte(os.Args[1]), &w.job))
	w.random = rand.New(rand.NewSource(w.Seed))
	flags := os.O_WRONLY | os.O_APPEND | os.O_CREATE
	w.history, err = os.OpenFile(w.History, flags, 0o600)
	must(err)
	w.notes, err = os.OpenFile(w.Notes, flags, 0o600)
	must(err)
	// The VFS stays registered after the connection that loaded it.
	must(memory.LoadExtension(w.Library, "sqlite3_onewrite_init"))
	w.work()
}
