//go:build cgo

package onewrite

import (
	"errors"
	"strings"

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

func isBusy(err error) bool {
	var failure sqlite3.Error
	return errors.As(err, &failure) && failure.Code == sqlite3.ErrBusy
}
