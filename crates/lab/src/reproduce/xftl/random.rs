//! fio's random write, as the paper ran it: the program itself, on the mounted device. Each job
//! writes pages anywhere in a file of its own, with an fsync after every few pages.
//!
//! ext4 in its ordered mode journals only metadata; in full data journaling it journals every page
//! twice. Transactional files commit data and metadata in one transaction, which is as consistent
//! as full data journaling. A transaction is of a file: the fsync of one job commits what this job
//! has written, and nothing of the others. On ext4 it also commits the metadata of the others.
//!
//! The slides state neither fio's block size nor the size of its files. Here they are pages of the
//! device, and `--file-size`. Contents and order are fio's defaults: it writes every page
//! once before it writes one again.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;
use serde_json::Value;

use super::test_device::{Below, TestDevice};
use super::trial::{Compared, Measured, number, write_file};

/// Jobs at a time, unless the user sets the number.
pub const JOBS: [u32; 2] = [1, 4];
/// The most jobs: each then has a file of a few MiB, and their transactions fit into the X-L2P table.
pub const MOST_JOBS: i64 = 8;

/// The systems to compare.
pub const MODES: [Compared; 3] = [
    Compared::new("ext4, ordered", "", Below::Ext4),
    Compared::new("ext4, full data journaling", "", Below::Ext4DataJournal),
    Compared::new("X-FTL", "", Below::Files),
];

/// A run of fio.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Pages between two fsyncs.
    pub every: u32,
    /// Processes, each with a file of its own.
    pub jobs: u32,
    /// The fewest pages of all jobs.
    pub pages: u32,
    /// MiB of all files.
    pub file_mib: u32,
    pub seed: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
}

/// fio's own counts, of all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Said {
    pub writes: u64,
    pub syncs: u64,
}

/// Whether fio can be run.
///
/// # Errors
/// A text that names the package.
pub fn check_installed() -> Result<(), String> {
    let ran = fio().arg("--version").output().map_err(not_run)?;
    match ran.status.success() {
        true => Ok(()),
        false => Err(format!("fio --version: {}", ran.status)),
    }
}

fn fio() -> Command {
    let mut command = Command::new("fio");
    command.stdin(Stdio::null());
    command
}

fn not_run(error: std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => {
            "the figure fio takes the program fio, of Debian's package fio: apt-get install fio"
                .to_owned()
        }
        _ => format!("cannot run fio: {error}"),
    }
}

impl Job {
    /// The file of a job, by fio's number for it.
    fn file(root: &Path, job: u32) -> PathBuf {
        root.join(format!("random.{job}"))
    }

    /// Whole MiB.
    fn bytes_of_a_file(self) -> u64 {
        u64::from((self.file_mib / self.jobs.max(1)).max(1)) << 20
    }

    /// Pages of each job: whole groups, so that an fsync follows the last one.
    fn pages_of_a_job(self) -> u32 {
        let pages = self.pages.div_ceil(self.jobs.max(1));
        pages.next_multiple_of(self.every.max(1))
    }

    /// Makes the files. fio's own way would be a transaction that is larger than X-FTL's table.
    pub fn lay_out(self, root: &Path) -> Result<(), String> {
        let bytes = self.bytes_of_a_file();
        (0..self.jobs).try_for_each(|job| write_file(&Self::file(root, job), bytes))
    }

    fn options(self, root: &Path, output: &Path) -> Vec<OsString> {
        let of = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            let mut option = OsString::from(format!("--{name}="));
            option.push(value.as_ref());
            option
        };
        let pages = u64::from(self.pages_of_a_job());
        let numbers = [
            ("bs", self.page_bytes),
            ("size", self.bytes_of_a_file()),
            ("io_size", pages * self.page_bytes),
            ("fsync", u64::from(self.every)),
            // fio ends without the fsync that is due then. This one it does, but does not count.
            ("end_fsync", 1),
            ("numjobs", u64::from(self.jobs)),
            ("randseed", self.seed),
        ];
        let mut options = vec![
            of("name", &"random"),
            of("directory", &root),
            of("filename_format", &"random.$jobnum"),
            of("rw", &"randwrite"),
            of("ioengine", &"psync"),
            of("fallocate", &"none"),
            of("output-format", &"json"),
            of("output", &output),
        ];
        let numbers = numbers.map(|(name, number)| of(name, &number.to_string()));
        options.extend(numbers);
        options
    }

    /// Runs fio in a directory with its files or without, and says whether it did all of its work.
    ///
    /// # Errors
    /// If it could not be run.
    pub fn write(self, root: &Path) -> Result<Result<(), String>, String> {
        let dir = tempfile::tempdir().map_err(|error| format!("no directory for fio: {error}"))?;
        self.fio_in(root, &dir.path().join("fio.json"), dir.path())
    }

    fn fio_in(self, root: &Path, output: &Path, dir: &Path) -> Result<Result<(), String>, String> {
        let mut command = fio();
        let command = command.args(self.options(root, output)).current_dir(dir);
        let ran = command.output().map_err(not_run)?;
        let error = String::from_utf8_lossy(&ran.stderr);
        Ok(match ran.status.success() {
            true => Ok(()),
            false => Err(format!("fio: {}: {}", ran.status, error.trim())),
        })
    }

    /// Runs fio, and compares what it says with the device's counts.
    pub fn run(self, device: &mut TestDevice, mode: Compared) -> Result<Measured, String> {
        let dir = tempfile::tempdir().map_err(|error| format!("no directory for fio: {error}"))?;
        let output = dir.path().join("fio.json");
        let before = device.report()?;
        let ran = self.fio_in(device.root(), &output, dir.path())?;
        let after = device.report()?;
        ran?;
        let text = std::fs::read_to_string(&output)
            .map_err(|error| format!("cannot read fio's report: {error}"))?;
        let said = said(&text)?;
        let of = |pointer: &str| number(&after, pointer) - number(&before, pointer);
        let counted = Counted {
            writes: of("/statistics/host_writes"),
            flushes: of("/statistics/flushes"),
            commits: of("/statistics/commits"),
        };
        self.check(mode, said, counted)?;
        Ok(Measured {
            before,
            after,
            count: u32::try_from(said.writes).unwrap_or(u32::MAX),
            checkpoints: None,
            fio: Some(said),
        })
    }

    /// Whether fio's counts and the device's agree.
    fn check(self, mode: Compared, said: Said, counted: Counted) -> Result<(), String> {
        let wrong = |what: &str| {
            Err(format!(
                "{}: {what}: fio says {said:?}, and the device {counted:?}",
                mode.name
            ))
        };
        let (jobs, pages) = (u64::from(self.jobs), u64::from(self.pages_of_a_job()));
        if said.writes != jobs * pages {
            return wrong("fio has not written all pages");
        }
        // A page that is written twice before an fsync is one page. fio does so only when it has
        // written all pages of a file.
        let rewritten =
            (pages * self.page_bytes / self.bytes_of_a_file() + 1) * jobs * u64::from(self.every);
        if counted.writes + rewritten < said.writes {
            return wrong("pages have not reached the device");
        }
        let groups = said.writes / u64::from(self.every.max(1));
        if said.syncs + jobs != groups {
            return wrong("fio has not synced each group");
        }
        match mode.below {
            // A transaction is the data, and nothing else; each is a job's own.
            Below::Files if counted.writes > said.writes => wrong("more than the data was written"),
            Below::Files if counted.commits != groups => wrong("not each group was committed"),
            Below::Files => Ok(()),
            // ext4 may answer the fsyncs of several jobs by one flush.
            _ if counted.flushes * jobs < groups => wrong("there are too few flushes"),
            _ => Ok(()),
        }
    }
}

/// The device's counts of a run.
#[derive(Clone, Copy, Debug)]
struct Counted {
    writes: u64,
    flushes: u64,
    commits: u64,
}

/// The counts in fio's report.
fn said(text: &str) -> Result<Said, String> {
    let report: Value =
        serde_json::from_str(text).map_err(|error| format!("fio's report: {error}"))?;
    let jobs = report.get("jobs").and_then(Value::as_array);
    let jobs = jobs.ok_or("fio's report has no jobs")?;
    let mut said = Said {
        writes: 0,
        syncs: 0,
    };
    for job in jobs {
        match number(job, "/error") {
            0 => {}
            error => return Err(format!("fio: a job ended with error {error}")),
        }
        said.writes += number(job, "/write/total_ios");
        said.syncs += number(job, "/sync/total_ios");
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Job = Job {
        every: 5,
        jobs: 4,
        pages: 398,
        file_mib: 24,
        seed: 1,
        page_bytes: 8192,
    };

    #[test]
    fn counts_of_fio_and_of_the_device_must_agree() {
        let said = Said {
            writes: 400,
            syncs: 76,
        };
        let counted = |writes, flushes, commits| Counted {
            writes,
            flushes,
            commits,
        };
        let check = |mode: usize, said, counted| JOB.check(MODES[mode], said, counted);
        assert_eq!(JOB.pages_of_a_job(), 100);
        assert_eq!(check(2, said, counted(400, 0, 80)), Ok(()));
        assert_eq!(check(0, said, counted(900, 20, 0)), Ok(()));
        // Planted: pages that never came, or too many, transactions in one, and flushes that are
        // missing.
        for (mode, said, counted) in [
            (2, said, counted(370, 0, 80)),
            (2, said, counted(480, 0, 80)),
            (2, said, counted(400, 0, 20)),
            (0, said, counted(370, 80, 0)),
            (1, said, counted(900, 19, 0)),
            (
                2,
                Said {
                    writes: 395,
                    ..said
                },
                counted(395, 0, 79),
            ),
            (2, Said { syncs: 40, ..said }, counted(400, 0, 80)),
        ] {
            check(mode, said, counted).unwrap_err();
        }
    }

    #[test]
    fn the_files_of_all_jobs_are_as_large_as_they_are_set() {
        let sizes = |job: Job| {
            let options = job.options(Path::new("/x"), Path::new("/y"));
            let size = options
                .iter()
                .find_map(|one| one.to_str()?.strip_prefix("--size="));
            (size.map(str::to_owned), job.bytes_of_a_file())
        };
        let of = |file_mib| sizes(Job { file_mib, ..JOB });
        assert_eq!(of(24), (Some("6291456".to_owned()), 6 << 20));
        assert_eq!(of(8), (Some("2097152".to_owned()), 2 << 20));
    }

    #[test]
    fn fio_s_report_is_added_up_and_a_failed_job_is_an_error() {
        let job = |error| {
            format!(
                r#"{{"error": {error}, "write": {{"total_ios": 100}}, "sync": {{"total_ios": 20}}}}"#
            )
        };
        let text = |jobs: &[String]| format!(r#"{{"jobs": [{}]}}"#, jobs.join(","));
        let all = said(&text(&[job(0), job(0)]));
        assert_eq!(
            all,
            Ok(Said {
                writes: 200,
                syncs: 40
            })
        );
        said(&text(&[job(0), job(5)])).unwrap_err();
        said("note: \n").unwrap_err();
    }

    #[test]
    fn without_fio_the_error_names_the_package() {
        let missing = std::io::Error::from(ErrorKind::NotFound);
        assert!(not_run(missing).contains("package fio"));
    }
}
