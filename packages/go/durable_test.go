package onewrite

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func init() {
	children["write"] = writeForever
	children["read"] = readBack
	children["connect at once"] = connectAtOnce
}

// writeForever prints the number of each row that is committed.
func writeForever(arguments []string) error {
	db, err := sql.Open(DriverName, arguments[0])
	if err != nil {
		return err
	}
	if _, err = db.Exec("CREATE TABLE t(x)"); err != nil {
		return err
	}
	for row := 0; ; row++ {
		if _, err = db.Exec("INSERT INTO t VALUES(?)", row); err != nil {
			return err
		}
		fmt.Println(row)
	}
}

// readBack prints how many rows there are, and whether they are those that were written.
func readBack(arguments []string) error {
	db, err := sql.Open(DriverName, arguments[0])
	if err != nil {
		return err
	}
	defer db.Close()
	var rows int
	var areRight bool
	var integrity string
	row := db.QueryRow("SELECT count(*), max(x) = count(*) - 1 AND sum(x = rowid - 1) = count(*) FROM t")
	if err = row.Scan(&rows, &areRight); err != nil {
		return err
	}
	if err = db.QueryRow("PRAGMA integrity_check").Scan(&integrity); err != nil {
		return err
	}
	fmt.Println(rows, areRight, integrity)
	return nil
}

func TestAKillLosesNoCommitAndStockSQLiteIsRefused(t *testing.T) {
	name := path(t)
	writer := child(t, "write", nil, name)
	lines := start(t, writer)
	acknowledged := 0
	for ; acknowledged < 50; acknowledged++ {
		line, err := lines.ReadString('\n')
		must(t, err)
		equal(t, fmt.Sprint(acknowledged), strings.TrimSpace(line))
	}
	must(t, writer.Process.Signal(syscall.SIGKILL))
	for { // A last line may be cut short.
		if _, err := lines.ReadString('\n'); err != nil {
			break
		}
		acknowledged++
	}
	writer.Wait()
	equal(t, syscall.SIGKILL, writer.ProcessState.Sys().(syscall.WaitStatus).Signal())
	_, err := stock(t, name).Exec("SELECT count(*) FROM t")
	fails(t, err, "file is not a database")
	said := printed(t, child(t, "read", nil, name))
	var rows int
	var areRight, integrity string
	_, err = fmt.Sscan(said, &rows, &areRight, &integrity)
	must(t, err)
	equal(t, "true ok", areRight+" "+integrity)
	if rows < acknowledged {
		t.Fatalf("%d rows, and %d commits were acknowledged", rows, acknowledged)
	}
}

func connectAtOnce(arguments []string) error {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	db, err := sql.Open(DriverName, arguments[0]+"?_busy_timeout=30000&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	if err = commit(db, 0, 1); err != nil {
		return err
	}
	return checked(db)
}

func TestProcessesThatAllConnectFirst(t *testing.T) {
	name := path(t)
	processes := make(chan error, 6)
	var starts []func()
	for n := 0; n < cap(processes); n++ {
		process := child(t, "connect at once", nil, name)
		input, err := process.StdinPipe()
		must(t, err)
		lines := start(t, process)
		starts = append(starts, func() {
			fmt.Fprintln(input)
			said, _ := lines.ReadString(0)
			if err := process.Wait(); err != nil {
				processes <- fmt.Errorf("%w: %s", err, said)
				return
			}
			processes <- nil
		})
	}
	for _, start := range starts {
		go start()
	}
	for range starts {
		must(t, <-processes)
	}
	equal(t, "6", one(t, open(t, name), "SELECT count(*) FROM t"))
}
