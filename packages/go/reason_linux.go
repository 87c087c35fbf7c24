package onewrite

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// The rights of access(2).
const (
	mayRead  = 4
	mayWrite = 2
	mayEnter = 1
)

var isAboutFiles = regexp.MustCompile("unable to open|read-?only")

// SQLite's words before those of the extension.
const extensionSays = "automatic extension loading failed: "

// explained is an error of the driver in other words.
type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }

// withReason adds why SQLite cannot open or write a database. Its own words tell neither the place nor the
// way out. The driver's system error is left out where the reason is known: it may be one of another call.
func withReason(name string, err error) error {
	said := err.Error()
	text := strings.Replace(said, extensionSays, "", 1)
	wayOut := ""
	if isAboutFiles.MatchString(said) {
		wayOut = reasonAndWayOut(pathOf(name))
	}
	if text == said && wayOut == "" {
		return err
	}
	if errno := errnoOf(err); errno != 0 {
		text = strings.TrimSuffix(text, ": "+errno.Error())
	}
	if wayOut != "" {
		text += ": " + wayOut
	}
	return &explained{text, err}
}

func reasonAndWayOut(name string) string {
	path, err := filepath.Abs(name)
	if err != nil {
		return ""
	}
	directory := filepath.Dir(path)
	_, missing := os.Stat(path)
	switch {
	case !isDirectory(directory):
		return "there is no directory " + directory + ": make it first"
	case isDirectory(path):
		return path + " is a directory: name a file in it"
	case !errors.Is(missing, os.ErrNotExist) && syscall.Access(path, mayRead|mayWrite) != nil:
		return "this user may not read and write " + path + ": change its owner or mode"
	case syscall.Access(directory, mayWrite|mayEnter) != nil:
		return "this user may make no files in " + directory + ", where the log lies, too: change its owner or mode"
	}
	return ""
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// pathOf takes the path or the URI of a source, which has no parameters.
func pathOf(name string) string {
	plain, err := url.PathUnescape(strings.TrimPrefix(name, "file:"))
	if !strings.HasPrefix(name, "file:") || err != nil {
		return name
	}
	return plain
}
