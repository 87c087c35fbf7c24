/*
** VACUUM in place, and what PRAGMA incremental_vacuum leaves for the time after the commit. The engine
** takes steps, each a transaction of its own. Between two of them other connections write.
*/

/* SQLite looks at these between the instructions of a statement. A vacuum is one instruction. */
static int glueInterrupted(sqlite3 *db){
  if( AtomicLoad(&db->u1.isInterrupted) ) return 1;
#ifndef SQLITE_OMIT_PROGRESS_CALLBACK
  if( db->xProgress && db->xProgress(db->pProgressArg) ) return 1;
#endif
  return 0;
}

/* Takes all steps of a vacuum; nPage is 0, or the most pages to remove. Whatever ends it, the steps that
** it has taken stay. A step that has to wait for another connection, a writer or a reader, is tried again
** as long as the busy handler says. The count of its calls begins again after each step: the next one is
** further. A part of a vacuum waits for no reader, as the next part comes. Where the busy handler gives up
** for a reader, what is free at the end goes, which waits for writers alone. pzReason is for sqlite3_free(). */
static int glueVacuumSteps(Btree *p, u32 nPage, char **pzReason){
  sqlite3 *db = p->db;
  char *zReader = 0;  /* why, once it has given up for a reader */
  int rc;
  lsmvbt_vacuum_begin(GLUE(p)->pEngine, nPage);
  db->busyHandler.nBusy = 0;
  do{
    int isForReader;
    sqlite3_free(*pzReason);
    *pzReason = 0;
    if( glueInterrupted(db) ){
      rc = SQLITE_INTERRUPT;
      break;
    }
    rc = lsmvbt_vacuum(GLUE(p)->pEngine, pzReason);
    isForReader = *pzReason!=0;
    if( rc==SQLITE_OK ){
      db->busyHandler.nBusy = 0;
    }else if( (rc&0xFF)!=SQLITE_BUSY || (isForReader && (nPage || zReader)) ){
      break;
    }else if( !btreeInvokeBusyHandler(p->pBt) ){
      if( !isForReader ) break;
      zReader = *pzReason;
      *pzReason = 0;
      db->busyHandler.nBusy = 0;
      lsmvbt_vacuum_give_up(GLUE(p)->pEngine);
    }
  }while( 1 );
  if( (rc&0xFF)==SQLITE_BUSY && *pzReason==0 ){
    /* A writer was in the way of the rest. */
    *pzReason = zReader;
  }else{
    sqlite3_free(zReader);
  }
  return rc==SQLITE_DONE ? SQLITE_OK : rc;
}

/* Removes the pages that PRAGMA incremental_vacuum has counted, once all databases of the transaction
** have committed. Until then a crash may leave some of them without the others, and moving pages would
** only make that time longer. The commit stands, so there is no error: what cannot be removed now,
** the next call removes. */
static void glueVacuumAfter(sqlite3 *db){
  int i;
  for(i=0; i<db->nDb; i++){
    if( i!=1 && sqlite3BtreeTxnState(db->aDb[i].pBt)==SQLITE_TXN_WRITE ) return;
  }
  for(i=0; i<db->nDb; i++){
    Btree *p = db->aDb[i].pBt;
    char *zReason = 0;
    u32 nVacuum;
    if( !glueOwns(p) || GLUE(p)->nVacuum==0 ) continue;
    nVacuum = GLUE(p)->nVacuum;
    GLUE(p)->nVacuum = 0;
    if( p->inTrans==TRANS_NONE ) (void)glueVacuumSteps(p, nVacuum, &zReason);
    sqlite3_free(zReason);
  }
}
