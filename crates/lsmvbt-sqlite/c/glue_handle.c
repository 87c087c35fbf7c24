/*
** Transactions, savepoints, the header's numbers, and other questions to a handle.
*/

static void glueSetTransaction(Btree *p, int inTrans){
  p->inTrans = (u8)inTrans;
  p->pBt->inTransaction = (u8)inTrans;
  p->pBt->nTransaction = inTrans!=TRANS_NONE;
}

/* Begins a transaction in the engine, and reads the header's numbers. SQLite asks for them through
** sqlite3BtreeGetMeta(), which cannot return an error. A wrong answer of 0 would be an empty
** database, or one in another encoding. */
static int glueBegin(Btree *p, int wrflag){
  GlueBtree *pGlue = GLUE(p);
  int rc = lsmvbt_begin(pGlue->pEngine, wrflag);
  if( rc!=SQLITE_OK ) return rc;
  rc = lsmvbt_metas(pGlue->pEngine, pGlue->aMeta);
  if( rc!=SQLITE_OK ){
    if( wrflag ) lsmvbt_rollback(pGlue->pEngine);
    if( p->inTrans==TRANS_NONE ) lsmvbt_end_read(pGlue->pEngine);
    return rc;
  }
  memcpy(pGlue->aBase, pGlue->aMeta, sizeof(pGlue->aBase));
  return SQLITE_OK;
}

/* Milliseconds that the connection which makes a database waits for others that look at the empty file. */
#define GLUE_TRIES 100

/* While a database is made, stock SQLite's locks keep stock connections out of the empty file. Its
** own code has already handled a journal next to the file. */
static int glueBeginNew(Btree *p){
  Pager *pPager = p->pBt->pPager;
  int i;
  int rc = sqlite3PagerSharedLock(pPager);
  if( rc!=SQLITE_OK ) return rc;
  rc = sqlite3PagerBegin(pPager, 1, 0);
  /* This connection has the reserved lock. Others that make the database hold the shared lock until they see
  ** that, and fail. If this one failed because of them, all would. */
  for(i=0; rc==SQLITE_BUSY && pPager->eLock>=RESERVED_LOCK && i<GLUE_TRIES; i++){
    sqlite3OsSleep(pPager->pVfs, 1000);
    rc = sqlite3PagerBegin(pPager, 1, 0);
  }
  if( rc==SQLITE_OK ){
    rc = lsmvbt_is_new(GLUE(p)->pEngine) ? glueBegin(p, 1) : SQLITE_BUSY;
  }
  pagerUnlockIfUnused(pPager);
  return rc;
}

/* The code stays SQLite's own, and so does its text, which programs compare. The log has the file. */
static int glueBusy(Btree *p, int rc){
  const char *zFile = sqlite3PagerFilename(p->pBt->pPager, 0);
  if( rc==SQLITE_BUSY_SNAPSHOT ){
    sqlite3_log(rc, "%s: another connection has committed since this transaction began to read: roll back, and begin "
                "with BEGIN IMMEDIATE", zFile);
  }else if( (rc&0xFF)==SQLITE_BUSY ){
    sqlite3_log(rc, "%s: another connection writes or recovers: wait with PRAGMA busy_timeout, or end its transaction",
                zFile);
  }
  return rc;
}

/* SQLite asks for the schema cookie at every call, and expects one savepoint for each that SQL has
** opened. The busy handler runs only where no transaction was open: otherwise waiting could never
** help. */
static int glueBeginTrans(Btree *p, int wrflag, int *pSchemaVersion){
  GlueBtree *pGlue = GLUE(p);
  int rc = SQLITE_OK;
  if( p->inTrans==TRANS_NONE || (p->inTrans==TRANS_READ && wrflag) ){
    if( wrflag && (p->pBt->btsFlags & BTS_READ_ONLY)!=0 ) return SQLITE_READONLY;
    do{
      if( wrflag && lsmvbt_is_new(pGlue->pEngine) ){
        rc = glueBeginNew(p);
      }else{
        rc = glueBegin(p, wrflag!=0);
      }
      if( rc==SQLITE_BUSY_SNAPSHOT && p->inTrans==TRANS_NONE ) rc = SQLITE_BUSY;
    }while( (rc&0xFF)==SQLITE_BUSY && p->inTrans==TRANS_NONE && btreeInvokeBusyHandler(p->pBt) );
    if( rc!=SQLITE_OK ) return glueBusy(p, rc);
    glueSetTransaction(p, wrflag ? TRANS_WRITE : TRANS_READ);
  }
  if( pSchemaVersion ) *pSchemaVersion = (int)pGlue->aMeta[BTREE_SCHEMA_VERSION];
  if( wrflag ) rc = lsmvbt_savepoint_open(pGlue->pEngine, p->db->nSavepoint);
  return rc;
}

/* A pragma of the engine. Another connection may write or recover: the busy handler says how long to wait,
** as for a statement. In a transaction it does not run. */
static int gluePragmaWaits(Btree *p, const char *zName, const char *zValue, char **pzAnswer){
  int rc;
  p->db->busyHandler.nBusy = 0;
  do{
    /* Busy comes without a text. */
    *pzAnswer = 0;
    rc = lsmvbt_pragma(GLUE(p)->pEngine, zName, zValue, pzAnswer);
  }while( (rc&0xFF)==SQLITE_BUSY && *pzAnswer==0 && p->inTrans==TRANS_NONE && btreeInvokeBusyHandler(p->pBt) );
  return (rc&0xFF)==SQLITE_BUSY ? glueBusy(p, rc) : rc;
}

/* Other statements of the connection may go on reading. Then the transaction becomes a read
** transaction. */
static void glueEndTransaction(Btree *p){
  if( p->inTrans>TRANS_NONE && p->db->nVdbeRead>1 ){
    glueSetTransaction(p, TRANS_READ);
  }else{
    if( p->inTrans!=TRANS_NONE ) lsmvbt_end_read(GLUE(p)->pEngine);
    glueSetTransaction(p, TRANS_NONE);
  }
}

/* Whether the transaction of the connection writes to another database, temporary ones aside. */
static int glueOthersWrite(Btree *p){
  int i;
  for(i=0; i<p->db->nDb; i++){
    Btree *pOther = p->db->aDb[i].pBt;
    if( i!=1 && pOther!=p && sqlite3BtreeTxnState(pOther)==SQLITE_TXN_WRITE ) return 1;
  }
  return 0;
}

/* Saves all cursors. One that cannot be saved enters the fault state, with the reason. */
static void glueSaveOrFault(BtShared *pBt){
  BtCursor *p;
  for(p=pBt->pCursor; p; p=p->pNext){
    if( p->eState==CURSOR_VALID || p->eState==CURSOR_SKIPNEXT ){
      int rc = glueSave(p);
      if( rc!=SQLITE_OK ){
        sqlite3BtreeClearCursor(p);
        p->eState = CURSOR_FAULT;
        p->skipNext = rc;
      }
    }
  }
}

/* Everything that can be refused is refused here. In phase two the others of several databases may
** be committed already, and under a super-journal SQLite ignores the result of phase two. So with
** other databases this one is written here, and phase two only publishes it. A crash in between can
** leave one database committed without the other, as in SQLite's WAL mode. */
static int glueCommitPhaseOne(Btree *p, const char *zSuperJrnl){
  if( p->inTrans!=TRANS_WRITE ) return SQLITE_OK;
  if( zSuperJrnl || glueOthersWrite(p) ) return lsmvbt_write(GLUE(p)->pEngine);
  return lsmvbt_prepare(GLUE(p)->pEngine);
}

/* Cursors of statements that go on reading find their places again in the committed state. */
static int glueCommitPhaseTwo(Btree *p, int bCleanup){
  if( p->inTrans==TRANS_NONE ) return SQLITE_OK;
  if( p->inTrans==TRANS_WRITE ){
    int rc;
    glueSaveOrFault(p->pBt);
    rc = lsmvbt_commit(GLUE(p)->pEngine);
    if( rc!=SQLITE_OK ){
      memcpy(GLUE(p)->aMeta, GLUE(p)->aBase, sizeof(GLUE(p)->aMeta));
      GLUE(p)->nVacuum = 0;
      if( bCleanup==0 ) return rc;
    }
    GLUE(p)->nCommit++;
  }
  glueEndTransaction(p);
  return SQLITE_OK;
}

/* Whichever engine commits last. */
SQLITE_PRIVATE int sqlite3BtreeCommitPhaseTwo(Btree *p, int bCleanup){
  sqlite3 *db = p->db;
  int rc = glueOwns(p) ? glueCommitPhaseTwo(p, bCleanup) : stock_sqlite3BtreeCommitPhaseTwo(p, bCleanup);
  glueVacuumAfter(db);
  return rc;
}

static int glueCommit(Btree *p){
  int rc = glueCommitPhaseOne(p, 0);
  return rc==SQLITE_OK ? sqlite3BtreeCommitPhaseTwo(p, 0) : rc;
}

/* Ends cursors with an error; those that only read may just save their places. */
static int glueTripAllCursors(Btree *p, int errCode, int writeOnly){
  BtCursor *pCur;
  int rc = SQLITE_OK;
  for(pCur=p->pBt->pCursor; pCur; pCur=pCur->pNext){
    if( writeOnly && (pCur->curFlags & BTCF_WriteFlag)==0 ){
      if( pCur->eState==CURSOR_VALID || pCur->eState==CURSOR_SKIPNEXT ){
        rc = glueSave(pCur);
        if( rc!=SQLITE_OK ){
          (void)glueTripAllCursors(p, rc, 0);
          break;
        }
      }
    }else{
      sqlite3BtreeClearCursor(pCur);
      pCur->eState = CURSOR_FAULT;
      pCur->skipNext = errCode;
    }
  }
  return rc;
}

static int glueRollback(Btree *p, int tripCode, int writeOnly){
  int rc = SQLITE_OK;
  if( tripCode==SQLITE_OK ){
    rc = tripCode = glueSaveAll(p->pBt, 0, 0);
    if( rc ) writeOnly = 0;
  }
  if( tripCode ){
    int rc2 = glueTripAllCursors(p, tripCode, writeOnly);
    if( rc2!=SQLITE_OK ) rc = rc2;
  }
  if( p->inTrans==TRANS_WRITE ){
    GlueNote *pNote = glueNoteOf(p->db);
    int rc2;
    if( pNote ) pNote->isKept = 1;
    rc2 = lsmvbt_rollback(GLUE(p)->pEngine);
    if( pNote ) pNote->isKept = 0;
    if( rc2!=SQLITE_OK ) rc = rc2;
    memcpy(GLUE(p)->aMeta, GLUE(p)->aBase, sizeof(GLUE(p)->aMeta));
  }
  GLUE(p)->nVacuum = 0;
  glueEndTransaction(p);
  return rc;
}

SQLITE_PRIVATE int sqlite3BtreeBeginTrans(Btree *p, int wrflag, int *pSchemaVersion){
  glueForget(p->db);
  return glueOwns(p) ? glueBeginTrans(p, wrflag, pSchemaVersion)
                     : stock_sqlite3BtreeBeginTrans(p, wrflag, pSchemaVersion);
}

static int glueBeginStmt(Btree *p, int iStatement){
  assert( p->inTrans==TRANS_WRITE );
  return lsmvbt_savepoint_open(GLUE(p)->pEngine, iStatement);
}

/* Going back to savepoint i keeps it. Going back to -1 undoes the whole transaction, which goes on.
** */
static int glueSavepoint(Btree *p, int op, int iSavepoint){
  if( p->inTrans!=TRANS_WRITE ) return SQLITE_OK;
  if( op==SAVEPOINT_ROLLBACK ){
    int rc = glueSaveAll(p->pBt, 0, 0);
    if( rc!=SQLITE_OK ) return rc;
    rc = lsmvbt_savepoint_rollback(GLUE(p)->pEngine, iSavepoint);
    if( rc==SQLITE_OK ) rc = lsmvbt_metas(GLUE(p)->pEngine, GLUE(p)->aMeta);
    return rc;
  }
  return lsmvbt_savepoint_release(GLUE(p)->pEngine, iSavepoint);
}

static void glueGetMeta(Btree *p, int idx, u32 *pMeta){
  assert( p->inTrans>TRANS_NONE );
  if( idx==BTREE_DATA_VERSION ){
    *pMeta = lsmvbt_data_version(GLUE(p)->pEngine);
  }else{
    *pMeta = idx==BTREE_FREE_PAGE_COUNT ? lsmvbt_free_pages(GLUE(p)->pEngine) : GLUE(p)->aMeta[idx];
  }
}

static int glueUpdateMeta(Btree *p, int idx, u32 iMeta){
  int rc;
  assert( p->inTrans==TRANS_WRITE );
  rc = lsmvbt_set_meta(GLUE(p)->pEngine, idx, iMeta);
  if( rc==SQLITE_OK ) GLUE(p)->aMeta[idx] = iMeta;
  return rc;
}

/* SQLite rejects each root above this. */
static Pgno glueLastPage(Btree *p){
  return lsmvbt_last_tree(GLUE(p)->pEngine);
}

static Pgno glueMaxPageCount(Btree *p, Pgno mxPage){
  UNUSED_PARAMETER( p );
  UNUSED_PARAMETER( mxPage );
  return 0xfffffffe;
}

static int glueSetPagerFlags(Btree *p, unsigned pgFlags){
  lsmvbt_set_synchronous(GLUE(p)->pEngine, (int)(pgFlags & PAGER_SYNCHRONOUS_MASK), (pgFlags & PAGER_FULLFSYNC)!=0);
  return stock_sqlite3BtreeSetPagerFlags(p, pgFlags);
}

/* In pages, or less than 0 in KiB. SQLite's own default is not meant for nodes: the engine holds
** more of them. */
static int glueSetCacheSize(Btree *p, int mxPage){
  i64 nPage = mxPage>=0 ? mxPage : -(i64)mxPage*1024/4096;
  if( mxPage==SQLITE_DEFAULT_CACHE_SIZE ) nPage = GLUE_CACHE_PAGES;
  lsmvbt_set_cache_pages(GLUE(p)->pEngine, (u32)nPage);
  return stock_sqlite3BtreeSetCacheSize(p, mxPage);
}

/* The engine owns its pages: their size is fixed, and a request for another is no error. */
static int glueSetPageSize(Btree *p, int nPagesize, int nReserve, int eFix){
  UNUSED_PARAMETER( p );
  UNUSED_PARAMETER( nPagesize );
  UNUSED_PARAMETER( nReserve );
  UNUSED_PARAMETER( eFix );
  return SQLITE_OK;
}

static int glueSetAutoVacuum(Btree *p, int autoVacuum){
  UNUSED_PARAMETER( p );
  return autoVacuum ? SQLITE_READONLY : SQLITE_OK;
}

/* SQLite calls this for each page, and gives a row for it. They go together after the commit. */
static int glueIncrVacuum(Btree *p){
  GlueBtree *pGlue = GLUE(p);
  assert( p->inTrans==TRANS_WRITE );
  if( pGlue->nVacuum>=lsmvbt_removable_pages(pGlue->pEngine) ) return SQLITE_DONE;
  pGlue->nVacuum++;
  return SQLITE_OK;
}

static int glueSetVersion(Btree *p, int iVersion){
  UNUSED_PARAMETER( p );
  UNUSED_PARAMETER( iVersion );
  return SQLITE_OK;
}

/* The first write to a database makes it. */
static int glueNewDb(Btree *p){
  UNUSED_PARAMETER( p );
  return SQLITE_OK;
}

/* Recovery of this database would never find a super-journal again. */
static const char *glueGetJournalname(Btree *p){
  UNUSED_PARAMETER( p );
  return 0;
}

/* There is no log, so none of its frames are counted. But what was committed is durable afterwards, as
** in stock WAL at synchronous=NORMAL. */
static int glueCheckpoint(Btree *p, int eMode, int *pnLog, int *pnCkpt){
  int rc;
  if( pnLog ) *pnLog = -1;
  if( pnCkpt ) *pnCkpt = -1;
  if( p->inTrans!=TRANS_NONE ) return SQLITE_LOCKED;
  if( p->pBt->btsFlags & BTS_READ_ONLY ) return SQLITE_OK;
  do{
    rc = lsmvbt_flush(GLUE(p)->pEngine);
  }while( rc==SQLITE_BUSY && eMode!=SQLITE_CHECKPOINT_PASSIVE && btreeInvokeBusyHandler(p->pBt) );
  return rc;
}

static void glueClearCache(Btree *p){
  UNUSED_PARAMETER( p );
}

static int glueIntegrityCheck(
  sqlite3 *db, Btree *p, Pgno *aRoot, sqlite3_value *aCnt, int nRoot, int mxErr, int *pnErr, char **pzOut
){
  int i;
  UNUSED_PARAMETER( db );
  *pnErr = 0;
  *pzOut = 0;
  for(i=0; i<nRoot; i++){
    i64 nEntry = 0;
    int rc = SQLITE_OK;
    if( aRoot[i] ) rc = lsmvbt_count(GLUE(p)->pEngine, aRoot[i], &nEntry);
    if( rc!=SQLITE_OK ) return rc;
    sqlite3MemSetArrayInt64(aCnt, i, nEntry);
  }
  return lsmvbt_check(GLUE(p)->pEngine, mxErr, pnErr, pzOut);
}
