/*
** Public functions, included at the end of the amalgamation. Those that copy SQLite's pages refuse
** the other engine's databases. PRAGMA journal_mode chooses the engine.
*/

/*
** SQLITE_EXTRA_INIT: sqlite3_initialize() calls it at its end. A library that has more to register
** (crates/libsqlite3) defines the second function.
*/
__attribute__((weak)) int onewrite_sqlite3_init(const char*);

int lsmvbtExtraInit(const char *z){
  return onewrite_sqlite3_init ? onewrite_sqlite3_init(z) : SQLITE_OK;
}

/* Whether a database of this name is of the other engine. Stock SQLite knows none without a name. */
static int glueIsOurs(sqlite3 *db, const char *zDb){
  return zDb!=0 && glueOwns(sqlite3DbNameToBtree(db, zDb));
}

SQLITE_API const char *sqlite3_errmsg(sqlite3 *db){
  if( db ) glueTell(db);
  return stock_sqlite3_errmsg(db);
}

#ifndef SQLITE_OMIT_UTF16
SQLITE_API const void *sqlite3_errmsg16(sqlite3 *db){
  if( db ) glueTell(db);
  return stock_sqlite3_errmsg16(db);
}
#endif

/* Only stock SQLite's VACUUM in place would come here. */
SQLITE_PRIVATE int sqlite3BtreeCopyFile(Btree *pTo, Btree *pFrom){
  if( glueOwns(pTo) || glueOwns(pFrom) ) return SQLITE_ERROR;
  return stock_sqlite3BtreeCopyFile(pTo, pFrom);
}

/* VACUUM in place. It is refused where stock SQLite refuses it, in the same words. */
static int glueVacuum(char **pzErrMsg, sqlite3 *db, Btree *p){
  char *zReason = 0;
  int rc;
  if( db->autoCommit==0 ){
    sqlite3SetString(pzErrMsg, db, "cannot VACUUM from within a transaction");
    return SQLITE_ERROR;
  }
  if( db->nVdbeActive>1 || p->inTrans!=TRANS_NONE ){
    sqlite3SetString(pzErrMsg, db, "cannot VACUUM - SQL statements in progress");
    return SQLITE_ERROR;
  }
  if( (p->pBt->btsFlags & BTS_READ_ONLY)!=0 || (db->flags & SQLITE_QueryOnly)!=0 ) return SQLITE_READONLY;
  if( db->flags & SQLITE_ResetDatabase ){
    sqlite3SetString(pzErrMsg, db, "SQLITE_DBCONFIG_RESET_DATABASE does not empty a database of this engine: DROP its "
                     "tables, or remove the file while no connection is open");
    return SQLITE_ERROR;
  }
  rc = glueVacuumSteps(p, 0, &zReason);
  if( zReason ){
    sqlite3SetString(pzErrMsg, db, zReason);
    sqlite3_free(zReason);
    return rc;
  }
  return (rc&0xFF)==SQLITE_BUSY ? glueBusy(p, rc) : rc;
}

SQLITE_PRIVATE int sqlite3RunVacuum(char **pzErrMsg, sqlite3 *db, int iDb, sqlite3_value *pOut){
  if( pOut==0 && glueOwns(db->aDb[iDb].pBt) ) return glueVacuum(pzErrMsg, db, db->aDb[iDb].pBt);
  return stock_sqlite3RunVacuum(pzErrMsg, db, iDb, pOut);
}

#ifndef SQLITE_OMIT_DESERIALIZE
/* Runs SQL for a function that, as SQLite has it, runs none: no authorizer is asked, and no trace shows
** it. File names are URIs. */
static int glueExecUnseen(sqlite3 *db, const char *zSql){
  const unsigned int openFlags = db->openFlags;
  const u8 mTrace = db->mTrace;
#ifndef SQLITE_OMIT_AUTHORIZATION
  const sqlite3_xauth xAuth = db->xAuth;
  db->xAuth = 0;
#endif
  int rc;
  db->openFlags |= SQLITE_OPEN_URI;
  db->mTrace = 0;
  rc = sqlite3_exec(db, zSql, 0, 0, 0);
  db->mTrace = mTrace;
  db->openFlags = openFlags;
#ifndef SQLITE_OMIT_AUTHORIZATION
  db->xAuth = xAuth;
#endif
  return rc;
}

/* Opens a stock copy of a database of the other engine, in memory: VACUUM INTO writes it. If it fails,
** db has the error. Threads may share the copy, as they share a backup. */
static int glueCopyInMemory(sqlite3 *db, const char *zSchema, sqlite3 **ppCopy){
  static const int flags =
      SQLITE_OPEN_READWRITE|SQLITE_OPEN_CREATE|SQLITE_OPEN_URI|SQLITE_OPEN_FULLMUTEX;
  sqlite3_uint64 iName;
  char *zName, *zSql;
  int rc = SQLITE_NOMEM;
  *ppCopy = 0;
  /* Nobody else in the process has a file of this name. */
  sqlite3_randomness(sizeof(iName), &iName);
  zName = sqlite3_mprintf("file:/lsmvbt-serialize-%llx?vfs=memdb&engine=stock", iName);
  zSql = sqlite3_mprintf("VACUUM \"%w\" INTO %Q", zSchema, zName);
  if( zName && zSql ) rc = sqlite3_open_v2(zName, ppCopy, flags, 0);
  if( rc==SQLITE_OK ){
    rc = glueExecUnseen(db, zSql);
  }else{
    sqlite3Error(db, rc);
  }
  sqlite3_free(zSql);
  sqlite3_free(zName);
  return rc;
}

/* The image of a database of the other engine is a stock one. So sqlite3_deserialize() takes it, and
** any SQLite reads it. */
static unsigned char *glueSerialize(sqlite3 *db, const char *zSchema, sqlite3_int64 *piSize){
  sqlite3 *pCopy = 0;
  unsigned char *pImage = 0;
  if( glueCopyInMemory(db, zSchema, &pCopy)==SQLITE_OK ){
    pImage = stock_sqlite3_serialize(pCopy, "main", piSize, 0);
    if( pImage==0 ) sqlite3Error(db, SQLITE_NOMEM);
  }
  sqlite3_close(pCopy);
  return pImage;
}

/* The source of a backup of a database of the other engine. The connection of the copy has it as
** client data. */
#define GLUE_SOURCE "lsmvbt_source"
typedef struct GlueSource GlueSource;
struct GlueSource {
  sqlite3 *db;         /* The connection */
  Btree *p;            /* The handle. It counts the backup, so nothing closes it */
};

/* A connection that was closed meanwhile ends here. */
static void glueRelease(void *pArg){
  GlueSource *pSource = (GlueSource*)pArg;
  sqlite3 *db = pSource->db;
  sqlite3_mutex_enter(db->mutex);
  pSource->p->nBackup--;
  sqlite3_free(pSource);
  sqlite3LeaveMutexAndCloseZombie(db);
}

/* Counts a backup from p, until pCopy is closed. SQLite looks at the count before it closes or detaches
** a database. */
static int glueHold(sqlite3 *pCopy, sqlite3 *db, Btree *p){
  GlueSource *pSource = sqlite3_malloc64(sizeof(*pSource));
  if( pSource==0 ) return SQLITE_NOMEM_BKPT;
  pSource->db = db;
  pSource->p = p;
  p->nBackup++;
  /* If it fails, it releases the source. */
  return sqlite3_set_clientdata(pCopy, GLUE_SOURCE, pSource, glueRelease);
}

/* A backup of a database of the other engine copies the pages of a stock copy, which is made now. The
** copy is closed when the backup is finished. The caller holds the source's mutex. */
static sqlite3_backup *glueBackup(sqlite3 *pDest, const char *zDestName, sqlite3 *pSource, const char *zSourceName){
  sqlite3 *pCopy = 0;
  sqlite3_backup *pBackup = 0;
  Btree *p = sqlite3DbNameToBtree(pSource, zSourceName);
  int rc = glueCopyInMemory(pSource, zSourceName, &pCopy);
  const char *zWhy = rc==SQLITE_OK ? 0 : sqlite3_errmsg(pSource);
  if( rc==SQLITE_OK ) rc = glueHold(pCopy, pSource, p);
  sqlite3_mutex_enter(pDest->mutex);
  if( rc==SQLITE_OK ){
    pBackup = stock_sqlite3_backup_init(pDest, zDestName, pCopy, "main");
  }else{
    sqlite3ErrorWithMsg(pDest, rc, zWhy ? "%s" : 0, zWhy);
  }
  sqlite3_mutex_leave(pDest->mutex);
  if( pBackup==0 ) (void)sqlite3_close(pCopy);
  return pBackup;
}

/* The copy that a backup reads, if it is one of glueBackup(); otherwise 0. */
static sqlite3 *glueCopyOf(sqlite3_backup *pBackup){
  sqlite3 *db = pBackup->pSrcDb;
  int isCopy;
  sqlite3_mutex_enter(db->mutex);
  isCopy = db->pDbData!=0 && sqlite3_get_clientdata(db, GLUE_SOURCE)!=0;
  sqlite3_mutex_leave(db->mutex);
  return isCopy ? db : 0;
}

SQLITE_API int sqlite3_backup_finish(sqlite3_backup *pBackup){
  sqlite3 *pCopy = pBackup ? glueCopyOf(pBackup) : 0;
  int rc = stock_sqlite3_backup_finish(pBackup);
  (void)sqlite3_close(pCopy);
  return rc;
}

SQLITE_API unsigned char *sqlite3_serialize(
  sqlite3 *db, const char *zSchema, sqlite3_int64 *piSize, unsigned int mFlags
){
  unsigned char *pImage = 0;
  int isOurs;
#ifdef SQLITE_ENABLE_API_ARMOR
  if( !sqlite3SafetyCheckOk(db) ){
    (void)SQLITE_MISUSE_BKPT;
    return 0;
  }
#endif
  sqlite3_mutex_enter(db->mutex);
  if( zSchema==0 ) zSchema = db->aDb[0].zDbSName;
  isOurs = glueIsOurs(db, zSchema);
  if( isOurs ){
    if( piSize ) *piSize = -1;
    /* There is no image in memory to point to. */
    if( (mFlags & SQLITE_SERIALIZE_NOCOPY)==0 ) pImage = glueSerialize(db, zSchema, piSize);
  }
  sqlite3_mutex_leave(db->mutex);
  return isOurs ? pImage : stock_sqlite3_serialize(db, zSchema, piSize, mFlags);
}
#endif

/* Copying over a database of the other engine is refused: its pages are not SQLite's. */
static int glueRefusesBackup(sqlite3 *pDest, const char *zDestName){
  int isOurs;
  sqlite3_mutex_enter(pDest->mutex);
  isOurs = glueIsOurs(pDest, zDestName);
  if( isOurs ){
    const char *zEngine = lsmvbt_engine_name(GLUE(sqlite3DbNameToBtree(pDest, zDestName))->iEngine);
    sqlite3ErrorWithMsg(pDest, SQLITE_ERROR,
        "the backup interface writes SQLite's pages, which this database has not: use VACUUM INTO "
        "'file:NAME?engine=%s' on the source, which writes a new database of this engine", zEngine);
  }
  sqlite3_mutex_leave(pDest->mutex);
  return isOurs;
}

/* The mutexes in stock's order: the source's, then the destination's. */
SQLITE_API sqlite3_backup *sqlite3_backup_init(
  sqlite3 *pDest, const char *zDestName, sqlite3 *pSource, const char *zSourceName
){
  sqlite3_backup *pBackup = 0;
  /* Without API armor, stock SQLite ends the process. */
  if( pDest==0 || pSource==0 ){
    (void)SQLITE_MISUSE_BKPT;
    return 0;
  }
#ifdef SQLITE_ENABLE_API_ARMOR
  if( !sqlite3SafetyCheckOk(pSource) || !sqlite3SafetyCheckOk(pDest) ){
    (void)SQLITE_MISUSE_BKPT;
    return 0;
  }
#endif
  sqlite3_mutex_enter(pSource->mutex);
  if( pDest==pSource ){
    pBackup = stock_sqlite3_backup_init(pDest, zDestName, pSource, zSourceName);
  }else if( !glueRefusesBackup(pDest, zDestName) ){
    pBackup = glueIsOurs(pSource, zSourceName)
                ? glueBackup(pDest, zDestName, pSource, zSourceName)
                : stock_sqlite3_backup_init(pDest, zDestName, pSource, zSourceName);
  }
  sqlite3_mutex_leave(pSource->mutex);
  return pBackup;
}

/* The reason why the stock database iDb cannot become one of another engine; 0 if it can, once it
** is locked. */
static const char *glueCannotSwitch(sqlite3 *db, int iDb){
  Btree *p = db->aDb[iDb].pBt;
  Pager *pPager = p->pBt->pPager;
  if( iDb==1 || pPager->tempFile || pPager->memDb ) return "only a database in a file has an engine to choose";
  if( p->sharable && p->pBt->nRef>1 ) return "not with a shared cache";
  if( glueLacksMemory(pPager) ) return "its VFS has no shared memory, which this engine needs: use vfs=unix";
  if( glueKeepsMemory(pPager) ) return GLUE_KEEPS_MEMORY;
  if( db->autoCommit==0 || sqlite3BtreeTxnState(p)!=SQLITE_TXN_NONE || db->nVdbeActive>0 ){
    return "not within a transaction";
  }
  if( sqlite3BtreeIsInBackup(p) ) return "not during a backup";
  if( sqlite3BtreeIsReadonly(p) ) return "the database is read-only";
  return 0;
}

/* Whether the file is a database of the engine already. Another connection has made it since this one has
** opened the empty file. Any other content is an error. */
static int glueIsMade(Pager *pPager, int iEngine, int *pisMade, char **pzErr){
  u8 aMagic[16];
  i64 nFile = 0;
  int rc = glueReadMagic(sqlite3PagerFile(pPager), aMagic, &nFile);
  *pisMade = 0;
  if( rc!=SQLITE_OK || glueNothingThere(aMagic, nFile) ) return rc;
  *pisMade = lsmvbt_engine_of_file(aMagic)==iEngine;
  if( *pisMade ) return SQLITE_OK;
  *pzErr = sqlite3_mprintf("the database is not empty: VACUUM INTO 'file:NAME?engine=%s' converts it",
                           lsmvbt_engine_name(iEngine));
  return SQLITE_ERROR;
}

/* Writes the first header. */
static int glueMake(sqlite3 *db, Btree *p){
  u32 iFormat = 0;
  int rc = sqlite3BtreeBeginTrans(p, 1, 0);
  if( rc!=SQLITE_OK ) return rc;
  /* Another connection may have made the database while this one waited. Then it has an encoding. */
  sqlite3BtreeGetMeta(p, BTREE_FILE_FORMAT, &iFormat);
  if( iFormat==0 ) rc = sqlite3BtreeUpdateMeta(p, BTREE_FILE_FORMAT, 4);
  if( rc==SQLITE_OK && iFormat==0 ) rc = sqlite3BtreeUpdateMeta(p, BTREE_TEXT_ENCODING, ENC(db));
  return rc==SQLITE_OK ? sqlite3BtreeCommit(p) : rc;
}

/* Turns the empty stock database iDb into one of another engine, or takes one that another connection
** has made of it. Other connections that still take it for an empty stock database find a file that is
** not theirs. */
static int glueSwitch(sqlite3 *db, int iDb, int iEngine, char **pzErr){
  Btree *pOld = db->aDb[iDb].pBt;
  Pager *pPager = pOld->pBt->pPager;
  Btree *pNew = 0;
  Schema *pSchema = 0;
  int isMade = 0;
  const char *zWhy = glueCannotSwitch(db, iDb);
  int rc;
  if( zWhy ){
    *pzErr = sqlite3_mprintf("%s", zWhy);
    return SQLITE_ERROR;
  }
  rc = glueIsMade(pPager, iEngine, &isMade, pzErr);
  if( rc==SQLITE_OK ){
    rc = glueOpen(iEngine, sqlite3PagerVfs(pPager), sqlite3PagerFilename(pPager, 0), db, &pNew, 0,
                  (int)(db->openFlags & ~SQLITE_OPEN_SHAREDCACHE) | SQLITE_OPEN_MAIN_DB);
  }
  if( rc==SQLITE_OK && !isMade ){
    rc = glueMake(db, pNew);
    /* The connection that had the lock may have made it. */
    if( rc==SQLITE_BUSY && glueIsMade(pPager, iEngine, &isMade, pzErr)==SQLITE_OK && isMade ) rc = SQLITE_OK;
  }
  if( rc==SQLITE_OK ){
    pSchema = sqlite3SchemaGet(db, pNew);
    if( pSchema==0 ) rc = SQLITE_NOMEM_BKPT;
  }
  if( rc!=SQLITE_OK ){
    if( pNew ) sqlite3BtreeClose(pNew);
    return rc;
  }
  pSchema->cache_size = db->aDb[iDb].pSchema->cache_size;
  /* While SQLite compiles a statement, it holds the mutex of a handle that could be shared. In a
  ** build with SQLITE_DEBUG all handles could. The new handle cannot, so leaving it does nothing.
  ** */
  while( pOld->wantToLock>0 ) sqlite3BtreeLeave(pOld);
  sqlite3BtreeClose(pOld);
  db->aDb[iDb].pBt = pNew;
  db->aDb[iDb].pSchema = pSchema;
  db->mDbFlags &= ~(u32)DBFLAG_SchemaKnownOk;
  sqlite3BtreeSetPagerFlags(pNew, db->aDb[iDb].safety_level | (unsigned)(db->flags & PAGER_FLAGS_MASK));
#if SQLITE_VERSION_NUMBER>=3051000
  if( iDb==0 ) sqlite3VtabEponymousTableClearAll(db);
#endif
  sqlite3ExpirePreparedStatements(db, 1);
  return SQLITE_OK;
}

/* PRAGMA journal_mode: returns the engine, and chooses one while the database is empty. */
static int glueJournalMode(sqlite3 *db, int iDb, const char *zMode, char **pzResult){
  Btree *p = db->aDb[iDb].pBt;
  int iEngine = zMode ? lsmvbt_engine_named(zMode) : -1;
  if( !glueOwns(p) ){
    int rc;
    if( iEngine<0 ) return SQLITE_NOTFOUND;
    rc = glueSwitch(db, iDb, iEngine, pzResult);
    if( rc!=SQLITE_OK ) return rc;
    p = db->aDb[iDb].pBt;
  }
  *pzResult = sqlite3_mprintf("%s", lsmvbt_engine_name(GLUE(p)->iEngine));
  return *pzResult ? SQLITE_OK : SQLITE_NOMEM_BKPT;
}

/* PRAGMA secure_delete: off, and asking for more is refused. A dead entry keeps its bytes until its
** page is written again, as a freed page does. */
static int glueSecureDelete(const char *zValue, char **pzResult){
  int isOn = zValue && (sqlite3StrICmp(zValue, "fast")==0 || sqlite3GetBoolean(zValue, 0));
  *pzResult = sqlite3_mprintf("%s", isOn ? "secure_delete is not supported by this database's engine: VACUUM INTO "
                              "writes a copy without deleted content" : "0");
  if( *pzResult==0 ) return SQLITE_NOMEM_BKPT;
  return isOn ? SQLITE_ERROR : SQLITE_OK;
}

/* Whether a pragma sets something of the other engine. */
static int glueSets(char **azPragma){
  return azPragma[2]!=0 && sqlite3_strnicmp(azPragma[1], "lsmvbt_", 7)==0;
}

/* A pragma of the engine. A database that must still be made is made first, so that what is set
** holds. A transaction may have begun without a read (BEGIN), which the engine cannot know. A rollback would
** not undo a setting of the database, or of all its connections. */
static int gluePragma(Btree *p, char **azPragma){
  int isSetting = glueSets(azPragma);
  int isOfAll = sqlite3StrICmp(azPragma[1], "lsmvbt_history")==0 || sqlite3StrICmp(azPragma[1], "lsmvbt_torn")==0;
  if( isSetting && (p->inTrans!=TRANS_NONE || (isOfAll && p->db->autoCommit==0)) ){
    azPragma[0] = sqlite3_mprintf("%s = %s: not within a transaction", azPragma[1], azPragma[2]);
    return azPragma[0] ? SQLITE_ERROR : SQLITE_NOMEM_BKPT;
  }
  if( isSetting && lsmvbt_is_new(GLUE(p)->pEngine) ){
    int rc = sqlite3BtreeBeginTrans(p, 1, 0);
    if( rc==SQLITE_OK ) rc = sqlite3BtreeRollback(p, SQLITE_OK, 0);
    if( rc!=SQLITE_OK ) return rc;
  }
  return gluePragmaWaits(p, azPragma[1], azPragma[2], &azPragma[0]);
}

/* Here, too, a setting of the other engine would seem to hold. */
static int glueNotOurs(char **azPragma){
  azPragma[0] = sqlite3_mprintf("this database is SQLite's own: PRAGMA journal_mode = lsmvbt, while it is empty, "
                                "chooses the engine that has this pragma");
  return azPragma[0] ? SQLITE_ERROR : SQLITE_NOMEM_BKPT;
}

SQLITE_API int sqlite3_file_control(sqlite3 *db, const char *zDbName, int op, void *pArg){
  int rc = SQLITE_NOTFOUND;
#ifdef SQLITE_ENABLE_API_ARMOR
  if( !sqlite3SafetyCheckOk(db) ) return SQLITE_MISUSE_BKPT;
#endif
  if( op==SQLITE_FCNTL_PRAGMA ){
    char **azPragma = (char**)pArg;
    int iDb;
    sqlite3_mutex_enter(db->mutex);
    iDb = zDbName ? sqlite3FindDbName(db, zDbName) : 0;
    if( iDb>=0 && (azPragma[0] = lsmvbt_unknown_pragma(azPragma[1]))!=0 ){
      /* SQLite would ignore it, and the setting would seem to hold. */
      rc = SQLITE_ERROR;
    }else if( iDb>=0 && db->aDb[iDb].pBt && sqlite3StrICmp(azPragma[1], "journal_mode")==0 ){
      rc = glueJournalMode(db, iDb, azPragma[2], &azPragma[0]);
    }else if( iDb>=0 && glueOwns(db->aDb[iDb].pBt) && sqlite3StrICmp(azPragma[1], "secure_delete")==0 ){
      rc = glueSecureDelete(azPragma[2], &azPragma[0]);
    }else if( iDb>=0 && glueOwns(db->aDb[iDb].pBt) ){
      rc = gluePragma(db->aDb[iDb].pBt, azPragma);
    }else if( iDb>=0 && glueSets(azPragma) ){
      rc = glueNotOurs(azPragma);
    }
    sqlite3_mutex_leave(db->mutex);
    if( rc!=SQLITE_NOTFOUND ) return rc;
  }
  return stock_sqlite3_file_control(db, zDbName, op, pArg);
}
