/*
** The database file for the Rust side.
*/

int lsmvbt_file_read(sqlite3_file *pFile, void *pBuf, int n, sqlite3_int64 iOfst){
  return sqlite3OsRead(pFile, pBuf, n, iOfst);
}

/* The descriptor of a file of SQLite's own VFS for Unix; -1 of any other. It is for hints about reads: nothing
** may be read or written around a VFS. */
int lsmvbt_file_descriptor(sqlite3_file *pFile){
#if SQLITE_OS_UNIX
  if( pFile->pMethods!=0 && pFile->pMethods->xRead==unixRead ) return ((unixFile*)pFile)->h;
#else
  UNUSED_PARAMETER( pFile );
#endif
  return -1;
}

/* Whether the file has lost the name by which it was opened: 1, 0, or -1 where its VFS does not know. One over
** another VFS shows no descriptor, and passes this question on. */
int lsmvbt_file_has_moved(sqlite3_file *pFile){
  int hasMoved = 0;
  int rc = sqlite3OsFileControl(pFile, SQLITE_FCNTL_HAS_MOVED, &hasMoved);
  return rc!=SQLITE_OK ? -1 : hasMoved!=0;
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

/*
** Makes all of a region writable before anything is stored there. SQLite's VFS for Unix makes the file of
** the shared memory longer by one byte in each 4 KiB. Where the file system's blocks are smaller, the other
** blocks of the 4 KiB are holes, and a store into one is SIGBUS once the disk is full. This takes their
** space now, or is an error. The file is not opened for that: closing it would drop the VFS's locks.
**
** A file system that cannot write a page which it can read has no space (or a quota, or has failed). A
** kernel without these advices (before Linux 5.14) answers EINVAL: then the memory stays as it is.
*/
static int glueHaveSpace(void *pMemory, int nByte){
#if defined(__linux__)
  /* MADV_POPULATE_READ and MADV_POPULATE_WRITE, which older headers do not name. */
  enum { POPULATE_READ = 22, POPULATE_WRITE = 23 };
  const uptr mask = (uptr)sysconf(_SC_PAGESIZE) - 1;
  /* A region may begin within a page: the VFS maps whole ones. */
  char *pFirst = (char*)((uptr)pMemory & ~mask);
  const size_t nMap = (size_t)((char*)pMemory + nByte - pFirst);
  if( madvise(pFirst, nMap, POPULATE_WRITE)==0 ) return SQLITE_OK;
  switch( errno ){
    case EFAULT: return madvise(pFirst, nMap, POPULATE_READ)==0 ? SQLITE_FULL : SQLITE_IOERR_SHMMAP;
    case EHWPOISON: return SQLITE_IOERR_SHMMAP;
    case ENOMEM: return SQLITE_NOMEM_BKPT;
    default: return SQLITE_OK;
  }
#else
  UNUSED_PARAMETER( pMemory );
  UNUSED_PARAMETER( nByte );
  return SQLITE_OK;
#endif
}

/* SQLITE_IOERR_SHMMAP where the VFS has no shared memory. Memory that may only be read is an error. */
int lsmvbt_file_shm_map(sqlite3_file *pFile, int iRegion, int nRegion, void **ppMemory){
  int rc;
  *ppMemory = 0;
  if( pFile->pMethods->iVersion<2 || pFile->pMethods->xShmMap==0 ) return SQLITE_IOERR_SHMMAP;
  errno = 0;
  rc = sqlite3OsShmMap(pFile, iRegion, nRegion, 1, (void volatile**)ppMemory);
  /* The VFS could not make the file longer, and only errno says why. */
  if( rc==SQLITE_IOERR_SHMSIZE && (errno==ENOSPC || errno==EDQUOT) ) return SQLITE_FULL;
  if( rc!=SQLITE_OK ) return rc;
  return *ppMemory==0 ? SQLITE_IOERR_SHMMAP : glueHaveSpace(*ppMemory, nRegion);
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
