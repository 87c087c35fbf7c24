/* A writer starts the log again after a checkpoint has read the wal-index and before it copies.
 *
 *   wal_reset EXTENSION DATABASE MODE      one of our modes, or SQLite's, through our VFS
 *   wal_reset - DATABASE wal               SQLite alone
 *
 * At that very moment SQLite calls xUnfetch to make the VFS forget mapped pages. A VFS below ours
 * lets the writer continue there. Prints "done", or the loss.
 */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static sqlite3_vfs below, paused;
static sqlite3_io_methods methods;
static int (*unfetch_below)(sqlite3_file *, sqlite3_int64, void *);
static sqlite3 *writer;
static int waits, restarted_in;

static int run(sqlite3 *db, const char *sql) {
  sqlite3_stmt *statement;
  int answer = -1;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK) {
    printf("%s: %s\n", sql, sqlite3_errmsg(db));
    return -1;
  }
  while (sqlite3_step(statement) == SQLITE_ROW) {
    answer = sqlite3_column_int(statement, sqlite3_column_count(statement) > 1 ? 1 : 0);
  }
  if (sqlite3_finalize(statement) != SQLITE_OK) printf("%s: %s\n", sql, sqlite3_errmsg(db));
  return answer;
}

static int unfetch(sqlite3_file *file, sqlite3_int64 offset, void *page) {
  if (waits && page == NULL) {
    waits = 0;
    restarted_in = 1;
    run(writer, "INSERT INTO t VALUES(2, NULL)");
  }
  return unfetch_below(file, offset, page);
}

static int open_paused(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out) {
  int code = below.xOpen(&below, name, file, flags, out);
  (void)vfs;
  if (code == SQLITE_OK && (flags & SQLITE_OPEN_MAIN_DB) && file->pMethods->iVersion >= 3) {
    methods = *file->pMethods;
    unfetch_below = methods.xUnfetch;
    methods.xUnfetch = unfetch;
    file->pMethods = &methods;
  }
  return code;
}

static sqlite3 *connect(const char *database, const char *vfs, const char *mode) {
  char sql[100];
  sqlite3 *db;
  if (sqlite3_open_v2(database, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs)) return NULL;
  snprintf(sql, sizeof sql, "PRAGMA journal_mode=%s", mode);
  run(db, sql);
  run(db, "PRAGMA wal_autocheckpoint=0");
  run(db, "PRAGMA synchronous=FULL");
  return db;
}

/* Frames in the log. */
static int frames(sqlite3 *db) { return run(db, "PRAGMA wal_checkpoint(PASSIVE)"); }

int main(int argc, char **argv) {
  const char *vfs = "paused";
  sqlite3 *checkpointer, *reader, *loader;
  int seen, n;
  if (argc != 4) return 2;
  below = *sqlite3_vfs_find(NULL);
  paused = below;
  paused.zName = vfs;
  paused.pNext = NULL;
  paused.xOpen = open_paused;
  sqlite3_vfs_register(&paused, 1);
  if (strcmp(argv[1], "-") != 0) {
    char *error = NULL;
    vfs = "onewrite";
    if (sqlite3_open(":memory:", &loader)) return 3;
    sqlite3_db_config(loader, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
    if (sqlite3_load_extension(loader, argv[1], NULL, &error)) {
      printf("%s\n", error);
      return 4;
    }
  }
  writer = connect(argv[2], vfs, argv[3]);
  checkpointer = connect(argv[2], vfs, argv[3]);
  run(writer, "CREATE TABLE t(n, b)");
  run(checkpointer, "SELECT count(*) FROM t");
  run(writer, "INSERT INTO t WITH r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 100) SELECT 1, zeroblob(2000) FROM r");
  frames(writer);
  waits = 1;
  frames(checkpointer);
  if (!restarted_in) {
    puts("the checkpoint was not met");
    return 5;
  }
  reader = connect(argv[2], vfs, argv[3]);
  for (n = 102; n < 110; n++) {
    seen = run(reader, "SELECT count(*) FROM t");
    if (seen != n - 1) {
      printf("%d rows of %d\n", seen, n - 1);
      return 1;
    }
    run(writer, "INSERT INTO t VALUES(3, NULL)");
  }
  /* Nothing keeps the log from starting again afterwards. */
  frames(writer);
  run(writer, "INSERT INTO t VALUES(4, NULL)");
  seen = frames(writer);
  if (seen < 1 || seen > 10) {
    printf("%d frames in a log that was to start again\n", seen);
    return 1;
  }
  sqlite3_close(reader);
  sqlite3_close(checkpointer);
  sqlite3_close(writer);
  writer = connect(argv[2], vfs, argv[3]);
  seen = run(writer, "SELECT count(*) FROM t");
  if (seen != 110) printf("%d rows of 110 in the end\n", seen);
  sqlite3_close(writer);
  if (seen == 110) puts("done");
  return seen != 110;
}
