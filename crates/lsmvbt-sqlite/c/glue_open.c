/*
** Opening and closing, and the choice of an engine for a database.
**
** A file with content belongs to the engine whose 16 bytes it begins with. An empty one belongs to
** the engine that the URI names (engine=...), or that PRAGMA journal_mode has chosen. Otherwise it
** belongs to the engine that the environment names (LSMVBT_SQLITE_DEFAULT), or to stock SQLite.
** Temporary and in-memory databases are always stock. A database opened with a shared cache, or by
** a VFS that shares no memory, is stock; to name an engine there is an error.
**
** A file that is opened with immutable=1 passes for a temporary one in the pager, but it is open.
*/

/* No pages are ever cached: this function only makes the pager recognizable. */
static void glueReinit(DbPage *pPage){
  UNUSED_PARAMETER( pPage );
  assert( 0 );
}

/* The first bytes of a file; missing ones are zeros. */
static int glueReadMagic(sqlite3_file *pFile, u8 *aMagic, i64 *pnFile){
  int rc;
  memset(aMagic, 0, 16);
  *pnFile = 0;
  if( pFile->pMethods==0 ) return SQLITE_OK;
  rc = sqlite3OsFileSize(pFile, pnFile);
  if( rc==SQLITE_OK && *pnFile>=16 ) rc = sqlite3OsRead(pFile, aMagic, 16, 0);
  /* It has become shorter since. */
  if( rc==SQLITE_IOERR_SHORT_READ ) rc = SQLITE_OK;
  return rc;
}

/* Whether the file has no content. It is empty, or begins with zeros because making a database was
** cut short. The latter has no engine until a connection names one. That engine then checks that it
** really began the file. */
static int glueNothingThere(const u8 *aMagic, i64 nFile){
  static const u8 aZero[16];
  return nFile==0 || memcmp(aMagic, aZero, 16)==0;
}

/* Whether the VFS has shared memory for a file. A VFS that keeps databases in memory
** (sqlite3_deserialize() uses it) has none. Nor has one of version 1. */
static int glueHasSharedMemory(sqlite3_file *pFile){
  return pFile->pMethods!=0 && pFile->pMethods->iVersion>=2 && pFile->pMethods->xShmMap!=0;
}

/* Whether the file is opened with immutable=1: nothing writes it meanwhile. */
static int glueIsImmutable(Pager *pPager){
  return pPager->tempFile && isOpen(pPager->fd);
}

#define GLUE_KEEPS_MEMORY \
  "vfs=unix-excl does not share memory with other processes, which this engine needs: use vfs=unix"

/* Whether the VFS keeps the shared memory in this process once it has locked the file. Stock SQLite then
** holds that lock against other processes. The other engine locks its shared memory alone, so nothing
** would keep them out. */
static int glueKeepsMemory(Pager *pPager){
  const char *zExcl = "unix-excl";
  char *zName = 0;
  int keeps, nName;
  /* A VFS over another one answers with both names, the lowest one last. */
  (void)sqlite3OsFileControl(sqlite3PagerFile(pPager), SQLITE_FCNTL_VFSNAME, &zName);
  nName = sqlite3Strlen30(zName ? zName : "") - sqlite3Strlen30(zExcl);
  keeps = nName>=0 && strcmp(&zName[nName], zExcl)==0;
  sqlite3_free(zName);
  return keeps && !glueIsImmutable(pPager);
}

/* The engine for an empty file; -1 for stock. */
static int glueEngineOfNew(Pager *pPager, int vfsFlags){
  const char *zEngine = 0;
  if( vfsFlags & SQLITE_OPEN_URI ) zEngine = sqlite3_uri_parameter(sqlite3PagerFilename(pPager, 0), "engine");
  if( zEngine ) return lsmvbt_engine_named(zEngine);
  if( (vfsFlags & SQLITE_OPEN_SHAREDCACHE)!=0 || !glueHasSharedMemory(sqlite3PagerFile(pPager)) ) return -1;
  if( glueKeepsMemory(pPager) ) return -1;
  return lsmvbt_engine_of_new();
}

/* Whether the VFS has no memory for the other engine. */
static int glueLacksMemory(Pager *pPager){
  return !glueHasSharedMemory(sqlite3PagerFile(pPager)) && !glueIsImmutable(pPager);
}

/* Writes the engine for the file that stock SQLite has opened; -1 for stock. If the file cannot be
** read, its engine is unknown. A wrong guess would be a connection that returns "not a database"
** for its whole life. */
static int glueChoose(Btree *p, int vfsFlags, int *piEngine){
  Pager *pPager = p->pBt->pPager;
  u8 aMagic[16];
  i64 nFile;
  int rc;
  *piEngine = -1;
  if( (vfsFlags & SQLITE_OPEN_MAIN_DB)==0 || pPager->memDb ) return SQLITE_OK;
  if( pPager->tempFile && !glueIsImmutable(pPager) ) return SQLITE_OK;
  rc = glueReadMagic(sqlite3PagerFile(pPager), aMagic, &nFile);
  if( rc!=SQLITE_OK ) return rc;
  *piEngine = glueNothingThere(aMagic, nFile) ? glueEngineOfNew(pPager, vfsFlags) : lsmvbt_engine_of_file(aMagic);
  return SQLITE_OK;
}

/* The value of a parameter of a main database's URI; 0 if it has none. */
static const char *glueUriParameter(Btree *p, int vfsFlags, const char *zName){
  if( (vfsFlags & SQLITE_OPEN_URI)==0 || (vfsFlags & SQLITE_OPEN_MAIN_DB)==0 ) return 0;
  return sqlite3_uri_parameter(sqlite3PagerFilename(p->pBt->pPager, 0), zName);
}

/* Whether a URI names an engine that does not exist, or that differs from the file's. */
static int glueRefused(Btree *p, int iEngine, int vfsFlags){
  const char *zEngine = glueUriParameter(p, vfsFlags, "engine");
  if( zEngine==0 || sqlite3StrICmp(zEngine, "stock")==0 ) return zEngine!=0 && iEngine>=0;
  return lsmvbt_engine_named(zEngine)!=iEngine || iEngine<0;
}

static int glueOpen(
  int iEngine, sqlite3_vfs *pVfs, const char *zFilename, sqlite3 *db, Btree **ppBtree, int flags, int vfsFlags
){
  GlueBtree *p = sqlite3MallocZero(sizeof(*p));
  u32 pageSize = 4096;
  int rc;
  *ppBtree = 0;
  if( p==0 ) return SQLITE_NOMEM_BKPT;
  p->base.db = db;
  p->base.pBt = &p->shared;
  p->iEngine = iEngine;
  rc = sqlite3PagerOpen(pVfs, &p->shared.pPager, zFilename, sizeof(MemPage), flags, vfsFlags, glueReinit);
  if( rc!=SQLITE_OK ){
    sqlite3_free(p);
    return rc;
  }
  sqlite3PagerSetBusyHandler(p->shared.pPager, btreeInvokeBusyHandler, &p->shared);
  rc = sqlite3PagerSetPagesize(p->shared.pPager, &pageSize, 0);
  p->shared.pPager->journalMode = PAGER_JOURNALMODE_OFF;
  p->shared.pageSize = p->shared.usableSize = 4096;
  p->shared.openFlags = (u8)(flags | BTREE_GLUE);
  p->shared.btsFlags = BTS_PAGESIZE_FIXED;
  p->shared.db = db;
#ifndef SQLITE_OMIT_SHARED_CACHE
  p->shared.nRef = 1;
#endif
  if( sqlite3PagerIsreadonly(p->shared.pPager) ) p->shared.btsFlags |= BTS_READ_ONLY;
  if( rc==SQLITE_OK ){
    rc = lsmvbt_open(iEngine, db, sqlite3PagerFile(p->shared.pPager), sqlite3PagerFilename(p->shared.pPager, 0),
                     sqlite3PagerIsreadonly(p->shared.pPager), glueIsImmutable(p->shared.pPager),
                     (db->mDbFlags & DBFLAG_Vacuum)!=0, &p->pEngine);
  }
  if( rc==SQLITE_OK ) rc = glueDiffRegister(db);
  if( rc!=SQLITE_OK ){
    if( p->pEngine ) lsmvbt_close(p->pEngine);
    sqlite3PagerClose(p->shared.pPager, db);
    sqlite3_free(p);
    return rc;
  }
  *ppBtree = &p->base;
  return SQLITE_OK;
}

/* A database that is opened with version=N in its URI is read as of that version, and never
** written. */
static int glueAsOf(Btree *p, const char *zFilename, int vfsFlags){
  const char *zVersion = 0;
  char *zAnswer = 0;
  int rc;
  if( vfsFlags & SQLITE_OPEN_URI ) zVersion = sqlite3_uri_parameter(zFilename, "version");
  if( zVersion==0 ) return SQLITE_OK;
  p->pBt->btsFlags |= BTS_READ_ONLY;
  rc = gluePragmaWaits(p, "lsmvbt_version", zVersion, &zAnswer);
  if( rc==SQLITE_ERROR || rc==SQLITE_NOTFOUND ){
    rc = glueCannotOpen(p->db, "%s: version=%s: %s", zFilename, zVersion, zAnswer ? zAnswer : "no such thing here");
  }
  sqlite3_free(zAnswer);
  return rc;
}

/* The engine releases the file before the pager closes it. */
static int glueClose(Btree *p){
  GlueBtree *pGlue = GLUE(p);
  BtShared *pBt = p->pBt;
  assert( pBt->pCursor==0 );
  glueRollback(p, SQLITE_OK, 0);
  lsmvbt_close(pGlue->pEngine);
  sqlite3PagerClose(pBt->pPager, p->db);
  if( pBt->xFreeSchema && pBt->pSchema ) pBt->xFreeSchema(pBt->pSchema);
  sqlite3DbFree(0, pBt->pSchema);
  sqlite3_free(pGlue->aPreformat);
  sqlite3_free(pGlue);
  return SQLITE_OK;
}

SQLITE_PRIVATE int sqlite3BtreeOpen(
  sqlite3_vfs *pVfs, const char *zFilename, sqlite3 *db, Btree **ppBtree, int flags, int vfsFlags
){
  int iEngine;
  int rc;
  glueForget(db);
  /* A version is one of a file that is there. */
  if( (vfsFlags & SQLITE_OPEN_URI)!=0 && (vfsFlags & SQLITE_OPEN_MAIN_DB)!=0
   && sqlite3_uri_parameter(zFilename, "version")!=0 ){
    vfsFlags &= ~SQLITE_OPEN_CREATE;
  }
  rc = stock_sqlite3BtreeOpen(pVfs, zFilename, db, ppBtree, flags, vfsFlags);
  if( rc!=SQLITE_OK || (flags & BTREE_SINGLE)!=0 ) return rc;
  rc = glueChoose(*ppBtree, vfsFlags, &iEngine);
  if( rc!=SQLITE_OK ){
    /* As below: stock SQLite releases the file. */
  }else if( glueRefused(*ppBtree, iEngine, vfsFlags) ){
    const char *zEngine = sqlite3_uri_parameter(zFilename, "engine");
    int isKnown = sqlite3StrICmp(zEngine, "stock")==0 || lsmvbt_engine_named(zEngine)>=0;
    rc = glueCannotOpen(db, isKnown ? "%s: engine=%s is not this file's engine: leave engine= out"
                                    : "%s: engine=%s is not known: there are lsmvbt and stock", zFilename, zEngine);
  }else if( iEngine<0 && glueUriParameter(*ppBtree, vfsFlags, "version") ){
    rc = glueCannotOpen(db, "%s: version= names a version of a database of lsmvbt, and this file is none", zFilename);
  }else if( iEngine<0 ){
    /* So lsmvbt_diff says what the database is not, and SQLite does not say that there is no such table. */
    if( vfsFlags & SQLITE_OPEN_MAIN_DB ) rc = glueDiffRegister(db);
    if( rc==SQLITE_OK ) return rc;
  }else if( vfsFlags & SQLITE_OPEN_SHAREDCACHE ){
    rc = glueCannotOpen(db, "%s: a database of engine %s cannot be opened with a shared cache: use cache=private",
                        zFilename, lsmvbt_engine_name(iEngine));
  }else if( glueLacksMemory((*ppBtree)->pBt->pPager) ){
    rc = glueCannotOpen(db, "%s: vfs=%s has no shared memory, which this engine needs: use vfs=unix", zFilename,
                        pVfs->zName);
  }else if( glueKeepsMemory((*ppBtree)->pBt->pPager) ){
    rc = glueCannotOpen(db, "%s: " GLUE_KEEPS_MEMORY, zFilename);
  }
  (void)stock_sqlite3BtreeClose(*ppBtree);
  *ppBtree = 0;
  if( rc==SQLITE_OK ) rc = glueOpen(iEngine, pVfs, zFilename, db, ppBtree, flags, vfsFlags);
  if( rc==SQLITE_OK ){
    rc = glueAsOf(*ppBtree, zFilename, vfsFlags);
    if( rc!=SQLITE_OK ){
      glueClose(*ppBtree);
      *ppBtree = 0;
    }
  }
  return rc;
}

/* Cursors live in memory that SQLite allocates: room for either kind. */
SQLITE_PRIVATE int sqlite3BtreeCursorSize(void){
  int nStock = stock_sqlite3BtreeCursorSize();
  int nGlue = (int)ROUND8(sizeof(GlueCursor));
  return nStock>nGlue ? nStock : nGlue;
}
