//go:build !cgo

package onewrite

import (
	"errors"
	"syscall"
)

// Without cgo, github.com/mattn/go-sqlite3 has no SQLite.

func isUsable() error {
	return errors.New("this program was built without cgo, so it has no SQLite that can load the extension: " +
		"build it with CGO_ENABLED=1 and a C compiler")
}

func hasVFS() (bool, error) { return false, nil }

func loadExtension(path string) error { return isUsable() }

func errnoOf(err error) syscall.Errno { return 0 }

func isBusy(err error) bool { return false }
