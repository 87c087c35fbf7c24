package onewrite

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Modes are the journal modes of onewrite.
var Modes = []string{"onewrite", "waldio", "swal", "direct"}

// levels are the words of PRAGMA synchronous, by SQLite's numbers.
var levels = []string{"OFF", "NORMAL", "FULL", "EXTRA"}

const full = 2

// defaultBusyTimeout is the one of github.com/mattn/go-sqlite3.
const defaultBusyTimeout = 5 * time.Second

var errMemory = errors.New("a database in memory has no journal: open it with the driver sqlite3")

// source is a data source name: which database, and what was asked for.
type source struct {
	name  string
	isURI bool
	// Its parameters as they were written, without those that say mode, level and VFS.
	parameters []string
	// Empty: the one that the database remembers.
	mode  string
	level int
	// How long another connection that is in the way is waited for.
	timeout time.Duration
}

// DSN returns the data source name that opens a database in mode onewrite with the driver "sqlite3",
// for code that opens it by that name. It changes a database that is in another mode. Call Load before,
// and Check after.
func DSN(dsn string) (string, error) {
	source, err := new(Driver).parse(dsn)
	if err != nil {
		return "", err
	}
	source.mode = or(source.mode, Modes[0])
	return source.native(), nil
}

// parse takes a data source name apart as github.com/mattn/go-sqlite3 does: parameters come after the
// first question mark.
func (d *Driver) parse(dsn string) (source, error) {
	parsed := source{name: dsn, isURI: strings.HasPrefix(dsn, "file:"), timeout: defaultBusyTimeout}
	if parsed.isURI {
		parsed.name, _, _ = strings.Cut(parsed.name, "#")
	}
	text := ""
	if at := strings.IndexByte(parsed.name, '?'); at > 0 {
		parsed.name, text = parsed.name[:at], parsed.name[at+1:]
	}
	if isMemory(parsed.name) {
		return source{}, fmt.Errorf("onewrite: %q: %w", dsn, errMemory)
	}
	if err := parsed.take(d, text); err != nil {
		return source{}, fmt.Errorf("onewrite: %s: %w", parsed.name, err)
	}
	return parsed, nil
}

func isMemory(name string) bool {
	return name == "" || name == ":memory:" || name == "file:" || strings.HasPrefix(name, "file::memory:")
}

// take reads the parameters. Those that the driver decides leave the list.
func (s *source) take(d *Driver, text string) error {
	var err error
	if s.mode, err = modeOf(d.Mode); err != nil {
		return err
	}
	if s.level, err = placeOf(or(d.Synchronous, levels[full]), "synchronous", levels); err != nil {
		return err
	}
	for _, parameter := range strings.Split(text, "&") {
		values, err := url.ParseQuery(parameter)
		if err != nil {
			return err
		}
		for name, all := range values {
			if err = s.apply(name, all[0], parameter); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply takes one parameter into account.
func (s *source) apply(name, value, parameter string) error {
	switch name {
	case "_journal_mode", "_journal", "journal_mode":
		return s.chooseMode(name, value)
	case "_synchronous", "_sync":
		return s.raise(name, value)
	case "vfs":
		if value != "onewrite" {
			return fmt.Errorf("the name asks for %s, and this driver opens with vfs=onewrite", parameter)
		}
		return nil
	case "mode":
		if value == "memory" {
			return errMemory
		}
	case "_busy_timeout", "_timeout":
		// The driver below refuses what is no number.
		if milliseconds, err := strconv.Atoi(value); err == nil {
			s.timeout = time.Duration(milliseconds) * time.Millisecond
		}
	default:
		if err := checkName(name); err != nil {
			return err
		}
	}
	s.parameters = append(s.parameters, parameter)
	return nil
}

func (s *source) chooseMode(name, value string) error {
	if value == "" || strings.EqualFold(value, "wal") {
		return nil
	}
	place, err := placeOf(value, name, Modes)
	if err != nil {
		return err
	}
	s.mode = Modes[place]
	return nil
}

func (s *source) raise(name, value string) error {
	if value == "" {
		return nil
	}
	level, err := strconv.Atoi(value)
	if err != nil || level < 0 || level >= len(levels) {
		if level, err = placeOf(value, name, levels); err != nil {
			return err
		}
	}
	if level < s.level {
		return fmt.Errorf("%s=%s is less durable than %s, the level of this driver: leave it out, or register "+
			"an onewrite.Driver with Synchronous: %q", name, value, levels[s.level], levels[level])
	}
	s.level = level
	return nil
}

// native is the name for github.com/mattn/go-sqlite3 with the VFS of onewrite.
func (s *source) native() string {
	name := s.name
	if !s.isURI {
		if strings.HasPrefix(name, "/") {
			name = "/" + strings.TrimLeft(name, "/") // two slashes would begin a host's name
		}
		name = "file:" + strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23").Replace(name)
	}
	if s.mode == "" {
		return s.with(name, "vfs=onewrite")
	}
	return s.with(name, "vfs=onewrite", "journal_mode="+s.mode)
}

// stock is the name for stock WAL, on systems other than Linux.
func (s *source) stock() string {
	return s.with(s.name, "_journal_mode=WAL")
}

func (s *source) with(name string, more ...string) string {
	all := append(append([]string{}, s.parameters...), more...)
	return name + "?" + strings.Join(append(all, "_synchronous="+levels[s.level]), "&")
}

// modeOf is one of Modes. An empty word stays empty.
func modeOf(word string) (string, error) {
	if word == "" {
		return "", nil
	}
	place, err := placeOf(word, "mode", Modes)
	if err != nil {
		return "", err
	}
	return Modes[place], nil
}

func placeOf(word, what string, words []string) (int, error) {
	for place, known := range words {
		if strings.EqualFold(word, known) {
			return place, nil
		}
	}
	return 0, fmt.Errorf("unknown %s %q: it is one of %s", what, word, strings.Join(words, ", "))
}

func or(word, otherwise string) string {
	if word == "" {
		return otherwise
	}
	return word
}
