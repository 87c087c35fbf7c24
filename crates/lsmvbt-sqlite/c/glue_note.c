/*
** Notes: of which file the last error of the other engine was, why, and the way out. SQLite's core
** has one text for each result code. sqlite3_errmsg() adds the note to it (public.c).
**
** A note belongs to a database connection and to the code that the engine returned. The next
** transaction of the connection, on a database of any engine, removes it. A rollback that fails as well
** leaves it: the message is of the first error.
*/

#define GLUE_NOTE "lsmvbt_note"

typedef struct GlueNote GlueNote;
struct GlueNote {
  int rc;              /* The result code */
  int isKept;          /* Another error does not replace it now */
  char zText[1];       /* The note; the memory is as long as it */
};

/* The note of a connection; 0 if it has none. */
static GlueNote *glueNoteOf(sqlite3 *db){
  return db->pDbData ? (GlueNote*)sqlite3_get_clientdata(db, GLUE_NOTE) : 0;
}

/* Writes to SQLite's log, and leaves the note. The caller holds the connection's mutex. */
void lsmvbt_note(void *pDb, int rc, const char *zText){
  sqlite3 *db = (sqlite3*)pDb;
  size_t nText = strlen(zText);
  GlueNote *pNote = glueNoteOf(db);
  sqlite3_log(rc, "%s", zText);
  if( pNote && pNote->isKept ) return;
  pNote = sqlite3_malloc64(sizeof(*pNote) + nText);
  if( pNote==0 ) return;
  pNote->rc = rc;
  pNote->isKept = 0;
  memcpy(pNote->zText, zText, nText+1);
  (void)sqlite3_set_clientdata(db, GLUE_NOTE, pNote, sqlite3_free);
}

/* A database that cannot be opened: why. */
static int glueCannotOpen(sqlite3 *db, const char *zFormat, ...){
  va_list ap;
  char *zText;
  va_start(ap, zFormat);
  zText = sqlite3_vmprintf(zFormat, ap);
  va_end(ap);
  if( zText==0 ) return SQLITE_NOMEM_BKPT;
  lsmvbt_note(db, SQLITE_CANTOPEN, zText);
  sqlite3_free(zText);
  return SQLITE_CANTOPEN_BKPT;
}

static void glueForget(sqlite3 *db){
  if( glueNoteOf(db) ) (void)sqlite3_set_clientdata(db, GLUE_NOTE, 0, 0);
}

/* Adds the note to the message if the message is no more than SQLite's text for the note's code. Only
** ATTACH has a text of its own for a file that does not open. */
static void glueTell(sqlite3 *db){
  GlueNote *pNote;
  if( !sqlite3SafetyCheckSickOrOk(db) ) return;
  sqlite3_mutex_enter(db->mutex);
  pNote = (GlueNote*)sqlite3_get_clientdata(db, GLUE_NOTE);
  if( pNote && pNote->rc==db->errCode && !db->mallocFailed ){
    const char *zPlain = sqlite3ErrStr(pNote->rc);
    const char *zNow = db->pErr ? (const char*)sqlite3_value_text(db->pErr) : 0;
    if( zNow==0 ) zNow = zPlain;
    if( strcmp(zNow, zPlain)==0
     || (sqlite3_strglob("unable to open database: *", zNow)==0 && strstr(zNow, pNote->zText)==0) ){
      char *zText = sqlite3_mprintf("%s: %s", zNow, pNote->zText);
      if( db->pErr==0 ) db->pErr = sqlite3ValueNew(db);
      if( zText && db->pErr ) sqlite3ValueSetStr(db->pErr, -1, zText, SQLITE_UTF8, SQLITE_TRANSIENT);
      sqlite3_free(zText);
      if( db->mallocFailed ) sqlite3OomClear(db);
    }
  }
  sqlite3_mutex_leave(db->mutex);
}
