/*
** Functions of the pager, as all code but the stock B-tree sees them. A pager of the other engine
** has a file open, and no pages.
*/

/* The other engine's handle that a pager belongs to; 0 if it is a stock one. */
static GlueBtree *glueOfPager(Pager *pPager){
  BtShared *pBt;
  if( pPager->xReiniter!=glueReinit ) return 0;
  pBt = (BtShared*)pPager->pBusyHandlerArg;
  return (GlueBtree*)(((u8*)pBt) - offsetof(GlueBtree, shared));
}

SQLITE_PRIVATE int sqlite3PagerGet(Pager *pPager, Pgno pgno, DbPage **ppPage, int clrFlag){
  if( glueOfPager(pPager) ){
    *ppPage = 0;
    sqlite3_log(SQLITE_ERROR, "%s has no SQLite pages", pPager->zFilename);
    return SQLITE_ERROR;
  }
  return stock_sqlite3PagerGet(pPager, pgno, ppPage, clrFlag);
}

/* Not 0, which would pass for an empty database. A caller that asks for a page gets none. */
SQLITE_PRIVATE void sqlite3PagerPagecount(Pager *pPager, int *pnPage){
  if( glueOfPager(pPager) ){
    *pnPage = 1;
  }else{
    stock_sqlite3PagerPagecount(pPager, pnPage);
  }
}

SQLITE_PRIVATE int sqlite3PagerExclusiveLock(Pager *pPager){
  return glueOfPager(pPager) ? SQLITE_OK : stock_sqlite3PagerExclusiveLock(pPager);
}

SQLITE_PRIVATE int sqlite3PagerFlush(Pager *pPager){
  return glueOfPager(pPager) ? SQLITE_OK : stock_sqlite3PagerFlush(pPager);
}

SQLITE_PRIVATE int sqlite3PagerOkToChangeJournalMode(Pager *pPager){
  return glueOfPager(pPager) ? 0 : stock_sqlite3PagerOkToChangeJournalMode(pPager);
}

/* SQLITE_FCNTL_DATA_VERSION counts this connection's commits, too; PRAGMA data_version does not, and does not come here. */
SQLITE_PRIVATE u32 sqlite3PagerDataVersion(Pager *pPager){
  GlueBtree *p = glueOfPager(pPager);
  return p ? lsmvbt_data_version(p->pEngine) + p->nCommit : stock_sqlite3PagerDataVersion(pPager);
}
