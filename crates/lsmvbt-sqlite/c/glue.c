/*
** The other engine behind btree.h, included after btree.c. Names of structs and functions are
** SQLite's; see there for what each function must do. Further rules that SQLite relies on stand at
** the functions that keep them.
*/
#include "glue.h"
#include "glue_note.c"
#include "glue_file.c"
#include "glue_abbreviate.c"
#include "glue_cursor.c"
#include "glue_write.c"
#include "glue_vacuum.c"
#include "glue_handle.c"
#include "glue_diff.c"
#include "glue_open.c"
#include "glue_pager.c"
