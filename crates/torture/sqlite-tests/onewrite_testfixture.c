/*
** Makes onewrite the default VFS of SQLite's test program "testfixture", unless ONEWRITE_OFF is
** set. The script scripts/sqlite-tests includes it in the build and names it in
** SQLITE_EXTRA_INIT. SQLite calls it at the end of every sqlite3_initialize(). That includes the
** one after sqlite3_shutdown(), which makes "unix" the default again.
**
** The SQLITE_TEST VFSes that wrap the default one (devsym, journaltest, the crash VFS, ...) look
** for it when a test registers them. So they lie over ours.
*/
#include <stdlib.h>
#include "onewrite.h"

int onewrite_testfixture_init(const char *unused) {
  (void)unused;
  if (getenv("ONEWRITE_OFF") != NULL) return SQLITE_OK;
  return onewrite_register(1);
}
