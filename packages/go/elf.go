package onewrite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	elfMagic   = "\x7fELF"
	elfHeader  = 64
	elfHas64   = 2
	elfSizes32 = 46
	elfSizes64 = 58
	elfMachine = 18
)

var machineNames = map[uint16]string{3: "x86", 40: "ARM", 62: "x86_64", 183: "aarch64", 243: "RISC-V"}

// checkLibrary says why a file cannot be the extension of this program. The system's loader ends the
// program at a library that is cut short, and says "No such file" of one for another machine.
func checkLibrary(path string) error {
	header, size, err := elfHeaderOf(path)
	if err != nil {
		return err
	}
	if size < sectionsEnd(header) {
		return errors.New("it is cut short")
	}
	own, _, err := elfHeaderOf("/proc/self/exe")
	if err == nil && machineOf(own) != machineOf(header) {
		return fmt.Errorf("it is for %s, and this program is for %s", machineOf(header), machineOf(own))
	}
	return nil
}

// ofOtherLibc says so of a library that the loader refused because it needs the other C library, whose name
// is in the file.
func ofOtherLibc(path string, err error) error {
	contents, unread := os.ReadFile(path)
	maps, unknown := os.ReadFile("/proc/self/maps")
	if unread != nil || unknown != nil {
		return err
	}
	own := "glibc"
	if bytes.Contains(maps, []byte("/ld-musl-")) {
		own = "musl"
	}
	needed := own
	if bytes.Contains(contents, []byte("libc.so.6\x00")) {
		needed = "glibc"
	} else if bytes.Contains(contents, []byte("libc.so\x00")) {
		needed = "musl"
	}
	if needed == own {
		return err
	}
	return fmt.Errorf("it is for %s, and this program uses %s", needed, own)
}

func elfHeaderOf(path string) (header []byte, size uint64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	header = make([]byte, elfHeader)
	if _, err = io.ReadFull(file, header); err != nil || !bytes.HasPrefix(header, []byte(elfMagic)) {
		return nil, 0, errors.New("it is no shared library")
	}
	return header, uint64(info.Size()), nil
}

// sectionsEnd is the end of the table of sections, which linkers write last.
func sectionsEnd(header []byte) uint64 {
	order := binary.LittleEndian
	start, sizes := uint64(order.Uint32(header[32:])), elfSizes32
	if has64Bits(header) {
		start, sizes = order.Uint64(header[40:]), elfSizes64
	}
	return start + uint64(order.Uint16(header[sizes:]))*uint64(order.Uint16(header[sizes+2:]))
}

func has64Bits(header []byte) bool { return header[4] == elfHas64 }

func machineOf(header []byte) string {
	number := binary.LittleEndian.Uint16(header[elfMachine:])
	name, isKnown := machineNames[number]
	if !isKnown {
		name = fmt.Sprintf("machine %d", number)
	}
	if has64Bits(header) {
		return name + ", 64 bits"
	}
	return name + ", 32 bits"
}
