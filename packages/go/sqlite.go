//go:build cgo

package onewrite

import (
	"errors"
	"strings"
	"syscall"

	sqlite3 "github.com/mattn/go-sqlite3"
)

func isUsable() error { return nil }

// hasVFS asks SQLite itself, because other code may have loaded the extension.
func hasVFS() (bool, error) {
	conn, err := new(sqlite3.SQLiteDriver).Open("file::memory:?vfs=onewrite")
	if err == nil {
		return true, conn.Close()
	}
	if strings.Contains(err.Error(), "no such vfs") {
		return false, nil
	}
	return false, err
}

// loadExtension loads it for the whole process. It stays loaded when the connection is closed.
func loadExtension(path string) error {
	conn, err := new(sqlite3.SQLiteDriver).Open(":memory:")
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.(*sqlite3.SQLiteConn).LoadExtension(path, entryPoint)
}

// errnoOf is the system error that the driver adds to the text of its error, or 0.
func errnoOf(err error) syscall.Errno {
	var failure sqlite3.Error
	if !errors.As(err, &failure) {
		return 0
	}
	return failure.SystemErrno
}

func isBusy(err error) bool {
	var failure sqlite3.Error
	return errors.As(err, &failure) && failure.Code == sqlite3.ErrBusy
}
