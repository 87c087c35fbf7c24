//! The treatment of each function: its owner, and how a call finds its engine.

use crate::error::Error;
use crate::prototype::Prototype;
use crate::source::Source;

/// The owner of a function of `btree.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Each engine has its own; the handle selects it.
    Handle,
    /// Each engine has its own; the cursor selects it.
    Cursor,
    /// Each engine has its own; the C part selects it, since no single parameter does.
    Chosen,
    /// The stock function serves both: it reads only fields that both engines' handles or cursors
    /// have.
    Shared,
}

impl Role {
    /// Whether the stock function is renamed.
    #[must_use]
    pub fn renamed(self) -> bool {
        self != Self::Shared
    }
}

/// The role of a function that `btree.h` declares; `None` if it is unknown.
#[must_use]
pub fn role(name: &str) -> Option<Role> {
    ROLES
        .iter()
        .find(|(_, names)| names.contains(&name))
        .map(|(role, _)| *role)
}

/// The functions of `btree.h`, which `btree.c` defines.
pub const ROLES: &[(Role, &[&str])] = &[
    (
        Role::Handle,
        &[
            "sqlite3BtreeBeginStmt",
            "sqlite3BtreeCheckpoint",
            "sqlite3BtreeClearCache",
            "sqlite3BtreeClearTable",
            "sqlite3BtreeClose",
            "sqlite3BtreeCommit",
            "sqlite3BtreeCommitPhaseOne",
            "sqlite3BtreeCreateTable",
            "sqlite3BtreeCursor",
            "sqlite3BtreeDropTable",
            "sqlite3BtreeGetJournalname",
            "sqlite3BtreeGetMeta",
            "sqlite3BtreeIncrVacuum",
            "sqlite3BtreeIntegrityCheck",
            "sqlite3BtreeLastPage",
            "sqlite3BtreeMaxPageCount",
            "sqlite3BtreeNewDb",
            "sqlite3BtreeRollback",
            "sqlite3BtreeSavepoint",
            "sqlite3BtreeSetAutoVacuum",
            "sqlite3BtreeSetCacheSize",
            "sqlite3BtreeSetPageSize",
            "sqlite3BtreeSetPagerFlags",
            "sqlite3BtreeSetVersion",
            "sqlite3BtreeTripAllCursors",
            "sqlite3BtreeUpdateMeta",
        ],
    ),
    (
        Role::Cursor,
        &[
            "sqlite3BtreeClearTableOfCursor",
            "sqlite3BtreeCloseCursor",
            "sqlite3BtreeCount",
            "sqlite3BtreeCursorRestore",
            "sqlite3BtreeDelete",
            "sqlite3BtreeFirst",
            "sqlite3BtreeIndexMoveto",
            "sqlite3BtreeInsert",
            "sqlite3BtreeIntegerKey",
            "sqlite3BtreeIsEmpty",
            "sqlite3BtreeLast",
            "sqlite3BtreeMaxRecordSize",
            "sqlite3BtreeNext",
            "sqlite3BtreeOffset",
            "sqlite3BtreePayload",
            "sqlite3BtreePayloadChecked",
            "sqlite3BtreePayloadFetch",
            "sqlite3BtreePayloadSize",
            "sqlite3BtreePrevious",
            "sqlite3BtreePutData",
            "sqlite3BtreeRowCountEst",
            "sqlite3BtreeTableMoveto",
        ],
    ),
    (
        Role::Chosen,
        &[
            "sqlite3BtreeBeginTrans",
            "sqlite3BtreeCommitPhaseTwo",
            "sqlite3BtreeCursorSize",
            "sqlite3BtreeOpen",
            "sqlite3BtreeTransferRow",
        ],
    ),
    (
        Role::Shared,
        &[
            "sqlite3BtreeClearCursor",
            "sqlite3BtreeClosesWithCursor",
            "sqlite3BtreeConnectionCount",
            "sqlite3BtreeCursorHasHint",
            "sqlite3BtreeCursorHasMoved",
            "sqlite3BtreeCursorHint",
            "sqlite3BtreeCursorHintFlags",
            "sqlite3BtreeCursorHintTblCsr",
            "sqlite3BtreeCursorIsValid",
            "sqlite3BtreeCursorIsValidNN",
            "sqlite3BtreeCursorPin",
            "sqlite3BtreeCursorUnpin",
            "sqlite3BtreeCursorZero",
            "sqlite3BtreeEof",
            "sqlite3BtreeFakeValidCursor",
            "sqlite3BtreeGetAutoVacuum",
            "sqlite3BtreeGetFilename",
            "sqlite3BtreeGetPageSize",
            "sqlite3BtreeGetRequestedReserve",
            "sqlite3BtreeGetReserveNoMutex",
            "sqlite3BtreeIncrblobCursor",
            "sqlite3BtreeIsInBackup",
            "sqlite3BtreeIsReadonly",
            "sqlite3BtreeLockTable",
            "sqlite3BtreePager",
            "sqlite3BtreeSchema",
            "sqlite3BtreeSchemaLocked",
            "sqlite3BtreeSecureDelete",
            "sqlite3BtreeSeekCount",
            "sqlite3BtreeSetMmapLimit",
            "sqlite3BtreeSetSpillSize",
            "sqlite3BtreeSharable",
            "sqlite3BtreeTxnState",
            "sqlite3HeaderSizeBtree",
        ],
    ),
];

/// Functions that `btree.h` declares and another file defines. These are the mutexes (`btmutex.c`),
/// the copy of a whole file (`backup.c`, guarded below), and definitions for SQLite's own tests.
pub const ELSEWHERE: &[&str] = &[
    "sqlite3BtreeCopyFile",
    "sqlite3BtreeCursorInfo",
    "sqlite3BtreeCursorList",
    "sqlite3BtreeEnter",
    "sqlite3BtreeEnterAll",
    "sqlite3BtreeEnterCursor",
    "sqlite3BtreeHoldsAllMutexes",
    "sqlite3BtreeHoldsMutex",
    "sqlite3BtreeLeave",
    "sqlite3BtreeLeaveAll",
    "sqlite3BtreeLeaveCursor",
    "sqlite3SchemaMutexHeld",
];

/// Functions that older versions of SQLite do not have: `scripts/sqlite-tests` cuts 3.46.
pub const RECENT: &[&str] = &[
    "sqlite3BtreeClosesWithCursor",
    "sqlite3BtreeCursorHintTblCsr",
    "sqlite3BtreeIsEmpty",
];

/// Functions that are called through guards.
pub struct Guarded {
    /// They are renamed from the beginning of this file ...
    pub first: &'static str,
    /// ... to the end of this one.
    pub last: &'static str,
    /// The functions.
    pub functions: &'static [&'static str],
}

/// Functions that would harm the other engine's file, or take it for SQLite's.
pub const GUARDED: &[Guarded] = &[
    // From the pager to the stock B-tree; only these may work on pages.
    Guarded {
        first: "pager.c",
        last: "btree.c",
        functions: &[
            "sqlite3PagerDataVersion",
            "sqlite3PagerExclusiveLock",
            "sqlite3PagerFlush",
            "sqlite3PagerGet",
            "sqlite3PagerOkToChangeJournalMode",
            "sqlite3PagerPagecount",
        ],
    },
    Guarded {
        first: "backup.c",
        last: "backup.c",
        functions: &[
            "sqlite3BtreeCopyFile",
            "sqlite3_backup_finish",
            "sqlite3_backup_init",
        ],
    },
    Guarded {
        first: "vacuum.c",
        last: "vacuum.c",
        functions: &["sqlite3RunVacuum"],
    },
    Guarded {
        first: "memdb.c",
        last: "memdb.c",
        functions: &["sqlite3_serialize"],
    },
    // Every pragma passes the last one before SQLite acts on it. The others add the note of an error.
    Guarded {
        first: "main.c",
        last: "main.c",
        functions: &["sqlite3_errmsg", "sqlite3_errmsg16", "sqlite3_file_control"],
    },
];

/// Makes sure that the plan and `btree.h` have the same functions, and that `btree.c` defines them.
///
/// # Errors
///
/// For the first function that fails this check.
pub fn check(source: &Source, declared: &[Prototype]) -> Result<(), Error> {
    for prototype in declared {
        if ELSEWHERE.contains(&prototype.name.as_str()) {
            continue;
        }
        if role(&prototype.name).is_none() {
            return Err(Error::Unplanned(prototype.name.clone()));
        }
        // FakeValidCursor and similar functions are defined once; some are in both branches of an
        // `#if`.
        if source.definitions(&prototype.name, "btree.c", "btree.c")? == 0 {
            return Err(Error::Definitions {
                name: prototype.name.clone(),
                files: "btree.c".to_owned(),
                found: 0,
            });
        }
    }
    for (_, names) in ROLES {
        for name in *names {
            if !RECENT.contains(name) && !declared.iter().any(|prototype| prototype.name == *name) {
                return Err(Error::Declarations {
                    name: (*name).to_owned(),
                    found: 0,
                });
            }
        }
    }
    Ok(())
}
