//! fsck after a power cut, in the order of slide 31: fio, then the power goes, then fsck.
//!
//! fio writes pages anywhere in new files, so that ext4 allocates their blocks meanwhile. The power
//! goes in one NAND operation. The FTL opens from flash, the kernel mounts ext4, which plays its
//! journal back, and `e2fsck -f -n` looks at everything. ext4 without a journal is the control: it
//! has nothing to play back, and is checked as the cut left it.

use std::path::Path;
use std::process::{Command, Stdio};

use comfy_table::Table;
use onewrite_common::random::SplitMix64;
use serde::Serialize;
use serde_json::Value;

use super::controllers::Controller;
use super::random::Job;
use super::restart::{Places, TRIES};
use super::test_device::{Below, TestDevice};
use super::text::table;
use super::trial::{Compared, Fill, Fullness, number};
use onewrite_cli::interrupt;

/// The systems.
pub const MODES: [Compared; 3] = [
    Compared::new("ext4, ordered", "", Below::Ext4),
    Compared::new("ext4, full data journaling", "", Below::Ext4DataJournal),
    Compared::new("ext4, no journal", "", Below::Ext4NoJournal),
];

/// A device, and fio's writes on it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub controller: Controller,
    pub fullness: Fullness,
    /// Percent of the NAND that is programmed before.
    pub precondition: u32,
    pub job: Job,
    pub cuts: u32,
}

/// The check after one cut.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    pub mode: &'static str,
    pub controller: Controller,
    pub fullness: Fullness,
    /// The NAND operation in which the power went, counted from fio's first.
    pub cut: u64,
    /// The NAND operations of the whole run.
    pub operations: u64,
    /// The FTL's time, from flash.
    pub ftl_ms: f64,
    /// Mounting ext4, which plays its journal back; null without a journal.
    pub mount_ms: Option<f64>,
    /// The time of fsck, and the pages that it read.
    pub fsck_ms: f64,
    pub fsck_reads: u64,
    /// Whether fsck found no error.
    pub is_clean: bool,
    /// The first errors that it found.
    pub errors: Vec<String>,
}

/// The checks of a system, each after a cut of its own.
///
/// # Errors
/// If ext4 with a journal has errors: the device then has lost what it had answered for.
pub fn checks(case: Case, mode: Compared) -> Result<Vec<Checked>, String> {
    let operations = operations(case, mode)?;
    let mut places = Places {
        operations,
        parts: u64::from(case.cuts),
        random: SplitMix64::new(case.job.seed),
    };
    (0..places.parts)
        .map(|part| {
            let found = (0..TRIES)
                .find_map(|_| check_after(places.draw(part), operations, case, mode).transpose());
            let checked = found.unwrap_or_else(|| Err(format!("{}: never cut off", mode.name)))?;
            match checked.is_clean || mode.below == Below::Ext4NoJournal {
                true => Ok(checked),
                false => Err(format!(
                    "{} has errors after a power cut in operation {}: {}",
                    mode.name,
                    checked.cut,
                    checked.errors.join("; ")
                )),
            }
        })
        .collect()
}

fn ready(case: Case, mode: Compared) -> Result<TestDevice, String> {
    if interrupt::is_requested() {
        return Err("interrupted".to_owned());
    }
    let Fullness {
        host_mib,
        spare_percent,
        fill,
    } = case.fullness;
    let shape = case.controller.shape(host_mib, spare_percent)?;
    let mut device = TestDevice::start(case.controller, &shape, mode.below)?;
    if let Fill::Percent(percent) = fill {
        device.use_up(percent, case.job.seed, case.precondition)?;
    }
    Ok(device)
}

/// The NAND operations of all of fio's writes. Another run may have some more or fewer: the kernel
/// writes ext4's journal after a time, too.
fn operations(case: Case, mode: Compared) -> Result<u64, String> {
    eprintln!("onewrite: fsck, {}, the whole run", mode.name);
    let mut device = ready(case, mode)?;
    let before = device.report()?;
    let ended = case.job.write(device.root())?;
    let after = device.report()?;
    device.end()?;
    ended?;
    let of = |pointer: &str| number(&after, pointer) - number(&before, pointer);
    Ok(of("/nand/reads") + of("/nand/programs") + of("/nand/erases"))
}

/// The check after a cut; `None` if fio was done before.
fn check_after(
    cut: u64,
    operations: u64,
    case: Case,
    mode: Compared,
) -> Result<Option<Checked>, String> {
    eprintln!("onewrite: fsck, {}, cut {cut}", mode.name);
    let mut device = ready(case, mode)?;
    device.order(&format!("cut {cut}"))?;
    if case.job.write(device.root())?.is_ok() {
        device.end()?;
        return Ok(None);
    }
    let off = device.order("off")?;
    let off: u64 = off
        .parse()
        .map_err(|_| format!("off is answered by {off:?}"))?;
    // Nothing can be written any more, so the result does not matter.
    let _ = device.unmount();
    let on: Value =
        serde_json::from_str(&device.order("on")?).map_err(|error| error.to_string())?;
    let recovery = number(&on, "/recovery/nanoseconds");
    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    let mount_ms = match mode.below {
        Below::Ext4NoJournal => None,
        below => {
            device.mount(below)?;
            let mounted = number(&device.report()?, "/now_ns");
            device.unmount()?;
            Some(ms(mounted.saturating_sub(off + recovery)))
        }
    };
    let before = device.report()?;
    let errors = fsck(device.node())?;
    let after = device.report()?;
    device.end()?;
    let of = |pointer: &str| number(&after, pointer) - number(&before, pointer);
    Ok(Some(Checked {
        mode: mode.name,
        controller: case.controller,
        fullness: case.fullness,
        cut,
        operations,
        ftl_ms: ms(recovery),
        mount_ms,
        fsck_ms: ms(of("/now_ns")),
        fsck_reads: of("/nand/reads"),
        is_clean: errors.is_none(),
        errors: errors.unwrap_or_default(),
    }))
}

/// The errors that `e2fsck -f -n` finds, `None` if there are none. It changes nothing.
fn fsck(node: &Path) -> Result<Option<Vec<String>>, String> {
    let done = Command::new("e2fsck")
        .args(["-f", "-n"])
        .arg(node)
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| format!("cannot run e2fsck (e2fsprogs): {error}"))?;
    let said = String::from_utf8_lossy(&done.stdout);
    verdict(done.status.code(), &said)
        .map_err(|code| format!("e2fsck: {code}: {}", String::from_utf8_lossy(&done.stderr)))
}

/// The meaning of e2fsck's exit code: 0 is no error, and 4 are errors that were left.
fn verdict(code: Option<i32>, said: &str) -> Result<Option<Vec<String>>, String> {
    match code {
        Some(0) => Ok(None),
        Some(4) => {
            let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
            let told = lines.filter(|line| !line.starts_with("Pass "));
            Ok(Some(told.take(5).map(str::to_owned).collect()))
        }
        Some(code) => Err(format!("exit code {code}")),
        None => Err("killed".to_owned()),
    }
}

/// A row for each system on each device, in the order of the runs.
pub fn checks_table(checks: &[Checked]) -> Table {
    let header = [
        "fsck after a power cut",
        "FTL",
        "host MiB",
        "cuts",
        "clean",
        "FTL ms",
        "mount ms",
        "fsck ms",
        "pages read by fsck",
    ];
    let mut table = table(&header, 2);
    let is_same = |a: &Checked, b: &Checked| {
        (a.mode, a.controller, a.fullness) == (b.mode, b.controller, b.fullness)
    };
    for (index, first) in checks.iter().enumerate() {
        if checks[..index].iter().any(|one| is_same(one, first)) {
            continue;
        }
        let of: Vec<&Checked> = checks.iter().filter(|one| is_same(one, first)).collect();
        let clean = of.iter().filter(|one| one.is_clean).count();
        let time = |time: fn(&Checked) -> Option<f64>| {
            spread(of.iter().filter_map(|one| time(one)).collect())
        };
        table.add_row([
            first.mode.to_owned(),
            first.controller.ftl_name(),
            first.fullness.host_mib.to_string(),
            of.len().to_string(),
            clean.to_string(),
            time(|one| Some(one.ftl_ms)),
            time(|one| one.mount_ms),
            time(|one| Some(one.fsck_ms)),
            time(|one| Some(one.fsck_reads as f64)),
        ]);
    }
    table
}

/// The median, and the range; empty without a number.
fn spread(mut of: Vec<f64>) -> String {
    of.sort_by(f64::total_cmp);
    let ends = of.first().zip(of.last());
    match (onewrite_common::middle(&of), ends) {
        (Some(median), Some((least, most))) if least != most => {
            format!("{median:.1} ({least:.1} to {most:.1})")
        }
        (Some(median), _) => format!("{median:.1}"),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_and_a_check_that_could_not_be_made_is_no_verdict() {
        let said = "Pass 1: Checking inodes\nInode 12, i_blocks is 8, should be 0.  Fix? no\n\n";
        assert_eq!(verdict(Some(0), said), Ok(None));
        let errors = vec!["Inode 12, i_blocks is 8, should be 0.  Fix? no".to_owned()];
        assert_eq!(verdict(Some(4), said), Ok(Some(errors)));
        verdict(Some(8), said).unwrap_err();
        verdict(None, said).unwrap_err();
    }
}
