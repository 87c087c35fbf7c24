/*
** lsmvbt_diff(table, from, to, schema), a table-valued function: the rows of a table that differ
** between two versions. The versions are numbers or times, as in PRAGMA lsmvbt_version. Without `to`
** it is the newest one; without `schema` the database is main.
**
** Every connection gets it. Of a database of SQLite's own it only says that it is none of the other engine.
*/
#ifndef SQLITE_OMIT_VIRTUALTABLE

/* The first hidden column, and the number of them: they are the arguments. */
#define DIFF_ARGUMENTS 2
#define DIFF_COUNT 4

typedef struct GlueDiff GlueDiff;
struct GlueDiff {
  sqlite3_vtab base;  /* Must be first */
  sqlite3 *db;
};

typedef struct GlueDiffCursor GlueDiffCursor;
struct GlueDiffCursor {
  sqlite3_vtab_cursor base;  /* Must be first */
  EngineChange *aChange;     /* All changes */
  sqlite3_int64 nChange;
  sqlite3_int64 iAt;
};

static int glueDiffConnect(
  sqlite3 *db, void *pAux, int argc, const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr
){
  GlueDiff *p;
  int rc = sqlite3_declare_vtab(db, "CREATE TABLE x(change TEXT, rowid INTEGER, \"table\" HIDDEN, "
                                    "from_version HIDDEN, to_version HIDDEN, schema HIDDEN)");
  (void)pAux; (void)argc; (void)argv; (void)pzErr;
  if( rc!=SQLITE_OK ) return rc;
  p = sqlite3_malloc64(sizeof(*p));
  if( p==0 ) return SQLITE_NOMEM_BKPT;
  memset(p, 0, sizeof(*p));
  p->db = db;
  *ppVtab = &p->base;
  return SQLITE_OK;
}

static int glueDiffDisconnect(sqlite3_vtab *pVtab){
  sqlite3_free(pVtab);
  return SQLITE_OK;
}

/* The arguments that are there are passed in their order; a bit of idxNum says that one is. */
static int glueDiffBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo){
  int aAt[DIFF_COUNT] = {-1, -1, -1, -1};
  int i, nArg = 0;
  (void)pVtab;
  for(i=0; i<pInfo->nConstraint; i++){
    int iArg = pInfo->aConstraint[i].iColumn - DIFF_ARGUMENTS;
    if( iArg<0 || iArg>=DIFF_COUNT || pInfo->aConstraint[i].op!=SQLITE_INDEX_CONSTRAINT_EQ ) continue;
    if( !pInfo->aConstraint[i].usable ) return SQLITE_CONSTRAINT;
    aAt[iArg] = i;
  }
  for(i=0; i<DIFF_COUNT; i++){
    if( aAt[i]<0 ) continue;
    pInfo->aConstraintUsage[aAt[i]].argvIndex = ++nArg;
    pInfo->aConstraintUsage[aAt[i]].omit = 1;
    pInfo->idxNum |= 1<<i;
  }
  pInfo->estimatedCost = 100000;
  pInfo->estimatedRows = 1000;
  return SQLITE_OK;
}

static int glueDiffOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor){
  GlueDiffCursor *p = sqlite3_malloc64(sizeof(*p));
  (void)pVtab;
  if( p==0 ) return SQLITE_NOMEM_BKPT;
  memset(p, 0, sizeof(*p));
  *ppCursor = &p->base;
  return SQLITE_OK;
}

static int glueDiffClose(sqlite3_vtab_cursor *pCursor){
  sqlite3_free(((GlueDiffCursor*)pCursor)->aChange);
  sqlite3_free(pCursor);
  return SQLITE_OK;
}

static int glueDiffFilter(
  sqlite3_vtab_cursor *pCursor, int idxNum, const char *idxStr, int argc, sqlite3_value **argv
){
  GlueDiffCursor *p = (GlueDiffCursor*)pCursor;
  sqlite3_vtab *pVtab = pCursor->pVtab;
  const char *azArg[DIFF_COUNT] = {0, 0, 0, 0};
  Btree *pBt;
  char *zErr = 0;
  int i, nArg = 0, rc;
  (void)idxStr; (void)argc;
  for(i=0; i<DIFF_COUNT; i++){
    if( idxNum & 1<<i ) azArg[i] = (const char*)sqlite3_value_text(argv[nArg++]);
  }
  sqlite3_free(p->aChange);
  p->aChange = 0;
  p->nChange = p->iAt = 0;
  if( azArg[0]==0 || azArg[1]==0 ){
    zErr = sqlite3_mprintf("lsmvbt_diff takes a table, and a version to begin from");
    rc = SQLITE_ERROR;
  }else{
    pBt = sqlite3DbNameToBtree(((GlueDiff*)pVtab)->db, azArg[3] ? azArg[3] : "main");
    if( glueOwns(pBt) ){
      rc = lsmvbt_diff(GLUE(pBt)->pEngine, azArg[0], azArg[1], azArg[2], &p->aChange, &p->nChange, &zErr);
    }else{
      zErr = sqlite3_mprintf("lsmvbt_diff: %s is no database of lsmvbt", azArg[3] ? azArg[3] : "main");
      rc = SQLITE_ERROR;
    }
  }
  if( zErr ){
    sqlite3_free(pVtab->zErrMsg);
    pVtab->zErrMsg = zErr;
  }
  return rc;
}

static int glueDiffNext(sqlite3_vtab_cursor *pCursor){
  ((GlueDiffCursor*)pCursor)->iAt++;
  return SQLITE_OK;
}

static int glueDiffEof(sqlite3_vtab_cursor *pCursor){
  GlueDiffCursor *p = (GlueDiffCursor*)pCursor;
  return p->iAt>=p->nChange;
}

static int glueDiffColumn(sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int iColumn){
  static const char *const azKind[] = {"insert", "update", "delete"};
  GlueDiffCursor *p = (GlueDiffCursor*)pCursor;
  if( iColumn==0 ){
    sqlite3_result_text(pCtx, azKind[p->aChange[p->iAt].kind], -1, SQLITE_STATIC);
  }else if( iColumn==1 ){
    sqlite3_result_int64(pCtx, p->aChange[p->iAt].rowid);
  }
  return SQLITE_OK;
}

static int glueDiffRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid){
  *piRowid = ((GlueDiffCursor*)pCursor)->iAt;
  return SQLITE_OK;
}

/* Without xCreate: the table is there without a CREATE VIRTUAL TABLE. */
static const sqlite3_module glueDiffModule = {
  .xConnect = glueDiffConnect,
  .xBestIndex = glueDiffBestIndex,
  .xDisconnect = glueDiffDisconnect,
  .xOpen = glueDiffOpen,
  .xClose = glueDiffClose,
  .xFilter = glueDiffFilter,
  .xNext = glueDiffNext,
  .xEof = glueDiffEof,
  .xColumn = glueDiffColumn,
  .xRowid = glueDiffRowid,
};

/* The public function would refuse: the connection is not open yet. */
static int glueDiffRegister(sqlite3 *db){
  if( sqlite3HashFind(&db->aModule, "lsmvbt_diff") ) return SQLITE_OK;
  return sqlite3VtabCreateModule(db, "lsmvbt_diff", &glueDiffModule, 0, 0) ? SQLITE_OK : SQLITE_NOMEM_BKPT;
}

#else
static int glueDiffRegister(sqlite3 *db){
  (void)db;
  return SQLITE_OK;
}
#endif
