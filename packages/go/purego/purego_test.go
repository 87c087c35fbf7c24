package purego

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"onewrite"

	_ "modernc.org/sqlite"
)

func TestADriverInGoIsNamed(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// It answers, and is in another mode.
	var mode string
	if err = db.QueryRow("PRAGMA journal_mode=onewrite").Scan(&mode); err != nil || mode != "delete" {
		t.Fatal(mode, err)
	}
	_, err = onewrite.Check(context.Background(), db)
	for _, words := range []string{"does not use onewrite", "driver modernc.org/sqlite", "use the driver sqlite3-onewrite"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Fatalf("the error does not say %q: %v", words, err)
		}
	}
}
