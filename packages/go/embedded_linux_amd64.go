package onewrite

import "embed"

// The release puts the library there. Without it only the empty directory is embedded.
//
//go:embed all:lib/linux_amd64
var embedded embed.FS

const (
	embeddedDirectory = "lib/linux_amd64"
	memfdCreate       = 319
)
