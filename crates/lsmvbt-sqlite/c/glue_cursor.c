/*
** Cursors: the states that SQLite knows, over positions that the engine keeps.
**
** Before a write to a tree, every other cursor on it saves its key and goes to REQUIRESEEK. So the
** engine's cursors never see their tree change under them.
*/

/* The sought key: the context of the two functions that the engine calls. */
typedef struct GlueKey GlueKey;
struct GlueKey {
  EngineSought sought;
  UnpackedRecord *pRecord;
  RecordCompare xCompare;
};

/* SQLite compares: collations and the order of columns are its own. The sign is that of the stored
** record relative to the sought one. With a default_rc it is never 0. */
static int glueCompare(void *pContext, const unsigned char *aRecord, unsigned int nRecord, int *pOrder){
  GlueKey *pKey = (GlueKey*)pContext;
  int c = pKey->xCompare((int)nRecord, aRecord, pKey->pRecord);
  *pOrder = (c>0) - (c<0);
  return pKey->pRecord->errCode ? pKey->pRecord->errCode : SQLITE_OK;
}

/* Many comparisons in one call: a call for each costs more than most of them. */
static int glueSearch(
  void *pContext,
  const unsigned char *aByte,
  const EngineSpan *aRecord,
  unsigned int nRecord,
  unsigned int *pnNotLarger,
  int *pbEqual
){
  GlueKey *pKey = (GlueKey*)pContext;
  RecordCompare xCompare = pKey->xCompare;
  UnpackedRecord *pRecord = pKey->pRecord;
  unsigned int lwr = *pnNotLarger;
  unsigned int upr = nRecord;
  int bEqual = 0;
  while( lwr<upr ){
    unsigned int idx = lwr + (upr-lwr)/2;
    int c = xCompare((int)aRecord[idx].size, &aByte[aRecord[idx].offset], pRecord);
    if( c>0 ){
      upr = idx;
    }else{
      lwr = idx+1;
      bEqual = c==0;
    }
  }
  *pnNotLarger = lwr;
  *pbEqual = bEqual;
  return pRecord->errCode ? pRecord->errCode : SQLITE_OK;
}

static void glueKeyInit(GlueKey *pKey, UnpackedRecord *pRecord){
  pKey->sought.compare = glueCompare;
  pKey->sought.search = glueSearch;
  pKey->sought.abbreviate = glueAbbreviate;
  pKey->sought.context = pKey;
  pKey->sought.kind = pRecord->nField ? glueAbbreviation(pRecord->pKeyInfo) : 0;
  pKey->sought.number = pKey->sought.kind ? glueOfSought(pKey->sought.kind, pRecord->aMem) : 0;
  pKey->pRecord = pRecord;
  pKey->xCompare = sqlite3VdbeFindCompare(pRecord);
  pRecord->errCode = 0;
}

/* In an index whose key columns are unique and never NULL, they alone give the order (SQLite
** inserts and deletes by them). All searches must then compare by them. Otherwise the fields that
** follow would be compared with those of a router, whose entry is long gone. */
static int glueOrderedByKey(const KeyInfo *pKeyInfo){
  return pKeyInfo->nAllField>pKeyInfo->nKeyField;
}

/* Unpacks a record as far as it affects the order; sqlite3DbFree() frees it. */
static int glueUnpack(KeyInfo *pKeyInfo, const void *pKey, i64 nKey, UnpackedRecord **ppRecord){
  UnpackedRecord *pRecord = sqlite3VdbeAllocUnpackedRecord(pKeyInfo);
  *ppRecord = pRecord;
  if( pRecord==0 ) return SQLITE_NOMEM_BKPT;
#if SQLITE_VERSION_NUMBER>=3051000
  sqlite3VdbeRecordUnpack((int)nKey, pKey, pRecord);
#else
  sqlite3VdbeRecordUnpack(pKeyInfo, (int)nKey, pKey, pRecord);
#endif
  if( pRecord->nField==0 || pRecord->nField>pKeyInfo->nAllField ) return SQLITE_CORRUPT_BKPT;
  if( glueOrderedByKey(pKeyInfo) && pRecord->nField>pKeyInfo->nKeyField ) pRecord->nField = pKeyInfo->nKeyField;
  return SQLITE_OK;
}

/* After a move by the Rust side: on an entry, nowhere, or an error. */
static int glueArrived(BtCursor *pCur, int rc){
  GlueCursor *p = GLUE_CURSOR(pCur);
  pCur->eState = rc==SQLITE_OK ? CURSOR_VALID : CURSOR_INVALID;
  p->nBase++;
  p->iAt = p->iKey = p->iRow = 0;
  if( rc!=SQLITE_OK ){
    p->row.before = p->row.behind = 0;
  }else if( p->row.payload==0 ){
    p->iRow = GLUE_NO_PAYLOAD;
  }
  return rc;
}

/* The current entry's rowid, in a table. A step looks at none, and neither at the place of a payload:
** each would be a line of the processor's cache, and SQLite mostly asks for one of the two. */
static SQLITE_INLINE i64 glueRowid(GlueCursor *p){
  EngineRow *pRow = &p->row;
  if( p->iKey!=p->iAt ){
    if( pRow->rowids ) pRow->rowid = pRow->rowids[p->iAt];
    p->iKey = p->iAt;
  }
  return pRow->rowid;
}

/* The current entry, but for its rowid. */
static SQLITE_INLINE EngineRow *glueRow(GlueCursor *p){
  EngineRow *pRow = &p->row;
  if( p->iRow!=p->iAt ){
    const EngineSpan *pSpan = &pRow->spans[p->iAt];
    pRow->payload = &pRow->bytes[pSpan->offset];
    pRow->local = pRow->total = pSpan->size;
    p->iRow = p->iAt;
  }
  return pRow;
}

/* Tells the Rust side the cursor's place, before a call that depends on it. Where that is
** impossible now (a collation reads a BLOB while the Rust side is at work) nothing is forgotten. */
static int glueSync(GlueCursor *p){
  EngineRow *pRow = &p->row;
  int rc;
  if( p->iAt==0 ) return SQLITE_OK;
  glueRowid(p);
  rc = lsmvbt_skip(p->pEngine, p->id, p->iAt);
  if( rc!=SQLITE_OK ) return rc;
  pRow->spans += p->iAt;
  if( pRow->rowids ) pRow->rowids += p->iAt;
  pRow->before += p->iAt;
  pRow->behind -= p->iAt;
  p->iRow = p->iRow==p->iAt ? 0 : GLUE_NO_PAYLOAD;
  p->iAt = p->iKey = 0;
  p->nBase++;
  return SQLITE_OK;
}

/* Before a search, as moveToRoot() does: a cursor in the fault state returns its error, and one
** with a saved place drops it. (A cursor that glueRestore() brings back is INVALID by then, and
** keeps its key.) */
static int glueBeforeSeek(BtCursor *pCur){
  if( pCur->eState>=CURSOR_REQUIRESEEK ){
    if( pCur->eState==CURSOR_FAULT ) return pCur->skipNext;
    sqlite3BtreeClearCursor(pCur);
  }
  return SQLITE_OK;
}

static int glueNext(BtCursor *pCur, int flags);

static int glueTableMoveto(BtCursor *pCur, i64 intKey, int bias, int *pRes){
  GlueCursor *p = GLUE_CURSOR(pCur);
  int rc;
  UNUSED_PARAMETER( bias );
  assert( pCur->pKeyInfo==0 );
#ifdef SQLITE_DEBUG
  pCur->pBtree->nSeek++;
#endif
  if( pCur->eState==CURSOR_VALID && glueRowid(p)<intKey && intKey==p->row.rowid+1 ){
    /* SQLite often asks for rows one after the other. */
    rc = glueNext(pCur, 0);
    if( rc!=SQLITE_OK && rc!=SQLITE_DONE ) return rc;
  }
  if( pCur->eState==CURSOR_VALID && glueRowid(p)==intKey ){
    *pRes = 0;
    return SQLITE_OK;
  }
  rc = glueBeforeSeek(pCur);
  if( rc!=SQLITE_OK ) return rc;
  rc = glueArrived(pCur, lsmvbt_seek_rowid(p->pEngine, p->id, intKey, pRes, &p->row));
  if( rc==SQLITE_DONE ){
    *pRes = -1;
    rc = SQLITE_OK;
  }
  return rc;
}

static int gluePayload(BtCursor *pCur, u32 offset, u32 amt, void *pBuf){
  GlueCursor *p = GLUE_CURSOR(pCur);
  const EngineRow *pRow = glueRow(p);
  int rc;
  assert( pCur->eState==CURSOR_VALID );
  if( (u64)offset+amt<=pRow->local ){
    memcpy(pBuf, pRow->payload+offset, amt);
    return SQLITE_OK;
  }
  if( (u64)offset+amt>pRow->total ) return SQLITE_CORRUPT_BKPT;
  rc = glueSync(p);
  return rc==SQLITE_OK ? lsmvbt_read(p->pEngine, p->id, offset, amt, pBuf) : rc;
}

/* A copy of the whole payload, padded; sqlite3_free() frees it. */
static int glueCopyPayload(BtCursor *pCur, u8 **paCopy){
  u32 nTotal = glueRow(GLUE_CURSOR(pCur))->total;
  u8 *aCopy = sqlite3Malloc((u64)nTotal + GLUE_PADDING);
  int rc;
  *paCopy = 0;
  if( aCopy==0 ) return SQLITE_NOMEM_BKPT;
  rc = gluePayload(pCur, 0, nTotal, aCopy);
  if( rc!=SQLITE_OK ){
    sqlite3_free(aCopy);
    return rc;
  }
  memset(aCopy+nTotal, 0, GLUE_PADDING);
  *paCopy = aCopy;
  return SQLITE_OK;
}

/* The order of the current entry relative to the sought one. */
static int glueCompareHere(BtCursor *pCur, GlueKey *pKey, int *pRes){
  const EngineRow *pRow = glueRow(GLUE_CURSOR(pCur));
  u8 *aRecord;
  int rc;
  if( pRow->local==pRow->total ) return glueCompare(pKey, pRow->payload, pRow->total, pRes);
  rc = glueCopyPayload(pCur, &aRecord);
  if( rc==SQLITE_OK ) rc = glueCompare(pKey, aRecord, pRow->total, pRes);
  sqlite3_free(aRecord);
  return rc;
}

/* Moves to the next entry, or back, if it is shown. It needs no call, which is the usual case in a
** scan. */
static SQLITE_INLINE int glueStepShown(BtCursor *pCur, int direction){
  GlueCursor *p = GLUE_CURSOR(pCur);
  int iAt = p->iAt;
  if( pCur->eState!=CURSOR_VALID || (direction>0 ? iAt>=p->row.behind : iAt<=-p->row.before) ) return 0;
  p->iAt = iAt + direction;
  return 1;
}

/* Moves to the next entry, or back to the previous one. */
static int glueMove(BtCursor *pCur, int bBack){
  GlueCursor *p = GLUE_CURSOR(pCur);
  int rc = glueSync(p);
  return glueArrived(pCur, rc==SQLITE_OK ? lsmvbt_step(p->pEngine, p->id, bBack, &p->row) : rc);
}

/* A search with a default_rc has seen an equal record (eqSeen), which OP_SeekGE and similar opcodes
** ask for. The engine may have compared with a dead entry or a router. So check that the first
** entry on the side to which equal ones count is really equal. The cursor may go to that entry, or
** stay. */
static int glueConfirmEqual(BtCursor *pCur, GlueKey *pKey, int *pRes){
  GlueCursor *p = GLUE_CURSOR(pCur);
  int side = pKey->pRecord->default_rc>0 ? +1 : -1;
  int rc = SQLITE_OK;
  if( (*pRes<0)==(side>0) ){
    rc = glueStepShown(pCur, side) ? SQLITE_OK : glueMove(pCur, side<0);
    if( rc==SQLITE_DONE ){
      /* No entry on that side: go back. */
      pKey->pRecord->eqSeen = 0;
      return glueArrived(pCur, side>0 ? lsmvbt_last(p->pEngine, p->id, &p->row)
                                      : lsmvbt_first(p->pEngine, p->id, &p->row));
    }
  }
  pKey->pRecord->eqSeen = 0;
  return rc==SQLITE_OK ? glueCompareHere(pCur, pKey, pRes) : rc;
}

static int glueSeekRecord(BtCursor *pCur, GlueKey *pKey, int *pRes){
  GlueCursor *p = GLUE_CURSOR(pCur);
  return glueArrived(pCur, lsmvbt_seek_record(p->pEngine, p->id, &pKey->sought, pRes, &p->row));
}

/* Seeks by more fields than those that give the order. At most one entry matches those fields. The
** other fields decide on which side of it the sought one lies. */
static int glueSeekBeyondKey(BtCursor *pCur, GlueKey *pKey, int *pRes){
  UnpackedRecord *pRecord = pKey->pRecord;
  u16 nField = pRecord->nField;
  i8 default_rc = pRecord->default_rc;
  int rc;
  pRecord->nField = pCur->pKeyInfo->nKeyField;
  pRecord->default_rc = 0;
  rc = glueSeekRecord(pCur, pKey, pRes);
  pRecord->nField = nField;
  pRecord->default_rc = default_rc;
  pRecord->eqSeen = 0;
  if( rc==SQLITE_OK && *pRes==0 ) rc = glueCompareHere(pCur, pKey, pRes);
  return rc;
}

static int glueIndexMoveto(BtCursor *pCur, UnpackedRecord *pRecord, int *pRes){
  const KeyInfo *pKeyInfo = pCur->pKeyInfo;
  GlueKey key;
  int rc;
  assert( pKeyInfo!=0 );
#ifdef SQLITE_DEBUG
  pCur->pBtree->nSeek++;
#endif
  rc = glueBeforeSeek(pCur);
  if( rc!=SQLITE_OK ) return rc;
  glueKeyInit(&key, pRecord);
  if( glueOrderedByKey(pKeyInfo) && pRecord->nField>pKeyInfo->nKeyField ){
    rc = glueSeekBeyondKey(pCur, &key, pRes);
  }else{
    rc = glueSeekRecord(pCur, &key, pRes);
  }
  if( rc==SQLITE_DONE ){
    pRecord->eqSeen = 0;
    *pRes = -1;
    rc = SQLITE_OK;
  }else if( rc==SQLITE_OK && pRecord->default_rc!=0 && pRecord->eqSeen ){
    rc = glueConfirmEqual(pCur, &key, pRes);
  }
  return rc;
}

/* Seeks a rowid, or a packed record if there is one. */
static int glueMoveto(BtCursor *pCur, const void *pKey, i64 nKey, int *pRes){
  UnpackedRecord *pRecord = 0;
  int rc;
  if( pKey==0 ) return glueTableMoveto(pCur, nKey, 0, pRes);
  rc = glueUnpack(pCur->pKeyInfo, pKey, nKey, &pRecord);
  if( rc==SQLITE_OK ) rc = glueIndexMoveto(pCur, pRecord, pRes);
  sqlite3DbFree(pCur->pKeyInfo->db, pRecord);
  return rc;
}

/* Saves the place of a cursor, so that its tree may change. */
static int glueSaveKey(BtCursor *pCur){
  u8 *aKey;
  int rc;
  assert( pCur->pKey==0 );
  if( pCur->pKeyInfo==0 ){
    pCur->nKey = glueRowid(GLUE_CURSOR(pCur));
    return SQLITE_OK;
  }
  rc = glueCopyPayload(pCur, &aKey);
  pCur->nKey = glueRow(GLUE_CURSOR(pCur))->total;
  pCur->pKey = aKey;
  return rc;
}

static int glueSave(BtCursor *pCur){
  int rc;
  assert( pCur->eState==CURSOR_VALID || pCur->eState==CURSOR_SKIPNEXT );
  if( pCur->curFlags & BTCF_Pinned ) return SQLITE_CONSTRAINT_PINNED;
  if( pCur->eState==CURSOR_SKIPNEXT ){
    pCur->eState = CURSOR_VALID;
  }else{
    pCur->skipNext = 0;
  }
  rc = glueSaveKey(pCur);
  if( rc==SQLITE_OK ) pCur->eState = CURSOR_REQUIRESEEK;
  return rc;
}

/* Saves all cursors on a tree, or on all trees if it is 0, but one. */
static int glueSaveAll(BtShared *pBt, Pgno iRoot, BtCursor *pExcept){
  BtCursor *p;
  for(p=pBt->pCursor; p; p=p->pNext){
    if( p==pExcept || (iRoot!=0 && p->pgnoRoot!=iRoot) ) continue;
    if( p->eState==CURSOR_VALID || p->eState==CURSOR_SKIPNEXT ){
      int rc = glueSave(p);
      if( rc!=SQLITE_OK ) return rc;
    }
  }
  return SQLITE_OK;
}

/* Goes back to the saved place of a cursor, or to a neighbor. */
static int glueRestore(BtCursor *pCur){
  int skipNext = 0;
  int rc;
  if( pCur->eState<CURSOR_REQUIRESEEK ) return SQLITE_OK;
  if( pCur->eState==CURSOR_FAULT ) return pCur->skipNext;
  pCur->eState = CURSOR_INVALID;
  rc = glueMoveto(pCur, pCur->pKey, pCur->nKey, &skipNext);
  if( rc!=SQLITE_OK ) return rc;
  sqlite3_free(pCur->pKey);
  pCur->pKey = 0;
  if( skipNext ) pCur->skipNext = skipNext;
  if( pCur->skipNext && pCur->eState==CURSOR_VALID ) pCur->eState = CURSOR_SKIPNEXT;
  return SQLITE_OK;
}

static int glueCursorRestore(BtCursor *pCur, int *pDifferentRow){
  int rc = glueRestore(pCur);
  *pDifferentRow = rc!=SQLITE_OK || pCur->eState!=CURSOR_VALID;
  return rc;
}

static int glueCursor(Btree *p, Pgno iTable, int wrFlag, struct KeyInfo *pKeyInfo, BtCursor *pCur){
  GlueCursor *pNew = GLUE_CURSOR(pCur);
  BtShared *pBt = p->pBt;
  unsigned int id;
  int rc;
  assert( p->inTrans>TRANS_NONE );
  assert( wrFlag==0 || p->inTrans==TRANS_WRITE );
  if( iTable<1 ) return SQLITE_CORRUPT_BKPT;
  rc = lsmvbt_cursor_open(GLUE(p)->pEngine, iTable, pKeyInfo==0, &id);
  if( rc!=SQLITE_OK ) return rc;
  pNew->pEngine = GLUE(p)->pEngine;
  pNew->id = id;
  pNew->nBase = 0;
  pNew->iAt = pNew->iKey = pNew->iRow = 0;
  memset(&pNew->row, 0, sizeof(pNew->row));
  pCur->pgnoRoot = iTable;
  pCur->iPage = -1;
  pCur->pKeyInfo = pKeyInfo;
  pCur->curIntKey = pKeyInfo==0;
  pCur->pBtree = p;
  pCur->pBt = pBt;
  pCur->pKey = 0;
  pCur->aOverflow = 0;
  pCur->curFlags = BTCF_Glue | (wrFlag ? BTCF_WriteFlag : 0);
  pCur->eState = CURSOR_INVALID;
  pCur->pNext = pBt->pCursor;
  pBt->pCursor = pCur;
  return SQLITE_OK;
}

static int glueCloseCursor(BtCursor *pCur){
  BtCursor **pp;
  if( pCur->pBtree==0 ) return SQLITE_OK;
  for(pp=&pCur->pBt->pCursor; *pp && *pp!=pCur; pp=&(*pp)->pNext){}
  if( ALWAYS(*pp) ) *pp = pCur->pNext;
  lsmvbt_cursor_close(GLUE_CURSOR(pCur)->pEngine, GLUE_CURSOR(pCur)->id);
  sqlite3_free(pCur->pKey);
  pCur->pKey = 0;
  pCur->pBtree = 0;
  return SQLITE_OK;
}

/* A cursor in the fault state returns its error before it moves anywhere. */
static int glueToEnd(BtCursor *pCur, int (*xMove)(EngineDb*,unsigned int,EngineRow*), int *pRes){
  GlueCursor *p = GLUE_CURSOR(pCur);
  int rc;
  if( pCur->eState>=CURSOR_REQUIRESEEK ){
    if( pCur->eState==CURSOR_FAULT ) return pCur->skipNext;
    sqlite3BtreeClearCursor(pCur);
  }
  rc = glueArrived(pCur, xMove(p->pEngine, p->id, &p->row));
  if( rc==SQLITE_DONE ){
    *pRes = 1;
    return SQLITE_OK;
  }
  *pRes = 0;
  return rc;
}

static int glueFirst(BtCursor *pCur, int *pRes){
  return glueToEnd(pCur, lsmvbt_first, pRes);
}

static int glueLast(BtCursor *pCur, int *pRes){
  return glueToEnd(pCur, lsmvbt_last, pRes);
}

static int glueIsEmpty(BtCursor *pCur, int *pRes){
  if( pCur->eState==CURSOR_VALID ){
    *pRes = 0;
    return SQLITE_OK;
  }
  return glueToEnd(pCur, lsmvbt_first, pRes);
}

/* The next entry in one direction, +1 or -1. A restored cursor may already be there: on the entry
** after the one it lost. */
static SQLITE_NOINLINE int glueStep(BtCursor *pCur, int direction){
  if( pCur->eState!=CURSOR_VALID ){
    int rc = glueRestore(pCur);
    if( rc!=SQLITE_OK ) return rc;
    if( pCur->eState==CURSOR_INVALID ) return SQLITE_DONE;
    if( pCur->eState==CURSOR_SKIPNEXT ){
      pCur->eState = CURSOR_VALID;
      if( (direction>0 && pCur->skipNext>0) || (direction<0 && pCur->skipNext<0) ) return SQLITE_OK;
    }
  }
  return glueMove(pCur, direction<0);
}

static int glueNext(BtCursor *pCur, int flags){
  UNUSED_PARAMETER( flags );
  return glueStepShown(pCur, +1) ? SQLITE_OK : glueStep(pCur, +1);
}

static int gluePrevious(BtCursor *pCur, int flags){
  UNUSED_PARAMETER( flags );
  return glueStepShown(pCur, -1) ? SQLITE_OK : glueStep(pCur, -1);
}

static i64 glueIntegerKey(BtCursor *pCur){
  assert( pCur->eState==CURSOR_VALID && pCur->curIntKey );
  return glueRowid(GLUE_CURSOR(pCur));
}

static u32 gluePayloadSize(BtCursor *pCur){
  assert( pCur->eState==CURSOR_VALID );
  return glueRow(GLUE_CURSOR(pCur))->total;
}

static const void *gluePayloadFetch(BtCursor *pCur, u32 *pAmt){
  const EngineRow *pRow = glueRow(GLUE_CURSOR(pCur));
  assert( pCur->eState==CURSOR_VALID );
  *pAmt = pRow->local;
  return pRow->payload;
}

/* An entry's offset in the file has no meaning here. But OP_Column keeps a long value while this
** number of its cursor stays the same. So another row needs another number, and so does a row with
** new content. A page has fewer than 65,536 entries. */
static i64 glueOffset(BtCursor *pCur){
  GlueCursor *p = GLUE_CURSOR(pCur);
  return p->nBase*0x20000 + p->iAt;
}

/* An upper bound to detect corruption: the engine has its own checksums. */
static sqlite3_int64 glueMaxRecordSize(BtCursor *pCur){
  UNUSED_PARAMETER( pCur );
  return 0x7fffffff;
}

static int gluePayloadChecked(BtCursor *pCur, u32 offset, u32 amt, void *pBuf){
  if( pCur->eState!=CURSOR_VALID ){
    int rc;
    if( pCur->eState==CURSOR_INVALID ) return SQLITE_ABORT;
    rc = glueRestore(pCur);
    if( rc!=SQLITE_OK ) return rc;
    if( pCur->eState!=CURSOR_VALID ) return SQLITE_ABORT;
  }
  return gluePayload(pCur, offset, amt, pBuf);
}

static int glueCount(sqlite3 *db, BtCursor *pCur, i64 *pnEntry){
  UNUSED_PARAMETER( db );
  return lsmvbt_count(GLUE_CURSOR(pCur)->pEngine, pCur->pgnoRoot, pnEntry);
}

/* For the planner, which asks rarely and for single trees: unknown, as stock SQLite says of a
** cursor that is not on a leaf. */
static i64 glueRowCountEst(BtCursor *pCur){
  UNUSED_PARAMETER( pCur );
  return -1;
}
