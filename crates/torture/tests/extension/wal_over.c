/* A VFS over ours that keeps written bytes until xSync. It answers by itself when SQLite reads the
 * checksum from which it continues. So the log cannot give the right one, and our VFS corrects the
 * wal-index behind SQLite's back.
 *
 *   wal_over EXTENSION DATABASE MODE write   commits after ROLLBACK TO, prints the last commit and
 *                                            the number of recoveries, and kills itself
 *   wal_over EXTENSION DATABASE MODE read    prints the last commit that exists, and the result of
 *                                            the check
 */
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHADOW_BYTES (16 << 20)

static sqlite3_vfs ours, over;
static sqlite3_io_methods log_methods;
static const sqlite3_io_methods *log_below;
static unsigned char shadow[SHADOW_BYTES];
/* Whether eight bytes were written since the last xSync. */
static unsigned char is_new[SHADOW_BYTES / 8];
static int recoveries;

static void count(void *unused, int code, const char *message) {
  (void)unused;
  (void)message;
  recoveries += code == SQLITE_NOTICE_RECOVER_WAL;
}

static int write_log(sqlite3_file *file, const void *bytes, int size, sqlite3_int64 at) {
  if (at + size <= SHADOW_BYTES) {
    memcpy(shadow + at, bytes, size);
    memset(is_new + at / 8, 1, size / 8);
  }
  return log_below->xWrite(file, bytes, size, at);
}

static int read_log(sqlite3_file *file, void *out, int size, sqlite3_int64 at) {
  if (size != 8 || at + size > SHADOW_BYTES || !is_new[at / 8]) return log_below->xRead(file, out, size, at);
  memcpy(out, shadow + at, size);
  return SQLITE_OK;
}

static int sync_log(sqlite3_file *file, int flags) {
  memset(is_new, 0, sizeof is_new);
  return log_below->xSync(file, flags);
}

static int open_over(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out) {
  int code = ours.xOpen(&ours, name, file, flags, out);
  (void)vfs;
  if (code == SQLITE_OK && (flags & SQLITE_OPEN_WAL)) {
    log_below = file->pMethods;
    log_methods = *log_below;
    log_methods.xRead = read_log;
    log_methods.xWrite = write_log;
    log_methods.xSync = sync_log;
    file->pMethods = &log_methods;
  }
  return code;
}

static char answer[64];

static int keep(void *unused, int columns, char **values, char **names) {
  (void)unused;
  (void)names;
  snprintf(answer, sizeof answer, "%s", columns > 0 && values[0] ? values[0] : "NULL");
  return 0;
}

static const char *run(sqlite3 *db, const char *sql) {
  char *error = NULL;
  answer[0] = 0;
  if (sqlite3_exec(db, sql, keep, NULL, &error) != SQLITE_OK) {
    printf("%s: %s\n", sql, error);
    exit(1);
  }
  return answer;
}

static sqlite3 *connect(const char *database, const char *vfs, const char *mode) {
  char sql[100];
  sqlite3 *db;
  if (sqlite3_open_v2(database, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs)) exit(3);
  snprintf(sql, sizeof sql, "PRAGMA journal_mode=%s", mode);
  run(db, sql);
  run(db, "PRAGMA synchronous=FULL; PRAGMA cache_size=5; PRAGMA wal_autocheckpoint=0");
  return db;
}

static void commit(sqlite3 *db, int n) {
  char sql[400];
  run(db, "BEGIN IMMEDIATE; SAVEPOINT s; UPDATE t SET b = randomblob(900)");
  run(db, "UPDATE t SET b = randomblob(900) WHERE id > 60; ROLLBACK TO s");
  snprintf(sql, sizeof sql, "UPDATE t SET b = randomblob(900) WHERE id < %d; INSERT INTO u VALUES(%d); COMMIT",
           n % 3 * 100, n);
  run(db, sql);
}

int main(int argc, char **argv) {
  sqlite3 *loader, *writer, *other;
  char *error = NULL;
  int n;
  if (argc != 5) return 2;
  sqlite3_config(SQLITE_CONFIG_LOG, count, NULL);
  if (sqlite3_open(":memory:", &loader)) return 3;
  sqlite3_db_config(loader, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
  if (sqlite3_load_extension(loader, argv[1], NULL, &error)) {
    printf("%s\n", error);
    return 4;
  }
  ours = *sqlite3_vfs_find("onewrite");
  over = ours;
  over.zName = "over";
  over.pNext = NULL;
  over.xOpen = open_over;
  sqlite3_vfs_register(&over, 0);
  other = connect(argv[2], "onewrite", argv[3]);
  if (strcmp(argv[4], "read") == 0) {
    printf("%s", run(other, "SELECT max(n) FROM u"));
    printf(" %s\n", run(other, "PRAGMA integrity_check"));
    sqlite3_close(other);
    return 0;
  }
  writer = connect(argv[2], "over", argv[3]);
  run(writer, "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB); CREATE TABLE u(n)");
  run(writer, "INSERT INTO t WITH r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 300) SELECT i, randomblob(900) FROM r");
  for (n = 1; n <= 8; n++) {
    commit(writer, n);
    if (atoi(run(other, "SELECT max(n) FROM u")) != n) return 5;
  }
  printf("%d %d\n", n - 1, recoveries);
  fflush(stdout);
  raise(SIGKILL);
  return 0;
}
