package onewrite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Status is what `PRAGMA onewrite_status` says of a connection's database.
type Status struct {
	Version string
	Mode    string
	// Synchronous is the level of the connection, such as "full".
	Synchronous string
	// Guarded: stock SQLite is kept off now.
	Guarded bool
	// Writes and Flushes of commits, since this process opened the log.
	Writes, Flushes uint64
	// JSON is the whole document.
	JSON json.RawMessage `json:"-"`
}

// String is the whole document.
func (status Status) String() string { return string(status.JSON) }

// document has the fields that the checks need besides.
type document struct {
	Status
	KeptOut *struct {
		Mode, Why string
	} `json:"kept_out_of"`
	Mode       *string
	Poisoned   *string
	Sync       string
	GroupSynch *string `json:"group_synch"`
}

var errUnused = errors.New("the connection does not use onewrite")

// These drivers have a SQLite that was translated to Go.
var pureGo = []string{"modernc.org/sqlite", "github.com/glebarez/go-sqlite", "github.com/ncruces/go-sqlite3"}

// Check returns the status if the database is in a mode of onewrite at synchronous=FULL, and an error
// with the reason otherwise. It takes one connection of the pool. The driver has checked each when it
// opened it, but a later pragma changes one connection only.
func Check(ctx context.Context, db *sql.DB) (Status, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return Status{}, err
	}
	defer conn.Close()
	return CheckConn(ctx, conn, "", levels[full])
}

// CheckConn is Check for one connection, a mode of Modes, and a level of PRAGMA synchronous. If mode is
// empty, any of Modes will do. A more durable level is no error.
func CheckConn(ctx context.Context, conn *sql.Conn, mode, synchronous string) (Status, error) {
	mode, err := modeOf(mode)
	if err != nil {
		return Status{}, fmt.Errorf("onewrite: %w", err)
	}
	level, err := placeOf(synchronous, "synchronous", levels)
	if err != nil {
		return Status{}, fmt.Errorf("onewrite: %w", err)
	}
	status, err := check(ctx, askerOf(conn), mode, level)
	if errors.Is(err, errUnused) {
		err = fmt.Errorf("%w: %s", err, advice(conn))
	}
	if err != nil {
		return Status{}, fmt.Errorf("onewrite: %w", err)
	}
	return status, nil
}

func askerOf(conn *sql.Conn) asks {
	return func(ctx context.Context, statement string) (driver.Value, error) {
		var value any
		err := conn.QueryRowContext(ctx, statement).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return value, err
	}
}

func check(ctx context.Context, ask asks, mode string, level int) (Status, error) {
	found, err := statusOf(ctx, ask)
	if err != nil {
		return Status{}, err
	}
	if err = found.checkMode(ctx, ask, mode); err != nil {
		return Status{}, err
	}
	if err = found.checkLevel(level); err != nil {
		return Status{}, err
	}
	found.Status.Mode = *found.Mode
	return found.Status, nil
}

func statusOf(ctx context.Context, ask asks) (found document, err error) {
	answer, err := ask(ctx, "PRAGMA onewrite_status")
	if err != nil {
		return found, err
	}
	if answer == nil {
		return found, errUnused
	}
	text := []byte(textOf(answer))
	if err = json.Unmarshal(text, &found); err != nil {
		return found, fmt.Errorf("the status cannot be read: %w", err)
	}
	found.JSON = text
	return found, nil
}

// keptOutOf is the mode that the database remembers and is not used in, and onewrite if it remembers none.
func (d *document) keptOutOf() string {
	if d.KeptOut == nil {
		return Modes[0]
	}
	return or(d.KeptOut.Mode, Modes[0])
}

// checkMode takes any mode of onewrite if mode is empty.
func (d *document) checkMode(ctx context.Context, ask asks, mode string) error {
	if d.KeptOut != nil {
		return fmt.Errorf("the database is not in %s mode: %s", or(mode, d.keptOutOf()), d.KeptOut.Why)
	}
	if d.Mode == nil || *d.Mode != or(mode, *d.Mode) {
		if d.Mode == nil {
			answer, err := ask(ctx, "PRAGMA journal_mode")
			if err != nil {
				return err
			}
			stock := textOf(answer)
			d.Mode = &stock
		}
		return fmt.Errorf("the database is in %s mode, not in %s: run PRAGMA journal_mode=%s on it", *d.Mode,
			or(mode, "one of onewrite"), or(mode, Modes[0]))
	}
	if d.Poisoned != nil {
		return fmt.Errorf("the log cannot be used any more: %s", *d.Poisoned)
	}
	return nil
}

// checkLevel takes the level that holds: onewrite_synchronous may raise the one of the pragma.
func (d *document) checkLevel(level int) error {
	found, err := placeOf(d.Synchronous, "synchronous", levels)
	if err != nil {
		return err
	}
	if found < level {
		return fmt.Errorf("synchronous is %s, not %s: run PRAGMA synchronous=%s on each connection",
			levels[found], levels[level], levels[level])
	}
	if level < full {
		return nil
	}
	weak := ""
	if d.Sync == "normal" {
		weak = "onewrite_sync=normal"
	} else if d.GroupSynch != nil {
		weak = "onewrite_group_synch=" + *d.GroupSynch
	} else {
		return nil
	}
	return fmt.Errorf("%s lets a power cut lose commits: it does not go with synchronous=%s", weak, levels[level])
}

// advice says why a connection does not use onewrite, and how it comes to use it.
func advice(conn *sql.Conn) string {
	if system != "linux" {
		return onlyLinux
	}
	name := ""
	// The connection that a driver has made says which driver it is.
	conn.Raw(func(made any) error {
		name = packageOf(made)
		return nil
	})
	for _, known := range pureGo {
		if strings.Contains(name, known) {
			return fmt.Sprintf("its driver %s has a SQLite in Go, which cannot load it; use the driver %s", known, DriverName)
		}
	}
	return fmt.Sprintf("SQLite opened it with another VFS; use the driver %s, or onewrite.Load and onewrite.DSN", DriverName)
}

func packageOf(made any) string {
	kind := reflect.TypeOf(made)
	for kind != nil && kind.Kind() == reflect.Ptr {
		kind = kind.Elem()
	}
	if kind == nil {
		return ""
	}
	return kind.PkgPath()
}

// textOf: a driver may give text as bytes.
func textOf(value driver.Value) string {
	if raw, isBytes := value.([]byte); isBytes {
		return string(raw)
	}
	return fmt.Sprint(value)
}
