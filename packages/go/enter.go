package onewrite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"time"
)

const retryAfter = 20 * time.Millisecond

// asks runs a statement, and returns the first value of its first row, or nil without a row.
type asks func(ctx context.Context, statement string) (driver.Value, error)

// enter opens a connection in the mode. Another connection that is in the way is waited for as long as
// the busy timeout says.
func (c *connector) enter(ctx context.Context) (driver.Conn, error) {
	end := time.Now().Add(c.source.timeout)
	var busy error
	for {
		conn, err := c.try(ctx)
		if err != nil && busy != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %v", ctx.Err(), busy) // it ended within a statement
		}
		if err == nil || !isBusy(err) || !time.Now().Before(end) {
			return conn, err
		}
		busy = err
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %v", ctx.Err(), busy)
		case <-time.After(retryAfter):
		}
	}
}

func (c *connector) try(ctx context.Context) (driver.Conn, error) {
	conn, err := c.driver.SQLite.Open(c.source.native())
	if err != nil {
		return nil, err
	}
	if err = c.prepare(ctx, asker(conn)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func (c *connector) prepare(ctx context.Context, ask asks) error {
	mode := c.source.mode
	if mode == "" {
		var err error
		if mode, err = remembered(ctx, ask); err != nil {
			return err
		}
	}
	if _, err := ask(ctx, "PRAGMA journal_mode="+mode); err != nil {
		return err
	}
	// The hook of the connection may have changed it.
	if _, err := ask(ctx, "PRAGMA synchronous="+levels[c.source.level]); err != nil {
		return err
	}
	_, err := check(ctx, ask, c.source.mode, c.source.level)
	return err
}

// remembered is the mode that the database remembers, and onewrite if it remembers none of Modes.
func remembered(ctx context.Context, ask asks) (string, error) {
	if _, err := ask(ctx, "PRAGMA journal_mode"); err != nil { // it opens the file
		return "", err
	}
	found, err := statusOf(ctx, ask)
	if err != nil {
		return "", err
	}
	if found.Mode != nil {
		return *found.Mode, nil
	}
	return found.keptOutOf(), nil
}

func asker(conn driver.Conn) asks {
	return func(ctx context.Context, statement string) (driver.Value, error) {
		queryer, isOne := conn.(driver.QueryerContext)
		if !isOne {
			return nil, fmt.Errorf("%T runs no statements", conn)
		}
		rows, err := queryer.QueryContext(ctx, statement, nil)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		values := make([]driver.Value, len(rows.Columns()))
		if err = rows.Next(values); err == io.EOF || len(values) == 0 {
			return nil, nil
		}
		return values[0], err
	}
}
