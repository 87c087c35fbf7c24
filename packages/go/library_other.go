//go:build !linux

package onewrite

// Load does nothing on these systems, so nothing here is loaded.

func embeddedLibrary() (string, error) { return "", nil }

func isPrivileged() bool { return false }

func isTrusted(path, executable string) error { return nil }
