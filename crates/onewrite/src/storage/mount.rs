//! The mount of a file, from `/proc/thread-self/mountinfo`, as in proc_pid_mountinfo(5). It is the
//! thread's file and not the process's, because a thread may have its own mount namespace.
//!
//! Called by the capability probe, for reasons and reports only. Without `/proc` the answer is
//! `None`, and direct I/O still works.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One line of mountinfo.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mount {
    /// The mount point.
    pub point: PathBuf,
    /// `ext4`, `xfs`, `fuse.sshfs`, ...
    pub filesystem: String,
    /// `/dev/sda1`, a name, or `none`.
    pub source: PathBuf,
    /// Options of the mount point and of the file system, in this order.
    pub options: Vec<String>,
}

/// Finds the mount with the id that statx reports (`STATX_MNT_ID`).
pub(super) fn mount_by_id(id: u64) -> Option<Mount> {
    let table = std::fs::read("/proc/thread-self/mountinfo").ok()?;
    table
        .split(|&b| b == b'\n')
        .filter(|line| line_id(line) == Some(id))
        .find_map(parse_line)
}

fn line_id(line: &[u8]) -> Option<u64> {
    let first = line.split(|&b| b == b' ').next()?;
    std::str::from_utf8(first).ok()?.parse().ok()
}

/// `36 35 98:0 /root /point rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw,data=journal`. Any
/// number of optional fields comes before the lone dash.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    let dash = fields.iter().skip(6).position(|f| *f == b"-")? + 6;
    let mut options = option_list(fields.get(5)?);
    for option in option_list(fields.get(dash + 3)?) {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    Some(Mount {
        point: unescape(fields.get(4)?).into(),
        filesystem: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
        source: unescape(fields.get(dash + 2)?).into(),
        options,
    })
}

fn option_list(field: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(field)
        .split(',')
        .map(str::to_owned)
        .collect()
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
        let line = br"36 35 98:0 /a /mnt/two\040words rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw,noatime,data=journal";
        let mount = parse_line(line).expect("a well-formed line");
        assert_eq!(mount.point, PathBuf::from("/mnt/two words"));
        assert_eq!(mount.filesystem, "ext4");
        assert_eq!(mount.source, PathBuf::from("/dev/sda1"));
        assert_eq!(mount.options, ["rw", "noatime", "data=journal"]);
        assert_eq!(line_id(line), Some(36));
    }

    #[test]
    fn broken_lines_are_no_mount() {
        for line in [
            &b""[..],
            b"36",
            b"36 35 98:0 / / rw",
            b"36 35 98:0 / / rw - ext4",
        ] {
            assert_eq!(parse_line(line), None);
        }
    }
}
