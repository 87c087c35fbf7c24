/*
** Handles and cursors of the other engine, in a shape that SQLite's own functions can read.
**
** A GlueBtree begins with a struct Btree. It holds its BtShared, which is not shared, and a Pager
** that has the file open and does nothing else. SQLite asks the Pager for names and the file.
** Functions that stock code serves for both engines find the fields that they read. The Pager's
** journal mode is OFF, so that SQLite never includes it in a super-journal.
*/
#ifndef LSMVBT_GLUE_H
#define LSMVBT_GLUE_H

#include "engine.h"

/* In BtShared.openFlags, next to the BTREE_ flags: the handle is of the other engine. */
#define BTREE_GLUE 0x80
/* In BtCursor.curFlags, next to the BTCF_ flags: the cursor is of the other engine. */
#define BTCF_Glue 0x80

#if (BTREE_GLUE & (BTREE_OMIT_JOURNAL|BTREE_MEMORY|BTREE_SINGLE|BTREE_UNORDERED))!=0
# error "BTREE_GLUE is taken"
#endif
#if (BTCF_Glue & (BTCF_WriteFlag|BTCF_ValidNKey|BTCF_ValidOvfl|BTCF_AtLast|BTCF_Incrblob|BTCF_Multiple \
                  |BTCF_Pinned))!=0
# error "BTCF_Glue is taken"
#endif

/* Zeros after a record that is unpacked or compared: the decoder may read past the end of a bad
** one. */
#define GLUE_PADDING 96

typedef struct GlueBtree GlueBtree;
struct GlueBtree {
  Btree base;          /* Seen by SQLite and the shared stock functions. Must be first */
  BtShared shared;     /* base.pBt */
  EngineDb *pEngine;   /* The Rust side */
  int iEngine;         /* Which engine it is */
  u8 *aPreformat;      /* The row that TransferRow() has left for an insertion, padded */
  u32 nPreformat;      /* Its size in bytes */
  u32 nCommit;         /* Commits of this connection */
  u32 nVacuum;         /* Pages to remove from the file after the commit */
  u32 aMeta[16];       /* The header's numbers, as the transaction sees them */
  u32 aBase[16];       /* As they were when it began to write */
};

typedef struct GlueCursor GlueCursor;
struct GlueCursor {
  BtCursor base;       /* Must be first. Of it are used: eState, curFlags, skipNext, pBtree, pKey (saved
                       ** record), pBt, pNext, nKey (saved rowid or size of pKey), pgnoRoot, curIntKey, pKeyInfo */
  EngineDb *pEngine;   /* That of the handle */
  u32 id;              /* The cursor on the Rust side */
  i64 nBase;           /* Counts its entries on the Rust side. With iAt it tells entries apart */
  int iAt;             /* Its distance from its entry on the Rust side */
  int iKey;            /* The entry in between that has the rowid in `row`; glueRowid() is the current one's */
  int iRow;            /* The entry in between that has the payload in `row`; glueRow() is the current one */
  EngineRow row;       /* An entry (in a table at least the last rowid), and those around the Rust side's */
};

/* In GlueCursor.iRow: no entry has its payload in `row` yet. */
#define GLUE_NO_PAYLOAD (-0x7fffffff)

#define GLUE(p)         ((GlueBtree*)(p))
#define GLUE_CURSOR(p)  ((GlueCursor*)(p))

/* Pages that a connection holds in memory if no number is set. */
#define GLUE_CACHE_PAGES 2000

/* The engine of a handle or a cursor, for the generated dispatch. */
#define glueOwns(p)        ((p)!=0 && ((p)->pBt->openFlags & BTREE_GLUE)!=0)
#define glueOwnsCursor(p)  (((p)->curFlags & BTCF_Glue)!=0)

#endif
