package onewrite

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// The command `onewrite` reads the first of these, the extension reads the second.
const (
	libraryVariable = "ONEWRITE_EXTENSION_LIBRARY"
	upgradeVariable = "ONEWRITE_UPGRADE_WAL"
	libraryName     = "libonewrite.so"
	entryPoint      = "sqlite3_onewrite_init"
)

var (
	loading  sync.Mutex
	isLoaded bool
)

// LoadablePath returns the path of the loadable extension, for other drivers. It is the file that
// ONEWRITE_EXTENSION_LIBRARY names, the embedded one, or libonewrite.so next to the executable.
//
// The path of an embedded library is valid in this process only. Its name does not tell SQLite the entry
// point, which is sqlite3_onewrite_init.
func LoadablePath() (string, error) {
	path, err := loadablePath()
	if err != nil {
		return "", fmt.Errorf("onewrite: %w", err)
	}
	return path, nil
}

func loadablePath() (string, error) {
	if named := namedLibrary(); named != "" {
		if !isFile(named) {
			return "", fmt.Errorf("%s: there is no file %s", libraryVariable, named)
		}
		return filepath.Abs(named)
	}
	if path, err := embeddedLibrary(); path != "" || err != nil {
		return path, err
	}
	return libraryNextToExecutable()
}

// Load makes the VFS onewrite available to each database that github.com/mattn/go-sqlite3 opens later in
// this process. The driver sqlite3-onewrite calls it.
//
// A program that asks for WAL keeps the mode of onewrite, because Load sets ONEWRITE_UPGRADE_WAL unless
// the environment has it. Load returns whether the VFS is there: false, with a warning in the log, on
// systems other than Linux.
func Load() (bool, error) {
	if system != "linux" {
		warnOfStock()
		return false, nil
	}
	loading.Lock()
	defer loading.Unlock()
	if isLoaded {
		return true, nil
	}
	if _, isSet := os.LookupEnv(upgradeVariable); !isSet {
		if err := os.Setenv(upgradeVariable, "onewrite"); err != nil {
			return false, fmt.Errorf("onewrite: cannot set %s: %w", upgradeVariable, err)
		}
	}
	if err := loadOnce(); err != nil {
		return false, fmt.Errorf("onewrite: %w", err)
	}
	isLoaded = true
	return true, nil
}

// loadOnce leaves an extension that is loaded already as it is.
func loadOnce() error {
	if err := isUsable(); err != nil {
		return err
	}
	if isThere, err := hasVFS(); isThere || err != nil {
		return err
	}
	path, err := loadablePath()
	if err != nil {
		return err
	}
	if err = checkLibrary(path); err == nil {
		if err = loadExtension(path); err != nil {
			err = ofOtherLibc(path, err)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot load %s: %w: name another library in %s", path, err, libraryVariable)
	}
	isThere, err := hasVFS()
	if err == nil && !isThere {
		err = fmt.Errorf("%s has not registered its VFS in this program's SQLite", path)
	}
	return err
}

func namedLibrary() string {
	if isPrivileged() {
		return ""
	}
	return os.Getenv(libraryVariable)
}

func libraryNextToExecutable() (string, error) {
	executable, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("where this program lies is unknown (%w): name the library in %s", err, libraryVariable)
	}
	path := filepath.Join(filepath.Dir(executable), libraryName)
	if !isFile(path) {
		return "", fmt.Errorf("no extension is embedded in this program, and there is no file %s: put it "+
			"there, or name the library in %s", path, libraryVariable)
	}
	if err = isTrusted(path, executable); err != nil {
		return "", err
	}
	return path, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
