//go:build linux && !amd64 && !arm64 && !arm

package onewrite

import "embed"

// No release has a library for this processor.
var embedded embed.FS

const (
	embeddedDirectory = "lib/other"
	memfdCreate       = 0
)
