//! The published characteristics of each application, and the chosen ones: see the module above.

use crate::plan::Op;

/// The published characteristics of an application, and the chosen ones.
pub(in super::super) struct Profile {
    pub(super) inserts: u32,
    pub(super) selects: u32,
    pub(super) updates: u32,
    pub(super) deletes: u32,
    pub(super) transactions: u32,
    pub(super) files: &'static [File],
    /// Words of a text.
    pub(super) words: (u32, u32),
}

/// One of an application's files.
pub(super) struct File {
    /// Its share of the transactions.
    pub(super) share: u32,
    /// Shares of its inserts that go to each table.
    pub(super) tables: [u32; 3],
}

const fn texts(share: u32) -> File {
    File {
        share,
        tables: [60, 40, 0],
    }
}

const fn blobs(share: u32) -> File {
    File {
        share,
        tables: [0, 0, 1],
    }
}

pub(in super::super) static MAIL: Profile = Profile {
    inserts: 48_946,
    selects: 104_705,
    updates: 35_094,
    deletes: 23_747,
    transactions: 32_392,
    files: &[File {
        share: 1,
        tables: [40, 60, 0],
    }],
    words: (20, 500),
};

pub(in super::super) static MESSENGER: Profile = Profile {
    inserts: 2_252,
    selects: 2_838,
    updates: 4_348,
    deletes: 769,
    transactions: 7_301,
    files: &[texts(5), texts(3), blobs(2)],
    words: (3, 60),
};

pub(in super::super) static MESSAGE: Profile = Profile {
    inserts: 1_854,
    selects: 19_547,
    updates: 6_216,
    deletes: 773,
    transactions: 7_740,
    files: &[texts(15), texts(1), texts(1), texts(1), texts(1), texts(1)],
    words: (3, 60),
};

pub(in super::super) static SNS: Profile = Profile {
    inserts: 25_322,
    selects: 114,
    updates: 0,
    deletes: 58,
    transactions: 15_998,
    files: &[
        texts(1000),
        texts(500),
        blobs(333),
        texts(250),
        texts(200),
        texts(167),
        texts(143),
        blobs(125),
        texts(111),
        texts(100),
        texts(91),
        texts(83),
        texts(77),
        texts(71),
        texts(67),
        texts(63),
        blobs(59),
        texts(56),
        texts(53),
        texts(50),
    ],
    words: (3, 65),
};

/// The profile of an op, if it is such an application.
pub(super) fn profile(op: Op) -> Option<&'static Profile> {
    match op {
        Op::Mail => Some(&MAIL),
        Op::Messenger => Some(&MESSENGER),
        Op::Message => Some(&MESSAGE),
        Op::Sns => Some(&SNS),
        _ => None,
    }
}

/// Transactions of an application in the four counted weeks; `None` for other ops.
pub(in super::super) fn transactions(op: Op) -> Option<u32> {
    profile(op).map(|profile| profile.transactions)
}

/// Database files of an op.
pub(in super::super) fn files(op: Op) -> usize {
    profile(op).map_or(1, |profile| profile.files.len())
}
