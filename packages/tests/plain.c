// A program that knows nothing of onewrite: it commits, and ends without closing its database.
//
//   plain DATABASE
//
// scripts/release runs it under `onewrite run`.
#include <stdio.h>
#include <stdlib.h>
#include "sqlite3.h"

int main(int count, char **words) {
    sqlite3 *db;
    if (count != 2 || sqlite3_open(words[1], &db) != SQLITE_OK) return 2;
    const char *sql = "CREATE TABLE t(x); INSERT INTO t VALUES('a row')";
    if (sqlite3_exec(db, sql, 0, 0, 0) != SQLITE_OK) {
        fprintf(stderr, "plain: %s\n", sqlite3_errmsg(db));
        return 1;
    }
    _Exit(0);
}
