package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"onewrite"
)

const schema = `
CREATE TABLE IF NOT EXISTS log(
	number INTEGER PRIMARY KEY, term INTEGER, type INTEGER, data BLOB, extensions BLOB, appended INTEGER);
CREATE TABLE IF NOT EXISTS stable(key BLOB PRIMARY KEY, value) WITHOUT ROWID;`

const levelFull = 2

// store keeps what Raft must not forget in a SQLite database at synchronous=FULL. It is a raft.LogStore and
// a raft.StableStore. Each call that writes is one transaction, which is durable when the call returns.
type store struct {
	db *sql.DB
}

// openStore opens a database in mode "onewrite" with our package, or in "wal" with stock SQLite.
func openStore(path, mode string) (*store, error) {
	driver, name := onewrite.DriverName, path+"?_txlock=immediate"
	if mode == "wal" {
		driver, name = "sqlite3", name+"&_journal_mode=WAL&_synchronous=FULL"
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		return nil, err
	}
	// Raft writes from one thread, and its cache serves nearly all reads.
	db.SetMaxOpenConns(1)
	if err = prepare(db, path, mode); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &store{db}, nil
}

// prepare makes the tables, and fails unless commits are in the mode at FULL.
func prepare(db *sql.DB, path, mode string) error {
	if _, err := db.Exec(schema); err != nil {
		return err
	}
	if mode != "wal" {
		status, err := onewrite.Check(context.Background(), db)
		if err == nil && status.Mode != mode {
			err = fmt.Errorf("the database is in %s, not in %s", status.Mode, mode)
		}
		return err
	}
	// With our VFS the mode could be called wal, too, but there would be no such file.
	var level int
	if err := db.QueryRow("PRAGMA synchronous").Scan(&level); err != nil {
		return err
	}
	if _, err := os.Stat(path + "-wal"); err != nil || level != levelFull {
		return fmt.Errorf("the database is not in wal at FULL: level %d, %v", level, err)
	}
	return nil
}

func (s *store) Close() error { return s.db.Close() }

func (s *store) FirstIndex() (uint64, error) { return s.index("min") }

func (s *store) LastIndex() (uint64, error) { return s.index("max") }

func (s *store) index(end string) (index uint64, err error) {
	err = s.db.QueryRow("SELECT coalesce(" + end + "(number), 0) FROM log").Scan(&index)
	return index, err
}

func (s *store) GetLog(index uint64, entry *raft.Log) error {
	var appended int64
	row := s.db.QueryRow("SELECT number, term, type, data, extensions, appended FROM log WHERE number = ?", index)
	err := row.Scan(&entry.Index, &entry.Term, &entry.Type, &entry.Data, &entry.Extensions, &appended)
	if errors.Is(err, sql.ErrNoRows) {
		return raft.ErrLogNotFound
	}
	entry.AppendedAt = time.Unix(0, appended)
	return err
}

func (s *store) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs stores what Raft hands over together in one transaction: one flush for all of them.
func (s *store) StoreLogs(entries []*raft.Log) error {
	places := strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?),", len(entries)), ",")
	values := make([]any, 0, 6*len(entries))
	for _, e := range entries {
		values = append(values, e.Index, e.Term, e.Type, e.Data, e.Extensions, e.AppendedAt.UnixNano())
	}
	_, err := s.db.Exec("INSERT OR REPLACE INTO log VALUES "+places, values...)
	return err
}

func (s *store) DeleteRange(first, last uint64) error {
	_, err := s.db.Exec("DELETE FROM log WHERE number BETWEEN ? AND ?", first, last)
	return err
}

func (s *store) Set(key, value []byte) error { return s.set(key, value) }

func (s *store) SetUint64(key []byte, value uint64) error { return s.set(key, int64(value)) }

func (s *store) set(key []byte, value any) error {
	_, err := s.db.Exec("INSERT OR REPLACE INTO stable VALUES(?, ?)", key, value)
	return err
}

func (s *store) Get(key []byte) ([]byte, error) {
	var value []byte
	err := s.get(key, &value)
	return value, err
}

func (s *store) GetUint64(key []byte) (uint64, error) {
	var value uint64
	err := s.get(key, &value)
	return value, err
}

// get leaves the value empty if the key is not there, as Raft expects.
func (s *store) get(key []byte, value any) error {
	err := s.db.QueryRow("SELECT value FROM stable WHERE key = ?", key).Scan(value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}
