/*
** The other engine behind btree.h, included behind btree.c. SQLite's struct and function names are its own;
** see there for what each function must do. What SQLite relies on beyond that is said where it is kept.
*/
#include "glue.h"
#include "glue_file.c"
#include "glue_abbreviate.c"
#include "glue_cursor.c"
#include "glue_write.c"
#include "glue_handle.c"
#include "glue_open.c"
#include "glue_pager.c"
