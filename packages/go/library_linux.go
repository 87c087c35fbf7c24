package onewrite

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

const (
	auxiliarySecure = 23 // AT_SECURE

	memoryClose  = 0x1 // MFD_CLOEXEC
	memorySeals  = 0x2 // MFD_ALLOW_SEALING
	memoryNoExec = 0x8 // MFD_NOEXEC_SEAL, which some systems demand; it does not stop dlopen
	addSeals     = 1033
	allSeals     = 0xf // no more seals, and neither shrink, grow nor write
)

// The memory file stays open, because its path goes through the descriptor.
var (
	memory     sync.Mutex
	memoryFile *os.File
)

// embeddedLibrary writes the embedded library into a sealed memory file, once. No other user can write
// there, and no file is left behind. Without an embedded library the path is empty.
func embeddedLibrary() (string, error) {
	contents, err := embedded.ReadFile(embeddedDirectory + "/" + libraryName)
	if err != nil {
		return "", nil
	}
	memory.Lock()
	defer memory.Unlock()
	if memoryFile == nil {
		if memoryFile, err = sealedFile(contents); err != nil {
			return "", fmt.Errorf("cannot write out the embedded library (%w): put it into a file, and name "+
				"that in %s", err, libraryVariable)
		}
	}
	return "/proc/self/fd/" + strconv.Itoa(int(memoryFile.Fd())), nil
}

func sealedFile(contents []byte) (*os.File, error) {
	file, err := createMemory(memoryClose | memorySeals)
	if err == syscall.EACCES {
		file, err = createMemory(memoryClose | memorySeals | memoryNoExec)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	if _, err = file.Write(contents); err == nil {
		if _, _, code := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), addSeals, allSeals); code != 0 {
			err = os.NewSyscallError("fcntl", code)
		}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func createMemory(flags uintptr) (*os.File, error) {
	name, err := syscall.BytePtrFromString(libraryName)
	if err != nil {
		return nil, err
	}
	descriptor, _, code := syscall.Syscall(memfdCreate, uintptr(unsafe.Pointer(name)), flags, 0)
	if code != 0 {
		return nil, code
	}
	return os.NewFile(descriptor, libraryName), nil
}

// isPrivileged reports whether this program has more rights than its user (set-user-ID, file
// capabilities). The environment of such a program may not choose the code that it runs.
func isPrivileged() bool {
	vector, err := os.ReadFile("/proc/self/auxv")
	if os.IsPermission(err) {
		return true
	}
	if isSecure, isKnown := secureOf(vector); isKnown {
		return isSecure
	}
	return os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid()
}

// secureOf looks AT_SECURE up: the vector has pairs of machine words, a key and a value.
func secureOf(vector []byte) (isSecure, isKnown bool) {
	const word = strconv.IntSize / 8
	for ; len(vector) >= 2*word; vector = vector[2*word:] {
		if wordOf(vector[:word]) == auxiliarySecure {
			return wordOf(vector[word:2*word]) != 0, true
		}
	}
	return false, false
}

// wordOf reads a number of this machine. Each machine that has the library is little-endian.
func wordOf(raw []byte) uint64 {
	var wide [8]byte
	copy(wide[:], raw)
	return binary.LittleEndian.Uint64(wide[:])
}

// isTrusted refuses a library that others than the program's owner may have put next to it.
func isTrusted(path, executable string) error {
	library, err := statOf(path)
	if err != nil {
		return err
	}
	program, err := statOf(executable)
	if err != nil {
		return err
	}
	isOwn := library.Uid == 0 || library.Uid == uint32(os.Geteuid()) || library.Uid == program.Uid
	if !isOwn || library.Mode&0o002 != 0 {
		return fmt.Errorf("%s is not loaded, because other users may write it: change its owner and mode, or name "+
			"the library in %s", path, libraryVariable)
	}
	return nil
}

func statOf(path string) (syscall.Stat_t, error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(path, &stat); err != nil {
		return stat, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return stat, nil
}
