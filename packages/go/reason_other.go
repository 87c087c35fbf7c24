//go:build !linux

package onewrite

func withReason(_ string, err error) error { return err }
