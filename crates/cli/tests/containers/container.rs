//! A container of namespaces, as a container runtime makes it. It has its own processes, mounts and
//! network, no capability, and a root file system that is read-only. Its program is PID 1.
//!
//! **Nothing is left behind.** All mounts are in the container's own mount namespace, and none
//! spreads from there. So they end with its last process, also after a kill.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::common::{build_libraries, path};

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(120);

/// The directory of the command and its libraries, in every container.
pub const TOOLS: &str = "/opt";
/// The command in every container.
pub const ONEWRITE: &str = "/opt/onewrite";

/// Makes the mounts, gives up all privileges, and becomes the program.
const SCRIPT: &str = r#"
root=$1 tools=$2 point=$3 kind=$4 options=$5 source=$6 access=$7 user=$8
shift 8
mount --rbind / "$root"
mount --bind "$tools" "$root/opt"
mount -t "$kind" -o "$options" "$source" "$root$point"
mounts=$(awk '{ print $5 }' /proc/self/mountinfo)
for at in $mounts; do
    case $access$at in
        "rw$root$point") ;;
        r?"$root" | r?"$root"/*) mount -o remount,bind,ro "$at" 2>/dev/null || true ;;
    esac
done
if [ -w "$root/etc" ]; then
    echo "the root is writable" >&2
    exit 1
fi
exec chroot "$root" setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all -- "$@"
"#;

/// The file system that the database lies on. Everything else is read-only.
#[derive(Clone, Copy)]
pub enum Volume<'a> {
    /// A directory or a file of the host.
    Bind(&'a Path),
    /// The same, read-only.
    ReadOnly(&'a Path),
    /// A tmpfs of the container's own.
    Memory,
    /// An image's layer, and a directory with the container's own on top.
    Layers { image: &'a Path, own: &'a Path },
}

impl Volume<'_> {
    /// Type, options and source for mount(8).
    fn mount(self) -> (&'static str, String, PathBuf) {
        match self {
            Volume::Bind(path) | Volume::ReadOnly(path) => {
                ("none", "bind".to_owned(), path.to_owned())
            }
            Volume::Memory => ("tmpfs", "size=64m".to_owned(), "tmpfs".into()),
            Volume::Layers { image, own } => {
                let (upper, work) = (own.join("upper"), own.join("work"));
                let layers = [image, &upper, &work].map(path);
                let [image, upper, work] = layers;
                let options = format!("lowerdir={image},upperdir={upper},workdir={work}");
                ("overlay", options, "overlay".into())
            }
        }
    }

    fn access(self) -> &'static str {
        match self {
            Volume::ReadOnly(_) => "ro",
            _ => "rw",
        }
    }
}

/// The container to start.
pub struct Plan<'a> {
    /// An empty directory for the mount point of its root. Several containers may have the same.
    pub root: &'a Path,
    pub volume: Volume<'a>,
    /// The volume's mount point in the container.
    pub point: &'a str,
    /// Number of its user and group.
    pub user: u32,
}

/// A container that runs.
pub struct Container {
    /// `unshare`, whose only child is PID 1.
    child: Child,
    lines: Receiver<String>,
    /// The lines that were taken from there.
    taken: Vec<String>,
    errors: Option<JoinHandle<String>>,
}

/// How a program ended, and what it said.
pub struct Ended {
    pub status: ExitStatus,
    /// All of its output.
    pub lines: Vec<String>,
    pub errors: String,
}

impl Plan<'_> {
    /// Starts a program in it. The program's standard input ends with the container.
    pub fn start(&self, program: &[&str]) -> Container {
        build_libraries();
        let tools = Path::new(env!("CARGO_BIN_EXE_onewrite")).parent();
        let (kind, options, source) = self.volume.mount();
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--ipc", "--uts"])
            .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["--", "sh", "-euc", SCRIPT, "sh", path(self.root)])
            .arg(tools.expect("a directory"))
            .args([self.point, kind, &options, path(&source)])
            .args([self.volume.access(), &self.user.to_string()])
            .args(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare (util-linux)");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let mut err = child.stderr.take().expect("its errors");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let errors = thread::spawn(move || {
            let mut said = Vec::new();
            let _ = err.read_to_end(&mut said);
            String::from_utf8_lossy(&said).into_owned()
        });
        Container {
            child,
            lines,
            taken: Vec::new(),
            errors: Some(errors),
        }
    }

    /// Runs a program to its end.
    pub fn run(&self, program: &[&str]) -> Ended {
        self.start(program).wait()
    }

    /// The same; the program must succeed. Returns its output.
    pub fn succeed(&self, program: &[&str]) -> Vec<String> {
        let ended = self.run(program);
        assert!(ended.status.success(), "{program:?}: {}", ended.errors);
        ended.lines
    }
}

impl Container {
    /// The next line of its output.
    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => {
                self.taken.push(line.clone());
                line
            }
            Err(e) => {
                self.destroy();
                panic!("no output ({e}): {}", self.errors())
            }
        }
    }

    /// A runtime stops it so: SIGTERM to its PID 1.
    pub fn stop(self) -> Ended {
        kill_process(self.init().expect("it runs"), Signal::TERM).expect("a signal");
        self.wait()
    }

    /// The kernel does so when its memory is used up: SIGKILL. With PID 1 all its processes die.
    pub fn kill(mut self) -> Ended {
        self.destroy();
        self.wait()
    }

    fn wait(mut self) -> Ended {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                break status;
            }
            if begun.elapsed() > DEADLINE {
                self.destroy();
                panic!("it does not end: {}", self.errors());
            }
            thread::sleep(Duration::from_millis(2));
        };
        let mut lines = std::mem::take(&mut self.taken);
        lines.extend(self.lines.iter());
        Ended {
            status,
            lines,
            errors: self.errors(),
        }
    }

    fn errors(&mut self) -> String {
        let errors = self.errors.take().map(JoinHandle::join);
        errors.and_then(Result::ok).unwrap_or_default()
    }

    /// The number that its PID 1 has outside.
    fn init(&self) -> Option<Pid> {
        let parent = self.child.id().to_string();
        let entries = fs::read_dir("/proc").ok()?;
        let mut numbers = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let init = numbers.find(|number| parent_of(number).is_ok_and(|found| found == parent))?;
        Pid::from_raw(init.parse().ok()?)
    }

    fn destroy(&mut self) {
        if let Some(init) = self.init() {
            let _ = kill_process(init, Signal::KILL);
        } else {
            let _ = self.child.kill();
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.destroy();
            let _ = self.child.wait();
        }
    }
}

/// The parent of a process: the second field after its name, which is in parentheses.
fn parent_of(number: &str) -> io::Result<String> {
    number.parse::<u32>().map_err(io::Error::other)?;
    let stat = fs::read_to_string(format!("/proc/{number}/stat"))?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let parent = fields.split_whitespace().nth(1);
    Ok(parent.unwrap_or_default().to_owned())
}
