package onewrite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func init() {
	children["named library"] = func([]string) error {
		fmt.Printf("%v %q\n", isPrivileged(), namedLibrary())
		return nil
	}
}

func TestWhetherTheSystemCallsTheProgramPrivileged(t *testing.T) {
	vector, err := os.ReadFile("/proc/self/auxv")
	must(t, err)
	isSecure, isKnown := secureOf(vector)
	equal(t, "false true", fmt.Sprint(isSecure, isKnown))
	_, isKnown = secureOf(vector[:0])
	equal(t, false, isKnown)
}

// The program belongs to another user, and runs as that user (set-user-ID).
func TestAPrivilegedProgramIgnoresTheVariable(t *testing.T) {
	library := os.Getenv(libraryVariable)
	equal(t, fmt.Sprintf("false %q", library), printed(t, child(t, "named library", nil)))
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: a set-user-ID program: this is not root")
	}
	program := filepath.Join(t.TempDir(), "program")
	copyFile(t, os.Args[0], program, 0o755)
	must(t, os.Chown(program, 65534, 65534))
	must(t, os.Chmod(program, 0o4755|os.ModeSetuid))
	command := child(t, "named library", nil)
	command.Path = program
	equal(t, `true ""`, printed(t, command))
}

func TestNobodyWritesTheLibraryInMemory(t *testing.T) {
	file, err := sealedFile([]byte("library"))
	must(t, err)
	defer file.Close()
	_, err = file.WriteAt([]byte("other"), 0)
	fails(t, err, "operation not permitted")
	fails(t, file.Truncate(3), "operation not permitted")
	contents, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	must(t, err)
	equal(t, "library", string(contents))
}
