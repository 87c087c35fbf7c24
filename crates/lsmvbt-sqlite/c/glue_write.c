/*
** Changing trees.
*/

/* An incremental BLOB handle ends with its row. */
static void glueInvalidateBlobs(Btree *p, Pgno iRoot, i64 iRow, int isClearTable){
  BtCursor *pCur;
  if( p->hasIncrblobCur==0 ) return;
  p->hasIncrblobCur = 0;
  for(pCur=p->pBt->pCursor; pCur; pCur=pCur->pNext){
    if( (pCur->curFlags & BTCF_Incrblob)==0 ) continue;
    p->hasIncrblobCur = 1;
    if( pCur->pgnoRoot==iRoot && (isClearTable || glueRowid(GLUE_CURSOR(pCur))==iRow) ){
      pCur->eState = CURSOR_INVALID;
    }
  }
}

/* Before a cursor writes to its tree: the others save their places, and its own saved place is
** dropped. */
static int glueBeforeWrite(BtCursor *pCur){
  int rc = glueSaveAll(pCur->pBt, pCur->pgnoRoot, pCur);
  if( rc==SQLITE_OK && pCur->eState>=CURSOR_REQUIRESEEK ){
    if( pCur->eState==CURSOR_FAULT ) return pCur->skipNext;
    sqlite3BtreeClearCursor(pCur);
  }
  return rc;
}

static int glueInsertRow(BtCursor *pCur, const BtreePayload *pX, int flags){
  GlueCursor *p = GLUE_CURSOR(pCur);
  const void *pData = pX->pData;
  u32 nData = (u32)pX->nData;
  u32 nZero = (u32)pX->nZero;
  glueInvalidateBlobs(pCur->pBtree, pCur->pgnoRoot, pX->nKey, 0);
  if( flags & BTREE_PREFORMAT ){
    pData = GLUE(pCur->pBtree)->aPreformat;
    nData = GLUE(pCur->pBtree)->nPreformat;
    nZero = 0;
  }
  return lsmvbt_insert_row(p->pEngine, p->id, pX->nKey, pData, nData, nZero);
}

static int glueInsertRecord(BtCursor *pCur, const BtreePayload *pX, int flags){
  GlueCursor *p = GLUE_CURSOR(pCur);
  const void *pKey = pX->pKey;
  u32 nKey = (u32)pX->nKey;
  UnpackedRecord record;
  UnpackedRecord *pUnpacked = 0;
  GlueKey key;
  int rc = SQLITE_OK;
  if( flags & BTREE_PREFORMAT ){
    pKey = GLUE(pCur->pBtree)->aPreformat;
    nKey = GLUE(pCur->pBtree)->nPreformat;
    rc = glueUnpack(pCur->pKeyInfo, pKey, nKey, &pUnpacked);
  }else if( pX->nMem ){
    memset(&record, 0, sizeof(record));
    record.pKeyInfo = pCur->pKeyInfo;
    record.aMem = pX->aMem;
    record.nField = pX->nMem;
  }else{
    rc = glueUnpack(pCur->pKeyInfo, pKey, nKey, &pUnpacked);
  }
  if( rc==SQLITE_OK ){
    glueKeyInit(&key, pUnpacked ? pUnpacked : &record);
    rc = lsmvbt_insert_record(p->pEngine, p->id, pKey, nKey, &key.sought);
  }
  sqlite3DbFree(pCur->pKeyInfo->db, pUnpacked);
  return rc;
}

/* After an insertion the new entry is the cursor's saved place, and the cursor goes there when
** SQLite asks. In an index this holds only if SQLite wants to go on from there
** (BTREE_SAVEPOSITION), since the key must be copied. */
static int glueAfterInsert(BtCursor *pCur, const BtreePayload *pX, int flags){
  pCur->eState = CURSOR_INVALID;
  if( pCur->pKeyInfo ){
    u8 *aKey;
    if( (flags & BTREE_SAVEPOSITION)==0 ) return SQLITE_OK;
    aKey = sqlite3Malloc((u64)pX->nKey + GLUE_PADDING);
    if( aKey==0 ) return SQLITE_NOMEM_BKPT;
    memcpy(aKey, pX->pKey, (size_t)pX->nKey);
    memset(aKey+pX->nKey, 0, GLUE_PADDING);
    pCur->pKey = aKey;
  }
  pCur->nKey = pX->nKey;
  pCur->skipNext = 0;
  pCur->eState = CURSOR_REQUIRESEEK;
  return SQLITE_OK;
}

/* The result of an earlier seek is not needed: the engine finds the place. An entry that compares
** equal is replaced, as in a WITHOUT ROWID table whose key changes its case. */
static int glueInsert(BtCursor *pCur, const BtreePayload *pX, int flags, int seekResult){
  int rc;
  UNUSED_PARAMETER( seekResult );
  assert( pCur->curFlags & BTCF_WriteFlag );
  assert( pCur->pBtree->inTrans==TRANS_WRITE );
  rc = glueBeforeWrite(pCur);
  if( rc!=SQLITE_OK ) return rc;
  rc = pCur->pKeyInfo==0 ? glueInsertRow(pCur, pX, flags) : glueInsertRecord(pCur, pX, flags);
  if( rc==SQLITE_OK ) return glueAfterInsert(pCur, pX, flags);
  sqlite3BtreeClearCursor(pCur);
  return rc;
}

/* With BTREE_SAVEPOSITION the next step of the cursor goes to a neighbor of the deleted entry. */
static int glueDelete(BtCursor *pCur, u8 flags){
  GlueCursor *p = GLUE_CURSOR(pCur);
  int rc;
  assert( pCur->curFlags & BTCF_WriteFlag );
  assert( pCur->pBtree->inTrans==TRANS_WRITE );
  if( pCur->eState!=CURSOR_VALID ){
    if( pCur->eState<CURSOR_REQUIRESEEK ) return SQLITE_CORRUPT_BKPT;
    rc = glueRestore(pCur);
    if( rc!=SQLITE_OK || pCur->eState!=CURSOR_VALID ) return rc;
  }
  if( flags & BTREE_SAVEPOSITION ){
    rc = glueSaveKey(pCur);
    if( rc!=SQLITE_OK ) return rc;
  }
  rc = glueSaveAll(pCur->pBt, pCur->pgnoRoot, pCur);
  if( rc==SQLITE_OK ){
    if( pCur->pKeyInfo==0 ) glueInvalidateBlobs(pCur->pBtree, pCur->pgnoRoot, glueRowid(p), 0);
    rc = glueSync(p);
    if( rc==SQLITE_OK ) rc = lsmvbt_delete(p->pEngine, p->id);
  }
  if( rc==SQLITE_OK && (flags & BTREE_SAVEPOSITION)!=0 ){
    pCur->skipNext = 0;
    pCur->eState = CURSOR_REQUIRESEEK;
    return SQLITE_OK;
  }
  sqlite3BtreeClearCursor(pCur);
  if( rc==SQLITE_OK && (pCur->curFlags & BTCF_Pinned)!=0 ){
    /* UPDATE OR REPLACE keeps triggers from changing the table under it. So code that saves this
    ** cursor must find it pinned. Stock SQLite's cursor goes to the root after a deletion, and
    ** counts as valid unless the tree is empty. */
    rc = glueArrived(pCur, lsmvbt_first(p->pEngine, p->id, &p->row));
    if( rc==SQLITE_DONE ) rc = SQLITE_OK;
  }
  return rc;
}

#ifndef SQLITE_OMIT_INCRBLOB
/* SQLite compares the address of sqlite3BtreePutData(), which is that of the dispatching function. */
static int gluePutData(BtCursor *pCur, u32 offset, u32 amt, void *z){
  GlueCursor *p = GLUE_CURSOR(pCur);
  int rc = glueRestore(pCur);
  if( rc!=SQLITE_OK ) return rc;
  if( pCur->eState!=CURSOR_VALID ) return SQLITE_ABORT;
  rc = glueSaveAll(pCur->pBt, pCur->pgnoRoot, pCur);
  if( rc!=SQLITE_OK ) return rc;
  if( (pCur->curFlags & BTCF_WriteFlag)==0 ) return SQLITE_READONLY;
  if( (u64)offset+amt>glueRow(p)->total ) return SQLITE_CORRUPT_BKPT;
  rc = glueSync(p);
  if( rc==SQLITE_OK ) rc = lsmvbt_overwrite(p->pEngine, p->id, offset, amt, z, &p->row);
  return glueArrived(pCur, rc);
}
#endif

static int glueClearTable(Btree *p, int iTable, i64 *pnChange){
  i64 nRemoved = 0;
  int rc;
  assert( p->inTrans==TRANS_WRITE );
  rc = glueSaveAll(p->pBt, (Pgno)iTable, 0);
  if( rc!=SQLITE_OK ) return rc;
  glueInvalidateBlobs(p, (Pgno)iTable, 0, 1);
  rc = lsmvbt_clear_tree(GLUE(p)->pEngine, (Pgno)iTable, &nRemoved);
  if( rc==SQLITE_OK && pnChange ) *pnChange += nRemoved;
  return rc;
}

static int glueClearTableOfCursor(BtCursor *pCur){
  return glueClearTable(pCur->pBtree, (int)pCur->pgnoRoot, 0);
}

/* Roots are logical numbers: no other tree moves. */
static int glueDropTable(Btree *p, int iTable, int *piMoved){
  int rc = glueSaveAll(p->pBt, (Pgno)iTable, 0);
  *piMoved = 0;
  if( rc!=SQLITE_OK ) return rc;
  glueInvalidateBlobs(p, (Pgno)iTable, 0, 1);
  return lsmvbt_drop_tree(GLUE(p)->pEngine, (Pgno)iTable);
}

static int glueCreateTable(Btree *p, Pgno *piTable, int flags){
  assert( p->inTrans==TRANS_WRITE );
  return lsmvbt_create_tree(GLUE(p)->pEngine, (flags & BTREE_INTKEY)!=0, piTable);
}

/* Copies a row for the insertion that follows, from one engine to the other, either way. */
static int glueTransferRow(BtCursor *pDest, BtCursor *pSrc, i64 iKey){
  u32 n;
  u8 *aRow;
  int rc;
  n = glueOwnsCursor(pSrc) ? gluePayloadSize(pSrc) : stock_sqlite3BtreePayloadSize(pSrc);
  aRow = sqlite3Malloc((u64)n + GLUE_PADDING);
  if( aRow==0 ) return SQLITE_NOMEM_BKPT;
  memset(aRow+n, 0, GLUE_PADDING);
  rc = glueOwnsCursor(pSrc) ? gluePayload(pSrc, 0, n, aRow) : stock_sqlite3BtreePayload(pSrc, 0, n, aRow);
  if( rc==SQLITE_OK && glueOwnsCursor(pDest) ){
    GlueBtree *pTo = GLUE(pDest->pBtree);
    sqlite3_free(pTo->aPreformat);
    pTo->aPreformat = aRow;
    pTo->nPreformat = n;
    return SQLITE_OK;
  }
  if( rc==SQLITE_OK ){
    BtreePayload x;
    memset(&x, 0, sizeof(x));
    if( pDest->pKeyInfo ){
      x.pKey = aRow;
      x.nKey = n;
    }else{
      x.nKey = iKey;
      x.pData = aRow;
      x.nData = (int)n;
    }
    rc = fillInCell(pDest->pPage, pDest->pBt->pTmpSpace, &x, &pDest->pBt->nPreformatSize);
  }
  sqlite3_free(aRow);
  return rc;
}

SQLITE_PRIVATE int sqlite3BtreeTransferRow(BtCursor *pDest, BtCursor *pSrc, i64 iKey){
  if( glueOwnsCursor(pDest) || glueOwnsCursor(pSrc) ) return glueTransferRow(pDest, pSrc, iKey);
  return stock_sqlite3BtreeTransferRow(pDest, pSrc, iKey);
}
