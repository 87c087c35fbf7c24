package onewrite

import (
	"fmt"
	"strings"
)

// parameterNames are those that github.com/mattn/go-sqlite3 documents. It drops all others silently.
var parameterNames = strings.Fields(`
	_auth _auth_user _auth_pass _auth_crypt _auth_salt _loc _mutex _txlock _auto_vacuum _vacuum _busy_timeout
	_timeout _case_sensitive_like _cslike _defer_foreign_keys _defer_fk _foreign_keys _fk
	_ignore_check_constraints _journal_mode _journal _locking_mode _locking _query_only _recursive_triggers
	_rt _secure_delete _synchronous _sync _writable_schema _cache_size`)

// checkName refuses a name that is close to a parameter. Other unknown names may be those of a later driver.
func checkName(name string) error {
	switch name {
	case "_mode":
		return unknownName(name, "_journal_mode")
	case "_pragma":
		return fmt.Errorf("unknown parameter %q, which is one of another driver: name each pragma as a parameter of its "+
			"own, as in _foreign_keys=1", name)
	}
	meant := ""
	for _, known := range parameterNames {
		if known == name {
			return nil
		}
		if isClose(name, known) {
			meant = known
		}
	}
	if meant != "" {
		return unknownName(name, meant)
	}
	return nil
}

func unknownName(name, meant string) error {
	return fmt.Errorf("unknown parameter %q: it is %s", name, meant)
}

// isClose also takes names without the underscore at their start, but no typos in them: they may be those of
// SQLite.
func isClose(name, known string) bool {
	const lettersPerTypo, mostTypos = 4, 2
	left, right := plainName(name), plainName(known)
	if left == right || !strings.HasPrefix(name, "_") {
		return left == right
	}
	most := len(right) / lettersPerTypo
	if most > mostTypos {
		most = mostTypos
	}
	return distance(left, right) <= most
}

func plainName(name string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
}

// distance is how many letters are to be inserted, deleted or replaced.
func distance(left, right string) int {
	row := make([]int, len(right)+1)
	for column := range row {
		row[column] = column
	}
	for at := range []byte(left) {
		diagonal := row[0]
		row[0] = at + 1
		for column := 1; column < len(row); column++ {
			best := diagonal
			if left[at] != right[column-1] {
				best++
			}
			diagonal = row[column]
			for _, longer := range []int{row[column], row[column-1]} {
				if longer+1 < best {
					best = longer + 1
				}
			}
			row[column] = best
		}
	}
	return row[len(right)]
}
