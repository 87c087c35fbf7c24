// Package onewrite gives github.com/mattn/go-sqlite3 durable commits in one device write.
//
//	import _ "onewrite"
//
//	db, err := sql.Open("sqlite3-onewrite", "app.db")
//
// Each connection of the driver is then in journal mode onewrite at synchronous=FULL, or opening it
// has returned an error with the reason. A database that remembers another of Modes stays in that one.
// On systems other than Linux the driver warns, and opens databases in stock WAL.
package onewrite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log"
	"runtime"
	"sync"

	sqlite3 "github.com/mattn/go-sqlite3"
)

// Version of the package, and of the extension that it is tested with.
const Version = "0.1.0"

// DriverName is the name under which database/sql has the driver with its defaults.
const DriverName = "sqlite3-onewrite"

const onlyLinux = "onewrite runs on Linux only"

// Tests take the place of another system.
var system = runtime.GOOS

var warnOnce sync.Once

func init() {
	sql.Register(DriverName, &Driver{})
}

// Driver opens databases with github.com/mattn/go-sqlite3, in a journal mode of onewrite. Register one
// under a name of its own to change the defaults:
//
//	sql.Register("app", &onewrite.Driver{SQLite: sqlite3.SQLiteDriver{ConnectHook: hook}})
//
// The connections are of type *sqlite3.SQLiteConn.
type Driver struct {
	// Mode is one of Modes. Empty: the one that the database remembers, and onewrite for any other
	// database.
	Mode string
	// Synchronous is the least durable level of the connections: OFF, NORMAL, FULL or EXTRA.
	// Empty: FULL. At a lower level a power cut loses commits.
	Synchronous string
	// SQLite has extensions to load, and a hook. The mode is entered and checked after the hook.
	SQLite sqlite3.SQLiteDriver
}

// Open opens a connection. See OpenConnector.
func (d *Driver) Open(dsn string) (driver.Conn, error) {
	opener, err := d.OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	return opener.Connect(context.Background())
}

// OpenConnector loads the extension. The data source name is one of github.com/mattn/go-sqlite3, with
// settings of onewrite if it is a URI. Its _journal_mode may name a mode of onewrite. WAL means the mode
// of the driver, because programs that ask for WAL mean a log. Its _synchronous may raise the level.
func (d *Driver) OpenConnector(dsn string) (driver.Connector, error) {
	source, err := d.parse(dsn)
	if err != nil {
		return nil, err
	}
	isThere, err := Load()
	if err != nil {
		return nil, err
	}
	return &connector{d, source, isThere}, nil
}

type connector struct {
	driver  *Driver
	source  source
	isThere bool
}

func (c *connector) Driver() driver.Driver { return c.driver }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if !c.isThere {
		return c.driver.SQLite.Open(c.source.stock())
	}
	conn, err := c.enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("onewrite: %s: %w", c.source.name, withReason(c.source.name, err))
	}
	return conn, nil
}

func warnOfStock() {
	warnOnce.Do(func() { log.Printf("onewrite: %s: databases are in stock WAL here", onlyLinux) })
}
