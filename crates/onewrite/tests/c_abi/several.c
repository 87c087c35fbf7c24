/*
** Several SQLite libraries in one process, each with the VFS, and one that is unloaded and loaded
** again. Arguments: a directory, and three copies of one SQLite as a shared library.
*/
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "onewrite.h"

typedef struct {
  void *library;
  onewrite_api api;
} Sqlite;

static int failed_at(int line) {
  printf("line %d: %s\n", line, onewrite_register_message());
  return 1;
}
#define CHECK(condition) do { if (!(condition)) return failed_at(__LINE__); } while (0)

static int load(Sqlite *sqlite, const char *path) {
  int (*initialize)(void), (*version)(void);
  sqlite->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (sqlite->library == NULL) { printf("%s\n", dlerror()); return 1; }
#define FIND(member) *(void **)&sqlite->api.member = dlsym(sqlite->library, "sqlite3_" #member)
  FIND(log); FIND(exec); FIND(free); FIND(get_autocommit); FIND(malloc64); FIND(errmsg); FIND(busy_timeout);
  FIND(open_v2); FIND(close_v2); FIND(file_control); FIND(db_name); FIND(next_stmt); FIND(sql); FIND(stmt_busy); FIND(data_count);
  FIND(stmt_readonly); FIND(txn_state); FIND(uri_parameter); FIND(uri_key); FIND(filename_wal); FIND(vfs_find); FIND(vfs_register);
  FIND(db_mutex); FIND(auto_extension);
  *(void **)&initialize = dlsym(sqlite->library, "sqlite3_initialize");
  *(void **)&version = dlsym(sqlite->library, "sqlite3_libversion_number");
  CHECK(initialize() == SQLITE_OK);
  CHECK(onewrite_register_with(&sqlite->api, sizeof sqlite->api, version(), 0) == SQLITE_OK);
  CHECK(onewrite_register_message()[0] == 0);
  CHECK(sqlite->api.vfs_find("onewrite") != NULL);
  return 0;
}

static int open_database(Sqlite *sqlite, const char *path, sqlite3 **db) {
  return sqlite->api.open_v2(path, db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, "onewrite");
}

static int run(Sqlite *sqlite, sqlite3 *db, const char *sql) {
  if (sqlite->api.exec(db, sql, NULL, NULL, NULL) == SQLITE_OK) return 1;
  printf("%s: %s\n", sql, sqlite->api.errmsg(db));
  return 0;
}

/* Makes or continues a database, and leaves it open. */
static int use(Sqlite *sqlite, const char *path, sqlite3 **db) {
  CHECK(open_database(sqlite, path, db) == SQLITE_OK);
  CHECK(run(sqlite, *db, "PRAGMA journal_mode=onewrite"));
  CHECK(run(sqlite, *db, "CREATE TABLE IF NOT EXISTS t(a); INSERT INTO t VALUES(1),(2),(3)"));
  CHECK(run(sqlite, *db, "PRAGMA wal_checkpoint; SELECT sum(a) FROM t; PRAGMA onewrite_status"));
  return 0;
}

/* A table that lacks any one function is refused before the library calls any. */
static int refuses_null_members(const Sqlite *sqlite) {
  size_t at;
  for (at = 0; at < sizeof sqlite->api; at += sizeof sqlite->api.log) {
    onewrite_api api = sqlite->api;
    memset((char *)&api + at, 0, sizeof api.log);
    CHECK(onewrite_register_with(&api, sizeof api, SQLITE_VERSION_NUMBER, 0) == SQLITE_ERROR);
    CHECK(strstr(onewrite_register_message(), "functions") != NULL);
  }
  CHECK(onewrite_register_with(NULL, sizeof sqlite->api, SQLITE_VERSION_NUMBER, 0) == SQLITE_ERROR);
  return 0;
}

int main(int argc, char **argv) {
  Sqlite first, second, third;
  sqlite3 *one, *two, *other;
  char a[400], b[400];
  if (argc != 5) return 2;
  snprintf(a, sizeof a, "%s/a.db", argv[1]);
  snprintf(b, sizeof b, "%s/b.db", argv[1]);
  memset(&first, 0, sizeof first); memset(&second, 0, sizeof second); memset(&third, 0, sizeof third);
  if (load(&first, argv[2]) || load(&second, argv[3])) return 1;
  CHECK(first.api.open_v2 != second.api.open_v2);
  CHECK(first.api.vfs_find("onewrite") != second.api.vfs_find("onewrite"));
  if (use(&first, a, &one) || use(&second, b, &two)) return 1;
  /* Two libraries on one file would drop each other's locks. */
  CHECK(open_database(&second, a, &other) == SQLITE_CANTOPEN);
  CHECK(second.api.close_v2(other) == SQLITE_OK);
  CHECK(open_database(&first, a, &other) == SQLITE_OK);
  CHECK(first.api.close_v2(other) == SQLITE_OK);
  CHECK(run(&first, one, "INSERT INTO t VALUES(4)"));
  CHECK(second.api.close_v2(two) == SQLITE_OK);
  /* Loads the same library again, and another one, which may get the unloaded one's address. */
  CHECK(dlclose(second.library) == 0);
  CHECK(run(&first, one, "INSERT INTO t VALUES(5)"));
  if (load(&third, argv[4]) || use(&third, b, &two)) return 1;
  if (load(&second, argv[3])) return 1;
  CHECK(open_database(&second, b, &other) == SQLITE_CANTOPEN);
  CHECK(second.api.close_v2(other) == SQLITE_OK);
  CHECK(third.api.close_v2(two) == SQLITE_OK);
  if (use(&second, b, &two)) return 1;
  CHECK(second.api.close_v2(two) == SQLITE_OK);
  CHECK(first.api.close_v2(one) == SQLITE_OK);
  /* Another library may open a database that the first has closed. */
  if (use(&third, a, &one)) return 1;
  CHECK(third.api.close_v2(one) == SQLITE_OK);
  /* The message is that of the last failed registration. */
  CHECK(onewrite_register_with(&first.api, 1, SQLITE_VERSION_NUMBER, 0) == SQLITE_ERROR);
  CHECK(strstr(onewrite_register_message(), "onewrite.h") != NULL);
  CHECK(onewrite_register_with(&first.api, sizeof first.api, 3039004, 0) == SQLITE_ERROR);
  CHECK(strstr(onewrite_register_message(), "3.39.4") != NULL);
  if (refuses_null_members(&first)) return 1;
  puts("done");
  return 0;
}
