//! The mount table, as proc_pid_mountinfo(5) describes it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The table of this process.
pub const OF_THIS_PROCESS: &str = "/proc/self/mountinfo";
/// The table of this thread, which may have its own mount namespace.
pub const OF_THIS_THREAD: &str = "/proc/thread-self/mountinfo";

/// One line of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The id that statx reports (`STATX_MNT_ID`).
    pub id: u64,
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// `ext4`, `xfs`, `fuse.sshfs`, ...
    pub filesystem: String,
    /// `/dev/sda1`, a name, or `none`.
    pub source: PathBuf,
    /// Options of the mount point and of the file system, in this order, each once.
    pub options: Vec<String>,
}

/// The lines of a table, in the order of the file. A line that is no mount is left out.
///
/// # Errors
/// The file cannot be read: there may be no `/proc`.
pub fn read(table: impl AsRef<Path>) -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read(table)?))
}

/// The lines of a table.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    let lines = table.split(|&byte| byte == b'\n');
    lines.filter_map(parse_line).collect()
}

/// The mount that holds a path: the longest mount point, and of equal ones the last, which hides the
/// others.
pub fn holding<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let holding = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    holding.max_by_key(|mount| mount.point.as_os_str().len())
}

/// `36 35 98:0 /root /point rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw,data=journal`. Any
/// number of optional fields comes before the lone dash.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    let mut options = option_list(fields.get(5)?);
    for option in option_list(fields.get(dash + 3)?) {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    Some(Mount {
        id: number(fields.first()?)?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(fields.get(3)?).into(),
        point: unescape(fields.get(4)?).into(),
        filesystem: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
        source: unescape(fields.get(dash + 2)?).into(),
        options,
    })
}

fn option_list(field: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(field);
    text.split(',').map(str::to_owned).collect()
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(value) = octal {
            out.push(value);
            rest = &tail[3..];
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes_is_understood() {
        let line = br"36 35 98:5 /a /mnt/two\040words rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw,noatime,data=journal";
        let mount = parse_line(line).expect("a well-formed line");
        assert_eq!((mount.id, mount.device), (36, (98, 5)));
        assert_eq!(mount.root, PathBuf::from("/a"));
        assert_eq!(mount.point, PathBuf::from("/mnt/two words"));
        assert_eq!(mount.filesystem, "ext4");
        assert_eq!(mount.source, PathBuf::from("/dev/sda1"));
        assert_eq!(mount.options, ["rw", "noatime", "data=journal"]);
    }

    #[test]
    fn broken_lines_are_no_mount() {
        for line in [
            &b""[..],
            b"36",
            b"36 35 98:0 / / rw",
            b"36 35 98:0 / / rw - ext4",
            b"36 35 98 / / rw - ext4 none rw",
            b"no 35 98:0 / / rw - ext4 none rw",
        ] {
            assert_eq!(parse_line(line), None);
        }
    }

    #[test]
    fn the_last_mount_of_the_longest_path_holds_a_file() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            2 1 8:2 / /mnt rw - xfs /dev/sdb rw\n\
            3 2 0:40 / /mnt rw - vfat /dev/sdc rw\n\
            4 3 0:41 / /mnt/a\\040b rw shared:2 - overlay none rw\n";
        let mounts = parse(table);
        let kind = |path: &str| holding(&mounts, Path::new(path)).map(|m| m.filesystem.as_str());
        assert_eq!(kind("/home/x"), Some("ext4"));
        assert_eq!(kind("/mnt/x"), Some("vfat"));
        assert_eq!(kind("/mnt/a b/x"), Some("overlay"));
        assert_eq!(kind("/mntx"), Some("ext4"));
        assert_eq!(holding(&[], Path::new("/")), None);
    }

    #[test]
    fn this_process_has_mounts() {
        let mounts = read(OF_THIS_PROCESS).expect("/proc");
        assert!(mounts.iter().any(|mount| mount.point == Path::new("/")));
    }
}
