/*
** The database file for the Rust side.
*/

int lsmvbt_file_read(sqlite3_file *pFile, void *pBuf, int n, sqlite3_int64 iOfst){
  return sqlite3OsRead(pFile, pBuf, n, iOfst);
}

int lsmvbt_file_write(sqlite3_file *pFile, const void *pData, int n, sqlite3_int64 iOfst){
  return sqlite3OsWrite(pFile, pData, n, iOfst);
}

int lsmvbt_file_truncate(sqlite3_file *pFile, sqlite3_int64 nByte){
  return sqlite3OsTruncate(pFile, nByte);
}

/* With PRAGMA fullfsync, F_FULLFSYNC where the system has it. */
int lsmvbt_file_sync(sqlite3_file *pFile, int fullfsync){
  return sqlite3OsSync(pFile, (fullfsync ? SQLITE_SYNC_FULL : SQLITE_SYNC_NORMAL)|SQLITE_SYNC_DATAONLY);
}

int lsmvbt_file_size(sqlite3_file *pFile, sqlite3_int64 *pSize){
  return sqlite3OsFileSize(pFile, pSize);
}

/* SQLITE_IOERR_SHMMAP where the VFS has no shared memory. */
int lsmvbt_file_shm_map(sqlite3_file *pFile, int iRegion, int nRegion, void **ppMemory){
  int rc;
  *ppMemory = 0;
  if( pFile->pMethods->iVersion<2 || pFile->pMethods->xShmMap==0 ) return SQLITE_IOERR_SHMMAP;
  rc = sqlite3OsShmMap(pFile, iRegion, nRegion, 1, (void volatile**)ppMemory);
  return rc==SQLITE_OK && *ppMemory==0 ? SQLITE_IOERR_SHMMAP : rc;
}

int lsmvbt_file_shm_lock(sqlite3_file *pFile, int iLock, int isExclusive, int isRelease){
  int flags = (isExclusive ? SQLITE_SHM_EXCLUSIVE : SQLITE_SHM_SHARED) | (isRelease ? SQLITE_SHM_UNLOCK : SQLITE_SHM_LOCK);
  return sqlite3OsShmLock(pFile, iLock, 1, flags);
}

/* The file of the shared memory stays: other connections may have it open, and its next user empties it. */
void lsmvbt_file_shm_unmap(sqlite3_file *pFile){
  if( pFile->pMethods->iVersion>=2 && pFile->pMethods->xShmUnmap ) (void)sqlite3OsShmUnmap(pFile, 0);
}

/*
** Finds out how the VFS writes 4 KiB. 1: it promises all or nothing. 2: it is one of SQLite's own for Unix. Its
** files are as the kernel shows them. 0: unknown.
*/
int lsmvbt_file_writes(sqlite3_file *pFile){
  char *zName = 0;
  int isUnix;
  if( sqlite3OsDeviceCharacteristics(pFile) & (SQLITE_IOCAP_ATOMIC|SQLITE_IOCAP_ATOMIC4K) ) return 1;
  (void)sqlite3OsFileControl(pFile, SQLITE_FCNTL_VFSNAME, &zName);
  isUnix = zName!=0 && sqlite3_strnicmp(zName, "unix", 4)==0;
  sqlite3_free(zName);
  return isUnix ? 2 : 0;
}
