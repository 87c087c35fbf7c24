//! Tables of the results, with the paper's numbers next to them.

use comfy_table::{CellAlignment, Table, presets};

use super::Report;
use super::cycles::Checkpoints;
use super::flush::Costs;
use super::restart::{Group, Restarted, groups};
use super::trial::Ran;
use super::{controllers, fsck, space};

/// The slides' statements in numbers.
pub const PAPER: &str = "\
Paper: on partsupply X-FTL is 3.0 and 11.7 times as fast, somewhere in 1 to 20 pages a transaction (slide 22; we read these as WAL and \
the rollback journal). It halves what is written, doubles the life, and is 2 to 3 times as fast, of no named workload (slide 26). \
Of Android's traces and TPC-C the slides state nothing. fio is better than ext4's ordered mode (slide 24).
";

/// The differences between both sides, and our choices.
pub const FOOT: &str = "\
Counts are pages a transaction (of fio: a page), reads those of the host; checkpoints are those of the whole run, which has whole cycles of them. Rollback journal, WAL and fio's ext4 run on ext4, X-FTL on transactional files, \
which have no times, directories and block bitmaps to write, and trim what they free, as ext4 here does not: the paper ran ext4 \
on both sides. Where one device is named it is the paper's board as its public firmware has it; the figure controllers varies what the slides \
do not say: \"whole map at flush\" is a cost of flushes that X-FTL's commit does not have, and without it the ratios are smaller. Valid at \
GC are pages of the blocks that garbage collection emptied, as measured; where a share is wanted, each mode's device is as full as that takes.
";

/// The meaning of the costs of flushes.
pub const FLUSH_FOOT: &str = "\
A flush after so many pages anywhere on a new device. Programs are those of the FTL; ms are from the first page to the end of \
the flush, in the device's own time. A commit is X-FTL's of as many pages on the same device.
";

/// All tables.
pub fn text(report: &Report) -> String {
    let mut text = format!(
        "X-FTL (SIGMOD '13), {}; times are the device's own\n",
        report.shape
    );
    text.push_str(&space::text(&report.cells));
    if !report.flushes.is_empty() {
        text.push_str(&format!("{}\n{FLUSH_FOOT}", flushes(&report.flushes)));
    }
    if !report.ran.is_empty() {
        text.push_str(&format!("{}\n{FOOT}{PAPER}", runs(&report.ran)));
    }
    if report.ran.iter().any(|ran| ran.figure == "controllers") {
        text.push_str(&format!("{}\n", sources(&report.ran)));
    }
    if !report.restarts.is_empty() {
        text.push_str(&format!("{}\n", restarts(&report.restarts)));
        for claim in space::restart_claims(&report.restarts) {
            text.push_str(&format!("- {claim}\n"));
        }
    }
    if !report.checks.is_empty() {
        text.push_str(&format!("{}\n", fsck::checks_table(&report.checks)));
    }
    for shown in &report.figures {
        text.push_str(&crate::reproduce::text::figure(shown));
    }
    for picture in &report.pictures {
        text.push_str(&format!("drawn in {picture}\n"));
    }
    text
}

pub fn table(header: &[&str], left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

pub fn flushes(costs: &[Costs]) -> Table {
    let header = [
        "host MiB",
        "page KiB",
        "FTL",
        "pages",
        "flush: programs",
        "flush: ms",
        "commit: programs",
        "commit: ms",
    ];
    let mut table = table(&header, 0);
    for one in costs {
        let figure = |figure: f64| format!("{figure:.2}");
        table.add_row([
            one.host_mib.to_string(),
            one.page_kib.to_string(),
            one.controller.ftl_name(),
            one.pages.to_string(),
            figure(one.flush.programs),
            figure(one.flush.ms),
            figure(one.commit.programs),
            figure(one.commit.ms),
        ]);
    }
    table
}

pub fn runs(ran: &[Ran]) -> Table {
    let mut table = table(
        &[
            "workload",
            "device",
            "mode",
            "ms/transaction",
            "to X-FTL",
            "host",
            "reads",
            "map",
            "X-L2P",
            "roots",
            "GC copies",
            "erases",
            "flushes or commits",
            "checkpoints",
            "valid at GC",
        ],
        3,
    );
    for one in ran {
        table.add_row(row(one, ran));
    }
    table
}

fn row(ran: &Ran, all: &[Ran]) -> [String; 15] {
    let factor = to_xftl(ran, all);
    let each = |count: u64| format!("{:.2}", count as f64 / f64::from(ran.transactions.max(1)));
    [
        ran.workload.clone(),
        format!("{}, {}", ran.controller.name(), ran.fullness.name()),
        ran.mode.to_owned(),
        format!("{:.2}", ran.ms_per_transaction),
        factor.map_or_else(String::new, |factor| format!("{factor:.2}")),
        each(ran.host_writes),
        each(ran.host_reads),
        each(ran.map_writes),
        each(ran.table_writes),
        each(ran.root_writes),
        each(ran.gc_copies),
        each(ran.erases),
        each(ran.flushes + ran.commits),
        ran.checkpoints.map_or_else(String::new, checkpoints),
        valid(ran),
    ]
}

/// Checkpoints of the whole run.
fn checkpoints(of: Checkpoints) -> String {
    match of.at_end {
        0 => of.automatic.to_string(),
        at_end => format!("{} and {at_end} at the end", of.automatic),
    }
}

/// The validity, and the device that it took if one was wanted.
fn valid(ran: &Ran) -> String {
    let valid = ran
        .gc_validity
        .map_or_else(String::new, |percent| format!("{percent:.0} %"));
    let Some(sought) = ran.sought else {
        return valid;
    };
    let reached = match sought.is_reached {
        true => "",
        false => ", not reached: not compared",
    };
    format!(
        "{valid} ({} ± {} wanted{reached}; {} % full, {} runs)",
        sought.wanted, sought.tolerance, ran.full_percent, sought.tries
    )
}

/// A run's time divided by X-FTL's, for the same figure, workload and device.
pub fn to_xftl(ran: &Ran, all: &[Ran]) -> Option<f64> {
    let same = |other: &&Ran| {
        other.figure == ran.figure
            && other.workload == ran.workload
            && other.fullness == ran.fullness
            && other.controller == ran.controller
            && other.seed == ran.seed
            && other.mode == "X-FTL"
    };
    let xftl = all.iter().find(same)?;
    if !(ran.is_comparable() && xftl.is_comparable()) {
        return None;
    }
    Some(ran.ms_per_transaction / xftl.ms_per_transaction.max(1e-12))
}

/// Every setting, its source, and its result.
pub fn sources(ran: &[Ran]) -> Table {
    let mut table = table(
        &[
            "controller",
            "where it is from",
            "WAL to X-FTL",
            "rollback to X-FTL",
        ],
        2,
    );
    for controller in controllers::ALL {
        let factor = |mode: &str| {
            let of = |one: &&Ran| {
                one.figure == "controllers"
                    && one.controller.is_setting(controller)
                    && one.mode == mode
            };
            let factor = ran.iter().find(of).and_then(|one| to_xftl(one, ran));
            factor.map_or_else(String::new, |factor| format!("{factor:.2}"))
        };
        table.add_row([
            controller.name(),
            controller.source(),
            factor("WAL"),
            factor("rollback journal"),
        ]);
    }
    let paper = "Kang et al., slide 22: an OpenSSD board; which of these it is like, and the number of pages, are not said";
    table.add_row(["the paper", paper, "3.0", "11.7"]);
    table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    table.set_width(130);
    table
}

/// Where the power went, and the length of the run.
fn places(group: &Group<'_>) -> String {
    let places: Vec<String> = group.places().iter().map(u64::to_string).collect();
    let of = group.median().map_or(0, |one| one.operations);
    format!("{} of {of}", places.join(", "))
}

pub fn restarts(restarts: &[Restarted]) -> Table {
    let header = [
        "restart",
        "FTL",
        "host MiB",
        "cuts",
        "in NAND operations",
        "FTL ms",
        "of that X-L2P ms",
        "mount ms",
        "SQLite ms",
        "all of it, ms",
        "without the FTL's, ms",
        "paper, SQLite ms",
    ];
    let mut table = table(&header, 2);
    for group in groups(restarts) {
        let time = |time: fn(&Restarted) -> f64| {
            let (median, least, most) = group.spread(time);
            match format!("{least:.1}") == format!("{most:.1}") {
                true => format!("{median:.1}"),
                false => format!("{median:.1} ({least:.1} to {most:.1})"),
            }
        };
        let paper = group.median().and_then(|one| one.paper_ms);
        table.add_row([
            group.mode.to_owned(),
            group.controller.ftl_name(),
            group.fullness.host_mib.to_string(),
            group.cuts().to_string(),
            places(&group),
            time(|one| one.ftl_ms),
            time(|one| one.table_ms),
            time(|one| one.mount_ms),
            time(|one| one.sqlite_ms),
            time(Restarted::whole_ms),
            time(Restarted::ms),
            paper.map_or_else(String::new, |ms| format!("{ms:.1}")),
        ]);
    }
    table
}
