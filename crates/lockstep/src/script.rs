//! The scripts: short programs for two or three connections, and the state in which they begin.

use crate::history::Change;

/// One step of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// A transaction that asks for the write lock first.
    Write(Change),
    /// A transaction that reads first.
    ReadWrite(Change),
    /// A transaction that rolls back to a savepoint. Its cache is so small that pages went to the
    /// log before.
    Savepoint(Change),
    /// A transaction that reads everything this many times.
    Read(u8),
    /// `sqlite3_wal_checkpoint_v2` with this mode.
    Checkpoint(Checkpoint),
    /// Closes the connection, and opens it again.
    Reopen,
    /// Closes the connection.
    Close,
}

/// The modes, with SQLite's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Checkpoint {
    Passive,
    Full,
    Restart,
    Truncate,
}

/// The state of the log when a script begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Start {
    /// The log is empty.
    Empty,
    /// Two transactions, not copied.
    Written,
    /// Two transactions, copied to the database. The next writer starts the log again.
    Copied,
    /// One of two transactions is copied.
    Half,
}

/// The settings of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Setting {
    /// `wal_autocheckpoint`; 0 is never.
    pub autocheckpoint: i32,
    /// Milliseconds of `sqlite3_busy_timeout`.
    pub busy_timeout: i32,
    /// `journal_size_limit` is 0.
    pub limits_journal: bool,
    /// Pages are written before the commit.
    pub small_cache: bool,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    pub name: &'static str,
    pub start: Start,
    pub setting: Setting,
    pub programs: &'static [&'static [Op]],
}

impl Script {
    /// Whether it rolls back to a savepoint. SQLite before 3.50 then leaves commits in its log that
    /// no recovery finds.
    pub fn goes_back(&self) -> bool {
        let all = self.programs.iter().flat_map(|program| program.iter());
        all.into_iter().any(|op| matches!(op, Op::Savepoint(_)))
    }
}

use Checkpoint::{Full, Passive, Restart, Truncate};
use Op::{Close, Read, ReadWrite, Reopen, Savepoint, Write};

const fn change(rows: u16, inserts: u8) -> Change {
    Change { rows, inserts }
}

const FEW: Op = Write(change(0b0000_0010, 0));
const OTHER: Op = Write(change(0b0000_0100, 0));
const MANY: Op = Write(change(0b0111_1000, 2));
const LATER: Op = ReadWrite(change(0b0000_1010, 1));
const BACK: Op = Savepoint(change(0b0001_0010, 1));
const COPY: Op = Op::Checkpoint(Passive);

const PLAIN: Setting = Setting {
    autocheckpoint: 0,
    busy_timeout: 0,
    limits_journal: false,
    small_cache: false,
};
const PATIENT: Setting = Setting {
    busy_timeout: 20,
    ..PLAIN
};
const AUTO: Setting = Setting {
    autocheckpoint: 3,
    busy_timeout: 20,
    ..PLAIN
};
const SPILLING: Setting = Setting {
    small_cache: true,
    ..PLAIN
};
const LIMITED: Setting = Setting {
    limits_journal: true,
    ..PLAIN
};

/// All scripts. In each of them, a process that was killed continues with [`NEXT_LIFE`].
pub const SCRIPTS: &[Script] = &[
    script("reset", Start::Copied, PLAIN, &[&[COPY], &[FEW, OTHER]]),
    script(
        "reset-many",
        Start::Copied,
        PLAIN,
        &[&[COPY, Read(1)], &[FEW, MANY, COPY]],
    ),
    script(
        "copy-write",
        Start::Written,
        PLAIN,
        &[&[COPY, Read(1)], &[FEW, MANY]],
    ),
    script(
        "copy-half",
        Start::Half,
        PLAIN,
        &[&[COPY, FEW], &[OTHER, Read(2)]],
    ),
    script(
        "copy-copy",
        Start::Written,
        PLAIN,
        &[&[COPY, FEW], &[COPY, OTHER]],
    ),
    script(
        "full",
        Start::Written,
        PLAIN,
        &[&[Op::Checkpoint(Full), FEW], &[OTHER, Read(2)]],
    ),
    script(
        "restart",
        Start::Written,
        PLAIN,
        &[&[Op::Checkpoint(Restart), FEW], &[OTHER, Read(2)]],
    ),
    script(
        "restart-waits",
        Start::Half,
        PATIENT,
        &[&[Op::Checkpoint(Restart), FEW], &[Read(2), MANY]],
    ),
    script(
        "truncate",
        Start::Written,
        PLAIN,
        &[&[Op::Checkpoint(Truncate), FEW], &[Read(2), OTHER]],
    ),
    script(
        "truncate-waits",
        Start::Half,
        PATIENT,
        &[&[Op::Checkpoint(Truncate), FEW], &[MANY, Read(1)]],
    ),
    script(
        "readers",
        Start::Copied,
        PLAIN,
        &[&[FEW, COPY, OTHER], &[Read(3)]],
    ),
    script(
        "readers-half",
        Start::Half,
        SPILLING,
        &[&[COPY, MANY, COPY, FEW], &[Read(2), Read(2)]],
    ),
    script(
        "writers",
        Start::Empty,
        PLAIN,
        &[&[FEW, MANY], &[LATER, OTHER]],
    ),
    script(
        "writers-wait",
        Start::Copied,
        PATIENT,
        &[&[FEW, OTHER], &[MANY, LATER]],
    ),
    script(
        "auto",
        Start::Written,
        AUTO,
        &[&[FEW, OTHER], &[MANY, LATER]],
    ),
    script(
        "auto-limit",
        Start::Copied,
        Setting {
            autocheckpoint: 2,
            ..LIMITED
        },
        &[&[MANY, FEW], &[FEW, OTHER]],
    ),
    script(
        "limit",
        Start::Copied,
        LIMITED,
        &[&[FEW, COPY, MANY], &[Read(2), FEW]],
    ),
    script(
        "savepoint",
        Start::Copied,
        SPILLING,
        &[&[BACK, FEW], &[OTHER, COPY]],
    ),
    script(
        "savepoint-copy",
        Start::Written,
        SPILLING,
        &[&[BACK, Read(1)], &[COPY, Read(1), BACK]],
    ),
    script(
        "reopen",
        Start::Written,
        PLAIN,
        &[&[Reopen, FEW], &[OTHER, COPY]],
    ),
    script(
        "close",
        Start::Written,
        PLAIN,
        &[&[FEW, Close], &[OTHER, Reopen, FEW]],
    ),
    script(
        "reset-3",
        Start::Copied,
        PLAIN,
        &[&[COPY], &[FEW, OTHER], &[Read(2)]],
    ),
    script(
        "copy-3",
        Start::Written,
        PLAIN,
        &[
            &[COPY, FEW],
            &[Op::Checkpoint(Restart), OTHER],
            &[MANY, Read(1)],
        ],
    ),
    script(
        "writers-3",
        Start::Copied,
        PATIENT,
        &[&[FEW, COPY], &[LATER, OTHER], &[MANY]],
    ),
    script(
        "auto-3",
        Start::Half,
        Setting {
            small_cache: true,
            ..AUTO
        },
        &[&[FEW, OTHER], &[BACK], &[Read(2), MANY]],
    ),
    script(
        "mixed-3",
        Start::Half,
        SPILLING,
        &[&[BACK, COPY], &[Op::Checkpoint(Truncate), FEW], &[Read(3)]],
    ),
];

/// The program of a process that was killed.
pub const NEXT_LIFE: &[Op] = &[Reopen, Read(1), FEW];

/// The operations at the end, one after the other.
pub const EPILOGUE: &[Op] = &[FEW, COPY, OTHER];

const fn script(
    name: &'static str,
    start: Start,
    setting: Setting,
    programs: &'static [&'static [Op]],
) -> Script {
    Script {
        name,
        start,
        setting,
        programs,
    }
}
