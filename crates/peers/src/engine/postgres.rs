//! PostgreSQL: a server with a process for each connection, reached by a socket. It is here as a
//! reference, on the same file system, with its default settings. Those are durable.
//!
//! The server refuses to be root's. So it runs as the user `postgres`, and ends with the process that
//! started it: a killed worker is a killed server.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::{Client, Config, NoTls, Statement, Transaction as Sql};
use rustix::process::{Pid, Signal, kill_process};

use super::{Body, Each, Engine, Result, Server, Session, Table, Transaction};

/// The account of the server, and of the database.
const USER: &str = "postgres";
/// How long a server may take to start, and so to recover.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is asked whether it has started.
const PAUSE: Duration = Duration::from_millis(20);

/// A running server.
pub struct Store {
    data: PathBuf,
    server: Child,
}

impl Store {
    /// Starts a server of the data in `dir`, and creates them if they do not exist.
    pub fn open(dir: &Path) -> Result<Self> {
        let data = dir.join("data");
        let programs = programs()?;
        if !data.exists() {
            let mut made = Command::new("install");
            made.args(["-d", "-m", "700", "-o", USER, "-g", USER]);
            succeed(made.arg(&data))?;
            let mut init = as_user(&programs.join("initdb"), &data);
            succeed(init.args(["--auth=trust", "--username", USER, "--encoding=UTF8"]))?;
        }
        let until = Instant::now() + PATIENCE;
        let store = loop {
            match start(&programs, &data, until) {
                Ok(server) => break Self { data, server },
                // The processes of a killed server take a moment to notice.
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => sleep(PAUSE),
            }
        };
        let mut client = store.connect()?;
        for table in Table::ALL {
            let name = table.name();
            client.batch_execute(&format!(
                "CREATE TABLE IF NOT EXISTS {name}(k BIGINT PRIMARY KEY, v BYTEA NOT NULL)"
            ))?;
        }
        Ok(store)
    }

    fn connect(&self) -> Result<Client> {
        Ok(connect(&self.data)?)
    }
}

/// The advice to install it, if that is necessary.
pub fn missing() -> Option<String> {
    programs().err().map(|error| error.to_string())
}

/// Where the server's programs are: Debian has a directory for each version.
fn programs() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.filter_map(|version| {
        let bin = version.ok()?.path().join("bin");
        bin.join("postgres").exists().then_some(bin)
    });
    let newest = versions.max();
    Ok(newest.ok_or("no PostgreSQL in /usr/lib/postgresql: install postgresql-15")?)
}

/// A program of the server, as the server's user, that dies with this process.
fn as_user(program: &Path, data: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", USER, "--regid", USER, "--clear-groups"])
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .arg("-D")
        .arg(data)
        .current_dir(data);
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{command:?}: {}", said.trim()).into())
        }
    }
}

/// Starts a server, and waits until it answers.
fn start(programs: &Path, data: &Path, until: Instant) -> Result<Child> {
    let said = tempfile::NamedTempFile::new()?;
    let mut command = as_user(&programs.join("postgres"), data);
    let mut server = command
        .args(["-c", "listen_addresses=", "-k"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(said.path())?)
        .spawn()?;
    loop {
        if connect(data).is_ok() {
            return Ok(server);
        }
        if server.try_wait()?.is_some() || Instant::now() > until {
            let (_, _) = (server.kill(), server.wait()?);
            let mut text = String::new();
            File::open(said.path())?.read_to_string(&mut text)?;
            return Err(format!("PostgreSQL did not start: {}", text.trim()).into());
        }
        sleep(PAUSE);
    }
}

fn connect(data: &Path) -> std::result::Result<Client, postgres::Error> {
    let mut config = Config::new();
    config.host_path(data).user(USER).dbname(USER);
    config.connect(NoTls)
}

impl Drop for Store {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.server);
        // A fast shutdown: it writes a checkpoint.
        let _ = kill_process(pid, Signal::INT);
        let _ = self.server.wait();
    }
}

impl Engine for Store {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let mut client = self.connect()?;
        let mut of = |sql: &str| -> Result<[Statement; 3]> {
            let [row, chat, time] =
                Table::ALL.map(|table| client.prepare(&sql.replace("TABLE", table.name())));
            Ok([row?, chat?, time?])
        };
        let statements = Statements {
            get: of("SELECT v FROM TABLE WHERE k = $1")?,
            lock: of("SELECT v FROM TABLE WHERE k = $1 FOR UPDATE")?,
            put: of("INSERT INTO TABLE VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = $2")?,
            scan: of("SELECT k, v FROM TABLE WHERE k >= $1 ORDER BY k LIMIT $2")?,
        };
        Ok(Box::new(Seat { client, statements }))
    }

    fn server(&self) -> Result<Server> {
        let mut server = Server::default();
        let parent = self.server.id();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // A process that has just ended is no longer there.
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
                continue;
            };
            let fields: Vec<&str> = match stat.rsplit_once(") ") {
                Some((_, fields)) => fields.split(' ').collect(),
                None => continue,
            };
            if pid != parent && fields[1].parse() != Ok(parent) {
                continue;
            }
            // Its own time, and that of its children that have ended: proc(5), fields 14 to 17.
            let ticks = fields[11..15].iter().map(|ticks| ticks.parse::<u64>());
            let ticks = ticks.sum::<std::result::Result<u64, _>>()?;
            server.cpu_nanos += ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second();
            server.memory_kib += proportional_kib(pid);
        }
        Ok(server)
    }
}

/// A process's share of its memory, in KiB.
fn proportional_kib(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// The statements of a connection, for each table.
struct Statements {
    get: [Statement; 3],
    lock: [Statement; 3],
    put: [Statement; 3],
    scan: [Statement; 3],
}

/// A connection.
struct Seat {
    client: Client,
    statements: Statements,
}

struct Open<'a> {
    transaction: Sql<'a>,
    statements: &'a Statements,
}

impl Transaction for Open<'_> {
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let statement = &self.statements.lock[table as usize];
        let row = self
            .transaction
            .query_opt(statement, &[&key.cast_signed()])?;
        Ok(row.map(|row| row.get(0)))
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        let statement = &self.statements.put[table as usize];
        self.transaction
            .execute(statement, &[&key.cast_signed(), &value])?;
        Ok(())
    }
}

/// Whether another transaction won the race for a row.
fn conflict(error: &super::Error) -> bool {
    let error = error.downcast_ref::<postgres::Error>();
    let code = error.and_then(postgres::Error::code);
    code == Some(&SqlState::T_R_DEADLOCK_DETECTED)
        || code == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
}

impl Session for Seat {
    fn write(&mut self, body: Body<'_>) -> Result<()> {
        loop {
            let mut open = Open {
                transaction: self.client.transaction()?,
                statements: &self.statements,
            };
            let done = body(&mut open).and_then(|()| Ok(open.transaction.commit()?));
            match done {
                Err(error) if conflict(&error) => {}
                other => return other,
            }
        }
    }

    fn put(&mut self, table: Table, key: u64, value: &[u8]) -> Result<()> {
        let statement = &self.statements.put[table as usize];
        self.client
            .execute(statement, &[&key.cast_signed(), &value])?;
        Ok(())
    }

    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        let statement = &self.statements.get[table as usize];
        let row = self.client.query_opt(statement, &[&key.cast_signed()])?;
        Ok(row.map(|row| row.get(0)))
    }

    fn scan(&mut self, table: Table, first: u64, limit: usize, each: Each<'_>) -> Result<()> {
        let statement = &self.statements.scan[table as usize];
        let limit = i64::try_from(limit)?;
        let rows = self
            .client
            .query(statement, &[&first.cast_signed(), &limit])?;
        for row in rows {
            let key: i64 = row.get(0);
            each(key.cast_unsigned(), row.get(1))?;
        }
        Ok(())
    }
}
