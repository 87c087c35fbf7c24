/*
** The interface that the Rust part exports to the C part: an engine's connection to one database
** file, and cursors in it.
**
** A function returns an SQLite result code unless it says otherwise. One thread at a time uses a
** connection, under the mutex of its database connection. The comparison that a function takes must
** call no function here: the call would return SQLITE_MISUSE.
*/
#ifndef LSMVBT_ENGINE_H
#define LSMVBT_ENGINE_H

typedef struct EngineDb EngineDb;

/* The place of a payload in the bytes of a page. */
typedef struct EngineSpan EngineSpan;
struct EngineSpan {
  unsigned short offset;
  unsigned short size;
};

/* The entry under a cursor. `local` bytes of its `total` bytes of payload lie at `payload`.
** LSMVBT_READABLE_BEHIND readable bytes follow them. They stay there until the cursor moves. So do
** the entries around it, whose payloads are whole: those before it have negative indexes. An entry
** that is shown among others has no `payload`, since nothing was read for it: its place is that at
** index 0. */
typedef struct EngineRow EngineRow;
struct EngineRow {
  sqlite3_int64 rowid;           /* The key, in a table */
  const unsigned char *payload;  /* The beginning of the payload */
  unsigned int local;            /* Bytes at payload */
  unsigned int total;            /* Bytes of payload altogether */
  const unsigned char *bytes;    /* Holds the payloads around it */
  const EngineSpan *spans;       /* Their places, from the entry itself on */
  const sqlite3_int64 *rowids;   /* Their keys, in a table */
  int before;                    /* Number shown before it */
  int behind;                    /* Number shown after it */
};

/* The comparison with the sought record. */
typedef struct EngineSought EngineSought;
struct EngineSought {
  /* Compares a stored record with it: writes -1, 0 or 1 to *order. */
  int (*compare)(void *context, const unsigned char *record, unsigned int size, int *order);
  /* The number of records, out of `count` in order, that are not larger than it. On entry,
  ** *notLarger has the number already known not to be. Writes whether the last one of these was
  ** compared and is equal. */
  int (*search)(void *context, const unsigned char *bytes, const EngineSpan *records, unsigned int count,
                unsigned int *notLarger, int *equal);
  /* Abbreviates `count` records by the rule of `kind`: of two in order, the second one's number is
  ** not smaller. */
  void (*abbreviate)(unsigned int kind, const unsigned char *bytes, const EngineSpan *records, unsigned int count,
                     sqlite3_uint64 *numbers);
  void *context;
  unsigned int kind;             /* 0: do not abbreviate */
  sqlite3_uint64 number;         /* The sought record's */
};

/* The number of the engine whose files begin with these 16 bytes, or of the one with this name; -1:
** none. */
int lsmvbt_engine_of_file(const unsigned char *magic);
int lsmvbt_engine_named(const char *name);
/* The engine of new databases, which LSMVBT_SQLITE_DEFAULT names in the environment; -1: stock. */
int lsmvbt_engine_of_new(void);
/* Its name, for as long as the process lives. */
const char *lsmvbt_engine_name(int engine);

/* A connection to the file that the pager has opened. Nothing is read or written yet. is_copy: VACUUM INTO makes it. */
int lsmvbt_open(int engine, sqlite3 *db, sqlite3_file *file, const char *path, int readonly, int immutable, int is_copy,
                EngineDb **out);
void lsmvbt_close(EngineDb*);
/* Whether the file must still be made: it is empty, and nothing was written. */
int lsmvbt_is_new(EngineDb*);

/* Transactions. Reading begins with write=0; write=1 begins writing, from reading or not. After
** commit and rollback the connection reads its own commit, or the state before the transaction.
** After lsmvbt_write() all is written, and only commit or rollback may follow. */
int lsmvbt_begin(EngineDb*, int write);
int lsmvbt_prepare(EngineDb*);
int lsmvbt_write(EngineDb*);
int lsmvbt_commit(EngineDb*);
int lsmvbt_rollback(EngineDb*);
/* Outside of a transaction: makes all commits durable. */
int lsmvbt_flush(EngineDb*);
void lsmvbt_end_read(EngineDb*);
/* Savepoints are numbered from 0. These open the missing ones up to `count`, go back to one, which
** stays open, and end one with those within it. */
int lsmvbt_savepoint_open(EngineDb*, int count);
int lsmvbt_savepoint_rollback(EngineDb*, int number);
int lsmvbt_savepoint_release(EngineDb*, int number);
/* SQLite's PRAGMA synchronous: 1 off, 2 normal, 3 full, 4 extra; and PRAGMA fullfsync. */
void lsmvbt_set_synchronous(EngineDb*, int level, int fullfsync);
/* Pages that the connection holds in memory, at most. */
void lsmvbt_set_cache_pages(EngineDb*, unsigned int pages);

/* The 16 numbers of the header, and one that changes with other connections' commits. On an error
** nothing is written to values. */
int lsmvbt_metas(EngineDb*, unsigned int values[16]);
int lsmvbt_set_meta(EngineDb*, int index, unsigned int value);
unsigned int lsmvbt_data_version(EngineDb*);

/* A pragma of the engine's own; without a value it asks. Writes the answer or the reason for an
** error; sqlite3_free() frees it. SQLITE_NOTFOUND if no pragma has this name. */
int lsmvbt_pragma(EngineDb*, const char *name, const char *value, char **answer);
/* Why a pragma is none of the engine's, though its name begins like theirs; sqlite3_free() frees it. 0
** for all others. */
char *lsmvbt_unknown_pragma(const char *name);

/* VACUUM, outside of a transaction: begins, for all pages (0) or so many at most. Then each call is a
** step: SQLITE_DONE after the last one. After SQLITE_BUSY the same step can be tried again. With
** SQLITE_ERROR, and with SQLITE_BUSY next to a reader, it writes the reason; sqlite3_free() frees it.
** After such a reason lsmvbt_vacuum_give_up() ends the wait for readers. The steps that follow give back
** what is free at the end. The last one has the reason again. */
void lsmvbt_vacuum_begin(EngineDb*, unsigned int pages);
int lsmvbt_vacuum(EngineDb*, char **reason);
void lsmvbt_vacuum_give_up(EngineDb*);
/* Pages of the file that are free. */
unsigned int lsmvbt_free_pages(EngineDb*);
/* In a write transaction: pages by which the file could be shorter. */
unsigned int lsmvbt_removable_pages(EngineDb*);

/* A row that differs between two versions. */
typedef struct EngineChange EngineChange;
struct EngineChange {
  sqlite3_int64 rowid;
  int kind;                      /* 0 insert, 1 update, 2 delete */
};
/* The rows of a table that differ between two versions, in the order of rowids; `to` may be null: the
** newest version. Writes them, or the reason for an error; sqlite3_free() frees both. */
int lsmvbt_diff(EngineDb*, const char *table, const char *from, const char *to, EngineChange **changes,
                sqlite3_int64 *count, char **reason);

/* Trees. */
int lsmvbt_create_tree(EngineDb*, int table, unsigned int *tree);
int lsmvbt_drop_tree(EngineDb*, unsigned int tree);
int lsmvbt_clear_tree(EngineDb*, unsigned int tree, sqlite3_int64 *removed);
unsigned int lsmvbt_last_tree(EngineDb*);
int lsmvbt_count(EngineDb*, unsigned int tree, sqlite3_int64 *entries);
/* Checks the whole file: writes the number of findings, and a text that sqlite3_free() frees. */
int lsmvbt_check(EngineDb*, int limit, int *found, char **text);

/* Cursors. Moving returns SQLITE_DONE where there is no entry. A seek leaves the cursor on the
** entry or on a neighbor. It writes the order of that entry, relative to the sought one, to *order.
** */
int lsmvbt_cursor_open(EngineDb*, unsigned int tree, int table, unsigned int *cursor);
void lsmvbt_cursor_close(EngineDb*, unsigned int cursor);
int lsmvbt_first(EngineDb*, unsigned int cursor, EngineRow*);
int lsmvbt_last(EngineDb*, unsigned int cursor, EngineRow*);
int lsmvbt_step(EngineDb*, unsigned int cursor, int back, EngineRow*);
/* Moves by a number of the entries that are shown around it, back if negative. They stay where they
** are. */
int lsmvbt_skip(EngineDb*, unsigned int cursor, int by);
int lsmvbt_seek_rowid(EngineDb*, unsigned int cursor, sqlite3_int64 rowid, int *order, EngineRow*);
int lsmvbt_seek_record(EngineDb*, unsigned int cursor, const EngineSought*, int *order, EngineRow*);
int lsmvbt_read(EngineDb*, unsigned int cursor, unsigned int offset, unsigned int size, void *buffer);
/* Mutation. Insertions and deletions leave the cursor nowhere. */
int lsmvbt_insert_row(EngineDb*, unsigned int cursor, sqlite3_int64 rowid, const void *data, unsigned int size,
                      unsigned int zeros);
int lsmvbt_insert_record(EngineDb*, unsigned int cursor, const void *record, unsigned int size, const EngineSought*);
int lsmvbt_overwrite(EngineDb*, unsigned int cursor, unsigned int offset, unsigned int size, const void *data,
                     EngineRow*);
int lsmvbt_delete(EngineDb*, unsigned int cursor);

#endif
