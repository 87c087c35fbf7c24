//! A sandbox refuses system calls that it does not know with EPERM, as containers did for years. The
//! engine does without them, as on an old kernel.

use std::os::unix::process::CommandExt;

use super::children::{self, printed, this_program};
use super::{is_stock, open, sql};

#[test]
fn calls_that_a_sandbox_refuses_are_done_without() {
    let directory = tempfile::tempdir().expect("a directory");
    for mode in ["direct", "waldio", "swal", "onewrite"] {
        let path = directory.path().join(mode);
        let mut child = children::child(&this_program(), "refused::child", &path);
        let filter = Filter::refusing(&REFUSED);
        // SAFETY: the child makes two system calls with memory that is there already.
        unsafe { child.pre_exec(move || filter.install()) };
        let text = printed(child.env("ONEWRITE_TEST_MODE", mode));
        assert!(text.contains(&format!("mode={mode} rows=200")), "{text}");
        assert!(is_stock(&path), "{mode}");
        assert_eq!(sql(&open(&path), "SELECT count(*) FROM t"), "200");
    }
}

#[test]
#[ignore = "a part of another test, for a process of its own"]
fn child() {
    let path = std::env::var(children::DATABASE).expect("a database");
    let mode = std::env::var("ONEWRITE_TEST_MODE").expect("a mode");
    let db = open(path.as_ref());
    let mode = sql(&db, &format!("PRAGMA journal_mode={mode}"));
    sql(&db, "CREATE TABLE t(x)");
    for _ in 0..200 {
        sql(&db, "INSERT INTO t VALUES(randomblob(900))");
    }
    println!("mode={mode} rows={}", sql(&db, "SELECT count(*) FROM t"));
}

/// Calls that kernels did not always have, or that a file system may lack.
const REFUSED: [libc::c_long; 5] = [
    libc::SYS_pwritev2,
    libc::SYS_preadv2,
    libc::SYS_fallocate,
    libc::SYS_statx,
    libc::SYS_copy_file_range,
];

/// A filter of system calls (seccomp).
struct Filter(Vec<libc::sock_filter>);

impl Filter {
    /// These calls fail with EPERM.
    fn refusing(calls: &[libc::c_long]) -> Filter {
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const IS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let of = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
        // The first word of the data is the call's number.
        let mut program = vec![of(LOAD, 0, 0)];
        for (call, to_the_end) in calls.iter().zip((1..=calls.len()).rev()) {
            let call = u32::try_from(*call).expect("a number");
            let to_the_end = u8::try_from(to_the_end).expect("few calls");
            program.push(of(IS_EQUAL, to_the_end, call));
        }
        program.push(of(RETURN, 0, libc::SECCOMP_RET_ALLOW));
        let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        program.push(of(RETURN, 0, refuse));
        Filter(program)
    }

    /// For this process, and the program that it will run.
    fn install(&self) -> std::io::Result<()> {
        let program = libc::sock_fprog {
            len: self.0.len() as u16,
            filter: self.0.as_ptr().cast_mut(),
        };
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the program lives until the calls return, and the kernel does not change it.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) == 0
        };
        match installed {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    }
}
