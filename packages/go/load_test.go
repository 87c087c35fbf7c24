package onewrite

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	sqlite3 "github.com/mattn/go-sqlite3"
)

func init() {
	children["load"] = loadAgain
	children["ask for WAL"] = askForWAL
	children["errors"] = printErrors
	children["another system"] = anotherSystem
	children["loaded by other code"] = loadedByOtherCode
}

func loadAgain([]string) error {
	var all sync.WaitGroup
	for n := 0; n < 16; n++ {
		all.Add(1)
		go func() {
			defer all.Done()
			if isThere, err := Load(); !isThere || err != nil {
				fmt.Println(isThere, err)
			}
		}()
	}
	all.Wait()
	fmt.Println(os.Getenv(upgradeVariable))
	return nil
}

func TestLoadOnceAndAgain(t *testing.T) {
	equal(t, "onewrite", printed(t, child(t, "load", nil)))
}

func askForWAL(arguments []string) error {
	db, err := sql.Open(DriverName, arguments[0])
	if err != nil {
		return err
	}
	defer db.Close()
	var answer string
	if err = db.QueryRow("PRAGMA journal_mode=WAL").Scan(&answer); err != nil {
		return err
	}
	fmt.Println(answer)
	fmt.Println(checked(db))
	return nil
}

func TestWhatTheEnvironmentSaysOfWALStays(t *testing.T) {
	said := printed(t, child(t, "ask for WAL", []string{upgradeVariable + "=0"}, path(t)))
	equal(t, "wal\nonewrite: the database is in wal mode, not in one of onewrite"+
		": run PRAGMA journal_mode=onewrite on it", said)
}

func printErrors(arguments []string) error {
	_, err := LoadablePath()
	fmt.Println(err)
	_, err = Load()
	fmt.Println(err)
	fmt.Println(refusal(arguments[0]))
	return nil
}

func TestALibraryThatIsNotThereIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libonewrite.so")
	name := path(t)
	line := "onewrite: ONEWRITE_EXTENSION_LIBRARY: there is no file " + missing
	said := printed(t, child(t, "errors", []string{libraryVariable + "=" + missing}, name))
	equal(t, strings.Join([]string{line, line, line}, "\n"), said)
	_, err := os.Stat(name)
	equal(t, true, errors.Is(err, os.ErrNotExist))
}

// The system's loader would end the program at a library that is cut short.
func TestAFileThatIsNoLibraryOrADamagedOne(t *testing.T) {
	whole := wholeLibrary(t)
	other, number, name := append([]byte(nil), whole...), byte(183), "aarch64"
	if whole[elfMachine] == number {
		number, name = 62, "x86_64"
	}
	other[elfMachine] = number
	ofMusl := bytes.ReplaceAll(whole, []byte("libc.so.6\x00"), []byte("libc.so\x00\x00\x00"))
	for reason, contents := range map[string][]byte{
		"it is no shared library":         []byte("no library"),
		"it is cut short":                 whole[:len(whole)-1],
		"it is for " + name + ", 64 bits": other,
		// The tests run with glibc.
		"it is for musl, and this program uses glibc": ofMusl,
	} {
		library := filepath.Join(t.TempDir(), "libonewrite.so")
		must(t, os.WriteFile(library, contents, 0o600))
		said := printed(t, child(t, "errors", []string{libraryVariable + "=" + library}, path(t)))
		lines := strings.Split(said, "\n")
		equal(t, 3, len(lines))
		for _, line := range lines[1:] {
			fails(t, errors.New(line), "cannot load "+library+": "+reason, libraryVariable)
		}
	}
}

func wholeLibrary(t *testing.T) []byte {
	t.Helper()
	path, err := LoadablePath()
	must(t, err)
	contents, err := os.ReadFile(path)
	must(t, err)
	return contents
}

// Copies the test's program into a directory of its own, and says which file it would load.
func TestALibraryNextToTheExecutable(t *testing.T) {
	directory := t.TempDir()
	program, library := filepath.Join(directory, "program"), filepath.Join(directory, libraryName)
	copyFile(t, os.Args[0], program, 0o700)
	errorsOf := func() string {
		command := child(t, "errors", []string{libraryVariable + "="}, filepath.Join(directory, "app.db"))
		command.Path = program
		return printed(t, command)
	}
	fails(t, errors.New(errorsOf()), "no extension is embedded", library, libraryVariable)
	copyFile(t, os.Getenv(libraryVariable), library, 0o600)
	equal(t, "<nil>\n<nil>\n<nil>", errorsOf())
	must(t, os.Chmod(library, 0o666))
	fails(t, errors.New(errorsOf()), library, "other users may write it")
	must(t, os.Chmod(library, 0o600))
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: a library of another user: this is not root")
	}
	must(t, os.Chown(library, 65534, 65534))
	fails(t, errors.New(errorsOf()), library, "other users may write it")
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	contents, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, contents, mode))
	must(t, os.Chmod(to, mode))
}

func anotherSystem(arguments []string) error {
	system = arguments[1]
	log.SetFlags(0)
	log.SetOutput(os.Stdout)
	fmt.Println(Load())
	for n := 0; n < 2; n++ {
		db, err := sql.Open(DriverName, arguments[0]+"?_journal_mode=waldio&vfs=onewrite")
		if err != nil {
			return err
		}
		defer db.Close()
		var mode, level string
		if err = db.QueryRow("SELECT journal_mode, synchronous FROM pragma_journal_mode, pragma_synchronous").Scan(&mode, &level); err != nil {
			return err
		}
		fmt.Println(mode, level)
		fmt.Println(checked(db))
	}
	return nil
}

func TestOtherSystemsGetAWarningAndStockWAL(t *testing.T) {
	for _, name := range []string{"darwin", "windows"} {
		line := "wal 2\nonewrite: the connection does not use onewrite: onewrite runs on Linux only"
		warning := "onewrite: onewrite runs on Linux only: databases are in stock WAL here"
		said := printed(t, child(t, "another system", nil, path(t), name))
		equal(t, strings.Join([]string{warning, "false <nil>", line, line}, "\n"), said)
	}
}

func loadedByOtherCode(arguments []string) error {
	driver := &sqlite3.SQLiteDriver{Extensions: []string{os.Getenv(libraryVariable)}}
	conn, err := driver.Open(":memory:")
	if err != nil {
		return err
	}
	if err = conn.Close(); err != nil {
		return err
	}
	os.Setenv(libraryVariable, "/nowhere/libonewrite.so") // nothing is loaded a second time
	return refusal(arguments[0])
}

func TestAnExtensionThatOtherCodeHasLoaded(t *testing.T) {
	equal(t, "", printed(t, child(t, "loaded by other code", nil, path(t))))
}

func TestVersionsAreTheSame(t *testing.T) {
	manifest, err := os.ReadFile("../../Cargo.toml")
	must(t, err)
	found := regexp.MustCompile(`(?m)^version = "(.+)"`).FindSubmatch(manifest)
	equal(t, string(found[1]), Version)
}
