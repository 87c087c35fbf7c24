//! The statements of "WALDIO: Eliminating the Filesystem Journaling in Resolving the Journaling of
//! Journal Anomaly" (USENIX ATC '15), from its text. Bars and points that only its pictures and
//! tables show are left out: no number was taken from a picture.
//!
//! Device: a Galaxy S5, eMMC with pages of 8 KiB, ext4 (ordered), rows of 100 bytes, one a
//! transaction.

use crate::reproduce::outcome::Stated;

/// Bytes of the paper's KByte.
pub const KIB: f64 = 1024.0;

/// One mode's writes for one insert, in KiB.
pub struct Volume {
    /// The paper's name for it.
    pub name: &'static str,
    /// The mode here.
    pub mode: &'static str,
    /// All written bytes.
    pub total: Option<Stated>,
    /// The part that is the file system's journal for SQLite's journal: journaling of journal.
    pub joj: Option<Stated>,
}

const ABOUT_TABLE_1: &str = "text on table 1";
const ABOUT_FIGURE_2: &str = "text on figure 2";

/// Table 1, figures 2 and 11(a).
pub const ONE_INSERT: [Volume; 6] = [
    Volume {
        name: "DELETE",
        mode: "delete",
        total: Some(Stated::about(80.0, ABOUT_TABLE_1)),
        joj: Some(Stated::about(44.0, ABOUT_FIGURE_2)),
    },
    Volume {
        name: "TRUNCATE",
        mode: "truncate",
        total: None,
        joj: Some(Stated::about(36.0, ABOUT_FIGURE_2)),
    },
    Volume {
        name: "PERSIST",
        mode: "persist",
        total: None,
        joj: Some(Stated::about(40.0, ABOUT_FIGURE_2)),
    },
    Volume {
        name: "WAL",
        mode: "wal",
        total: Some(Stated::about(28.0, ABOUT_TABLE_1)),
        joj: Some(Stated::about(20.0, ABOUT_FIGURE_2)),
    },
    Volume {
        name: "OFF",
        mode: "off",
        total: Some(Stated::about(
            20.0,
            "text on figure 2(a): two blocks of the database and three of the file system's journal",
        )),
        joj: Some(Stated::about(
            0.0,
            "text on figure 2(a): no I/O for a journal",
        )),
    },
    Volume {
        name: "WALDIO",
        mode: "waldio:sync=full",
        total: Some(Stated::about(4.0, "text on figure 11(a): one page")),
        joj: Some(Stated::about(0.0, "text on figure 11(a): one page")),
    },
];

/// The file system's share of WAL's writes for one insert.
pub const WAL_JOJ_SHARE: Stated = Stated::about(0.70, ABOUT_FIGURE_2);

/// The file system's share of DELETE's writes: "more than 50 %".
pub const DELETE_JOJ_SHARE: Stated = Stated::at_least(0.50, ABOUT_FIGURE_2);

/// Figure 2, in the paper's order.
pub const STOCK_MODES: [(&str, &str); 5] = [
    ("OFF", "off"),
    ("WAL", "wal"),
    ("DELETE", "delete"),
    ("TRUNCATE", "truncate"),
    ("PERSIST", "persist"),
];

/// Figure 2: parts of one insert, in KiB.
pub const ONE_INSERT_PARTS: [(&str, &str, Stated); 8] = [
    (
        "OFF",
        "database",
        Stated::about(8.0, "text on figure 2(a): two data blocks"),
    ),
    (
        "OFF",
        "file-system journal",
        Stated::about(12.0, "text on figure 2(a): three blocks"),
    ),
    (
        "WAL",
        "file-system journal",
        Stated::about(20.0, ABOUT_FIGURE_2),
    ),
    (
        "WAL",
        "SQLite's journal or log",
        Stated::about(8.0, "text on figure 2: 20 KiB out of 28"),
    ),
    (
        "WAL",
        "database",
        Stated::about(0.0, "text on figure 2(b): none observed"),
    ),
    (
        "DELETE",
        "file-system journal",
        Stated::about(44.0, ABOUT_FIGURE_2),
    ),
    (
        "TRUNCATE",
        "file-system journal",
        Stated::about(36.0, ABOUT_FIGURE_2),
    ),
    (
        "PERSIST",
        "file-system journal",
        Stated::about(40.0, ABOUT_FIGURE_2),
    ),
];

/// Figure 11(a): an insert is one write.
pub const ONE_WRITE: Stated = Stated::about(1.0, "text on figure 11(a): a \"single page write\"");

/// That write has one page, in KiB.
pub const ONE_PAGE: Stated = Stated::about(4.0, "text on figure 11(a): a \"single page write\"");

/// Figure 12(a) draws ten inserts of table 1's 28 KiB.
pub const TEN_IN_WAL: Stated = Stated::about(280.0, "ten times table 1's 28 KiB");

/// Figure 12(b): ten of figure 11's pages.
pub const TEN_IN_WALDIO: Stated = Stated::about(40.0, "ten times figure 11(a)'s page");

/// Figure 6: bytes of a direct write, and the rate in MB/s.
pub const DIRECT_WRITES: [(usize, Option<Stated>); 6] = [
    (512, Some(Stated::about(2.0, "text on figure 6"))),
    (1024, None),
    (2048, None),
    (4096, None),
    (8192, None),
    (
        16384,
        Some(Stated::about(
            70.0,
            "text on figure 6: what sequential writes reach (\"over 70\")",
        )),
    ),
];

/// Figure 8: WAL and WALDIO with header embedding, MB of 1,000 inserts: in all, and without the
/// file system's journal.
pub const THOUSAND_INSERTS: [(&str, &str, Option<Stated>, Option<Stated>); 3] = [
    (
        "WAL",
        "wal",
        Some(Stated::about(29.0, "text on figure 8")),
        Some(Stated::about(12.3, "text on figure 8")),
    ),
    (
        "WALDIO, page padding",
        "waldio:layout=page4k,sync=full",
        None,
        None,
    ),
    (
        "WALDIO, header embedding",
        "waldio:sync=full",
        Some(Stated::about(4.6, "text on figure 8")),
        Some(Stated::about(4.4, "text on figure 8")),
    ),
];

/// One bar of figure 13 or 14, in inserts a second, and its ratio to WAL if the paper states only
/// that.
pub struct Rate {
    /// The paper's name for it.
    pub name: &'static str,
    /// The mode here; none if it does not exist yet.
    pub mode: Option<&'static str>,
    /// Inserts a second.
    pub rate: Option<Stated>,
    /// The ratio to WAL.
    pub to_wal: Option<Stated>,
}

const ABOUT_FIGURE_13: &str = "text on figure 13";
const ABOUT_FIGURE_14: &str = "text on figure 14";

const fn rate(name: &'static str, mode: &'static str, rate: Option<Stated>) -> Rate {
    Rate {
        name,
        mode: Some(mode),
        rate,
        to_wal: None,
    }
}

/// WAL, the baseline of figures 13 and 14.
pub const WAL: Rate = rate("WAL", "wal", Some(Stated::about(587.0, ABOUT_FIGURE_14)));

/// Figure 13, without WAL.
pub const ALIGNED: [Rate; 4] = [
    Rate {
        name: "sector padding",
        mode: Some("waldio:layout=sector,sync=full"),
        rate: None,
        to_wal: Some(Stated::about(
            1.0,
            "text on figure 13: \"barely brings any performance gain\"",
        )),
    },
    Rate {
        name: "page padding, 4 KiB",
        mode: Some("waldio:layout=page4k,sync=full"),
        rate: None,
        to_wal: Some(Stated::about(1.6, ABOUT_FIGURE_13)),
    },
    Rate {
        name: "page padding, 8 KiB",
        mode: Some("waldio:layout=page8k,sync=full"),
        rate: None,
        to_wal: Some(Stated::about(2.0, ABOUT_FIGURE_13)),
    },
    rate(
        "header embedding",
        "waldio:sync=full",
        Some(Stated::about(1239.0, ABOUT_FIGURE_13)),
    ),
];

/// Figure 14 and the inserts of table 2, without WAL.
pub const MODES: [Rate; 10] = [
    rate("DELETE", "delete", None),
    rate("TRUNCATE", "truncate", None),
    rate("PERSIST", "persist", None),
    Rate {
        name: "LS-MVBT",
        mode: None,
        rate: Some(Stated::about(1083.0, ABOUT_FIGURE_14)),
        to_wal: None,
    },
    rate(
        "WALDIO-FS",
        "waldio:sync=full",
        Some(Stated::about(1219.0, ABOUT_FIGURE_14)),
    ),
    rate(
        "WALDIO-FS, GS4",
        "waldio:sync=full,group_synch=4/2",
        Some(Stated::about(2729.0, ABOUT_FIGURE_14)),
    ),
    rate("WALDIO-PD", "waldio:sync=persistent", None),
    rate(
        "WALDIO-PD, GS4",
        "waldio:sync=persistent,group_synch=4/2",
        Some(Stated::about(2967.0, ABOUT_FIGURE_14)),
    ),
    rate("WALDIO-NS", "waldio:sync=normal", None),
    rate(
        "WALDIO-NS, GS4",
        "waldio:sync=normal,group_synch=4/2",
        Some(Stated::about(4332.0, ABOUT_FIGURE_14)),
    ),
];

/// "Stock modes": WAL performs best among them.
pub const STOCK_BELOW_WAL: Stated = Stated::at_most(
    1.0,
    "text on figure 14: of stock modes WAL yields the best performance",
);

/// Updates and deletes gain about as much as inserts.
pub const LIKE_INSERTS: Stated = Stated::about(1.0, "text on figure 14: \"the similar trend\"");

/// Figure 15: the most that a rollback mode writes for 1,000 inserts, in MB.
pub const ROLLBACK_MOST: Stated = Stated::about(90.0, "text on figure 15: \"as much as\"");

/// The share of the file system's journal in it.
pub const ROLLBACK_JOURNAL_SHARE: Stated = Stated::about(0.60, "text on figure 15");

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(stated: Option<Stated>) -> f64 {
        stated.expect("stated").amount
    }

    fn find(name: &str) -> f64 {
        let all = MODES.iter().chain(&ALIGNED);
        amount(
            all.into_iter()
                .find(|rate| rate.name == name)
                .expect(name)
                .rate,
        )
    }

    fn rounds_to(value: f64, digits: i32, stated: f64) {
        let unit = 10f64.powi(digits);
        assert!(
            ((value * unit).round() / unit - stated).abs() < 1e-9,
            "{value} is not {stated}"
        );
    }

    #[test]
    fn the_rates_have_the_ratios_that_the_text_gives() {
        let wal = amount(WAL.rate);
        rounds_to(find("header embedding") / wal, 1, 2.1);
        rounds_to(find("WALDIO-PD, GS4") / wal, 1, 5.1);
        rounds_to(find("WALDIO-NS, GS4") / wal, 1, 7.4);
        let mvbt = find("LS-MVBT");
        rounds_to(mvbt / wal, 1, 1.8);
        rounds_to(find("WALDIO-FS, GS4") / mvbt, 1, 2.5);
        rounds_to(find("WALDIO-PD, GS4") / mvbt, 1, 2.7);
        rounds_to(find("WALDIO-NS, GS4") / mvbt, 1, 4.0);
        // "By 120 %", and "more than 35 %".
        rounds_to(find("WALDIO-FS, GS4") / find("WALDIO-FS"), 1, 2.2);
        assert!(find("WALDIO-NS, GS4") / find("WALDIO-PD, GS4") > 1.35);
        // WALDIO-FS without grouping is figure 13's header embedding, measured again.
        assert!((find("header embedding") / find("WALDIO-FS") - 1.0).abs() < 0.02);
    }

    #[test]
    fn the_volumes_have_the_shares_that_the_text_gives() {
        let [wal, _, embedded] = THOUSAND_INSERTS;
        let (total, data) = (amount(wal.2), amount(wal.3));
        rounds_to(total / amount(embedded.2), 0, 6.0);
        rounds_to(data / amount(embedded.3), 0, 3.0);
        let volume = |name| ONE_INSERT.iter().find(|v| v.name == name).expect(name);
        let wal = volume("WAL");
        rounds_to(amount(wal.joj) / amount(wal.total), 1, WAL_JOJ_SHARE.amount);
        // One insert of table 1 is a thousandth of figure 8's.
        assert!((total / (amount(wal.total) * KIB / 1000.0) - 1.0).abs() < 0.05);
        assert_eq!(TEN_IN_WAL.amount, 10.0 * amount(volume("WAL").total));
        assert_eq!(TEN_IN_WALDIO.amount, 10.0 * ONE_PAGE.amount);
        let parts = |name| {
            let of = ONE_INSERT_PARTS.iter().filter(move |(of, ..)| *of == name);
            of.map(|(.., stated)| stated.amount).sum::<f64>()
        };
        assert_eq!(parts("OFF"), amount(volume("OFF").total));
        assert_eq!(parts("WAL"), amount(volume("WAL").total));
        let delete = volume("DELETE");
        assert!(amount(delete.joj) / amount(delete.total) > DELETE_JOJ_SHARE.amount);
    }
}
