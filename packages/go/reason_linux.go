package onewrite

import (
	"errors"
	"fmt"
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

// withReason adds why SQLite cannot open or write a database. Its own words tell neither the place nor the
// way out.
func withReason(name string, err error) error {
	if !isAboutFiles.MatchString(err.Error()) {
		return err
	}
	if text := reasonAndWayOut(pathOf(name)); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
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
