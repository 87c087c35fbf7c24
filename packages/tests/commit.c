// Loads the extension, commits in mode onewrite at synchronous=FULL, and is killed; or reads back.
//
//   commit LIBRARY DATABASE write    ends by SIGKILL
//   commit LIBRARY DATABASE read     ends with 0 if each commit is there
//
// scripts/release compiles it with SQLite for each target. With -DLINKED it is linked with libonewrite.a,
// and LIBRARY is any word.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef LINKED
#include "onewrite.h"
#else
#include "sqlite3.h"
#endif

enum { ROWS = 50 };

static void expect(int is_true, sqlite3 *db, const char *what) {
    if (is_true) return;
    fprintf(stderr, "commit: %s: %s\n", what, db ? sqlite3_errmsg(db) : "no connection");
    exit(1);
}

// Whether the first value of the first row is the expected one.
static int answers(sqlite3 *db, const char *sql, const char *expected) {
    sqlite3_stmt *statement;
    expect(sqlite3_prepare_v2(db, sql, -1, &statement, 0) == SQLITE_OK, db, sql);
    expect(sqlite3_step(statement) == SQLITE_ROW, db, sql);
    const char *found = (const char *)sqlite3_column_text(statement, 0);
    int is_same = found && strcmp(found, expected) == 0;
    if (!is_same) fprintf(stderr, "commit: %s answers %s, not %s\n", sql, found ? found : "nothing", expected);
    sqlite3_finalize(statement);
    return is_same;
}

#ifdef LINKED
static void load(const char *unused) {
    (void)unused;
    expect(onewrite_register(0) == SQLITE_OK, 0, "onewrite_register");
}
#else
static void load(const char *library) {
    sqlite3 *db;
    char *why = 0;
    expect(sqlite3_open(":memory:", &db) == SQLITE_OK, db, "open");
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, (int *)0);
    if (sqlite3_load_extension(db, library, 0, &why) != SQLITE_OK) {
        fprintf(stderr, "commit: %s\n", why ? why : "the extension does not load");
        exit(1);
    }
    sqlite3_close(db);
}
#endif

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "commit LIBRARY DATABASE write|read\n");
        return 2;
    }
    sqlite3 *db;
    load(words[1]);
    int opened = sqlite3_open_v2(words[2], &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "onewrite");
    expect(opened == SQLITE_OK, db, words[2]);
    if (strcmp(words[3], "write") == 0) {
        if (!answers(db, "PRAGMA journal_mode=onewrite", "onewrite")) return 1;
        expect(sqlite3_exec(db, "PRAGMA synchronous=FULL; CREATE TABLE t(x)", 0, 0, 0) == SQLITE_OK, db, "create");
        for (int row = 0; row < ROWS; row++)
            expect(sqlite3_exec(db, "INSERT INTO t VALUES('a row')", 0, 0, 0) == SQLITE_OK, db, "insert");
        raise(SIGKILL);
    }
    int is_there = answers(db, "SELECT count(*) FROM t", "50") && answers(db, "PRAGMA journal_mode", "onewrite") &&
                   answers(db, "PRAGMA integrity_check", "ok");
    sqlite3_close(db);
    return !is_there;
}
