/*
** onewrite for C and C++: durable SQLite commits in one device write.
**
**     #include "onewrite.h"
**
**     onewrite_register(0);
**     sqlite3_open_v2("app.db", &db, SQLITE_OPEN_READWRITE|SQLITE_OPEN_CREATE, "onewrite");
**     sqlite3_exec(db, "PRAGMA journal_mode=waldio", 0, 0, 0);
**
** The library contains no SQLite, and looks for none. It gets the functions of the SQLite that your
** program is linked with, 3.40 or later, from onewrite_register(). They are taken where this header
** is included. So SQLite may be a shared library, a static one, or sqlite3.c in your program.
**
** Build the library with "cargo build --release -p onewrite" and link, on Linux:
**
**     cc app.c -I crates/onewrite/include target/release/libonewrite.a -lsqlite3 -lgcc_s -lutil \
**        -lrt -lpthread -lm -ldl -lc
**
** Instead of -lsqlite3 you may add sqlite3.c to the sources. To print the system libraries of your
** toolchain, run "cargo rustc --release -p onewrite --crate-type staticlib -- --print
** native-static-libs". With -Wl,--gc-sections the program contains only what it uses.
**
** A program may instead load the extension libonewrite.so at run time, with
** sqlite3_load_extension(). It needs none of this.
*/
#ifndef ONEWRITE_H
#define ONEWRITE_H

#include <stddef.h>
#include <sqlite3.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
** The functions of SQLite that the library calls; each member is the function sqlite3_<member>. Order
** and number are part of the interface: onewrite_register_with() takes the size and refuses another.
** It also refuses a structure with a null member.
*/
typedef struct onewrite_api {
  void (*log)(int, const char *, ...);
  int (*exec)(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **);
  void (*free)(void *);
  int (*get_autocommit)(sqlite3 *);
  void *(*malloc64)(sqlite3_uint64);
  const char *(*errmsg)(sqlite3 *);
  int (*busy_timeout)(sqlite3 *, int);
  int (*open_v2)(const char *, sqlite3 **, int, const char *);
  int (*close_v2)(sqlite3 *);
  int (*file_control)(sqlite3 *, const char *, int, void *);
  const char *(*db_name)(sqlite3 *, int);
  sqlite3_stmt *(*next_stmt)(sqlite3 *, sqlite3_stmt *);
  const char *(*sql)(sqlite3_stmt *);
  int (*stmt_busy)(sqlite3_stmt *);
  int (*data_count)(sqlite3_stmt *);
  int (*stmt_readonly)(sqlite3_stmt *);
  int (*txn_state)(sqlite3 *, const char *);
  const char *(*uri_parameter)(sqlite3_filename, const char *);
  const char *(*uri_key)(sqlite3_filename, int);
  const char *(*filename_wal)(sqlite3_filename);
  sqlite3_vfs *(*vfs_find)(const char *);
  int (*vfs_register)(sqlite3_vfs *, int);
  sqlite3_mutex *(*db_mutex)(sqlite3 *);
  int (*auto_extension)(void (*)(void));
} onewrite_api;

/*
** Registers the VFS "onewrite" with the SQLite of these functions. Call onewrite_register() instead.
*/
int onewrite_register_with(const onewrite_api *api, size_t size, int sqlite_version,
                           int make_default);

/*
** Why the last onewrite_register() of this process failed: an English sentence, which stays valid.
** Empty if it did not fail, or if sqlite3_initialize() failed.
*/
const char *onewrite_register_message(void);

/*
** Registers the VFS "onewrite". If make_default is not 0, it becomes the VFS of every database that is
** opened without naming one. May be called again, and for each SQLite of the process. Returns
** SQLITE_OK; SQLITE_ERROR if this SQLite is older than 3.40 or has no default VFS; or the code of
** sqlite3_vfs_register(). onewrite_register_message() explains it.
*/
static inline int onewrite_register(int make_default) {
  onewrite_api api;
  /* Some builds of SQLite must be initialized before they return their VFS. */
  int rc = sqlite3_initialize();
  if (rc != SQLITE_OK) return rc;
  api.log = sqlite3_log;
  api.exec = sqlite3_exec;
  api.free = sqlite3_free;
  api.get_autocommit = sqlite3_get_autocommit;
  api.malloc64 = sqlite3_malloc64;
  api.errmsg = sqlite3_errmsg;
  api.busy_timeout = sqlite3_busy_timeout;
  api.open_v2 = sqlite3_open_v2;
  api.close_v2 = sqlite3_close_v2;
  api.file_control = sqlite3_file_control;
  api.db_name = sqlite3_db_name;
  api.next_stmt = sqlite3_next_stmt;
  api.sql = sqlite3_sql;
  api.stmt_busy = sqlite3_stmt_busy;
  api.data_count = sqlite3_data_count;
  api.stmt_readonly = sqlite3_stmt_readonly;
  api.txn_state = sqlite3_txn_state;
  api.uri_parameter = sqlite3_uri_parameter;
  api.uri_key = sqlite3_uri_key;
  api.filename_wal = sqlite3_filename_wal;
  api.vfs_find = sqlite3_vfs_find;
  api.vfs_register = sqlite3_vfs_register;
  api.db_mutex = sqlite3_db_mutex;
  api.auto_extension = sqlite3_auto_extension;
  return onewrite_register_with(&api, sizeof api, sqlite3_libversion_number(), make_default);
}

#ifdef __cplusplus
}
#endif

#endif /* ONEWRITE_H */
