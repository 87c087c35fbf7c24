//! `onewrite import`: SQL from elsewhere as a trace that `onewrite replay` plays.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use onewrite_common::files::open_named;
use onewrite_record::event::{Event, Outcome, Part, Start, UNKNOWN, When};
use onewrite_record::file::{self, Header, Writer};
use onewrite_record::import::{self, Operation, Script};
use onewrite_record::sql;

use crate::directory::cannot_write;
use crate::inspect::counted;
use crate::{Outcome as CommandOutcome, directory};

/// The text below the options of `import --help`.
pub const AFTER_HELP: &str = "\
sql   the statements of a file, one after the other, such as `sqlite3 app.db .dump` prints \
json  [{\"op\": \"query\", \"sql\": ...}, {\"op\": \"break\", \"delta\": MS}, ...], or an object with such a list as \
\"benchmark\" and the statements that make the database as \"init\", as PocketData publishes

The results of the statements are not known: a replay compares modes with one another.

Examples:
  sqlite3 app.db .dump | onewrite import -o app.trace --format sql -
  onewrite import -o a.trace --start app.db changes.sql
  onewrite import -o pocketdata.trace workload_a_timing_a.json";

/// The files that the command takes.
const EXPECTED: &str = "a script of SQL, a list in JSON, or - for standard input";

/// Bytes of a database in one event.
const PIECE_BYTES: usize = 128 << 10;

/// The name of an import's only database.
const NAME: &[u8] = b"imported.db";

/// The options of `onewrite import`.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The file to read; - is standard input
    file: PathBuf,

    /// The trace to write
    #[arg(short, long, value_name = "TRACE")]
    output: PathBuf,

    /// The format of FILE [default: by the ending of its name, sql for all others]
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// A database to begin with, not in use now [default: an empty one]
    #[arg(long, value_name = "DB")]
    start: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Sql,
    Json,
}

/// Imports.
pub fn run(args: &Args) -> CommandOutcome {
    let is_json = args.file.extension() == Some(OsStr::new("json"));
    let by_name = if is_json { Format::Json } else { Format::Sql };
    let input: Box<dyn Read> = match args.file == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(BufReader::new(open_named(&args.file, EXPECTED)?)),
    };
    // Before the trace is made: one of an earlier import stays where this is no SQL.
    let source = Source::of(args.format.unwrap_or(by_name), input)
        .map_err(|error| format!("{}: {error}", args.file.display()))?;
    let out = Out::create(&args.output)?;
    let count =
        write(args, source, out).inspect_err(|_| directory::remove_half_written(&args.output))?;
    let statements = counted(count, "statement");
    eprintln!("onewrite: {}: {statements}", args.output.display());
    Ok(ExitCode::SUCCESS)
}

/// The words with which a statement of SQLite begins.
const VERBS: [&str; 23] = [
    "ALTER",
    "ANALYZE",
    "ATTACH",
    "BEGIN",
    "COMMIT",
    "CREATE",
    "DELETE",
    "DETACH",
    "DROP",
    "END",
    "EXPLAIN",
    "INSERT",
    "PRAGMA",
    "REINDEX",
    "RELEASE",
    "REPLACE",
    "ROLLBACK",
    "SAVEPOINT",
    "SELECT",
    "UPDATE",
    "VACUUM",
    "VALUES",
    "WITH",
];

/// Characters of a text that is no SQL, for its error.
const SHOWN: usize = 40;

/// Refuses a file that is something else: a replay would compare nothing but its syntax error. Only the
/// first statement is looked at. A program's own mistakes belong into its trace.
fn check_is_sql(first: &[u8]) -> Result<(), String> {
    if VERBS.contains(&sql::verb(first).as_str()) {
        return Ok(());
    }
    let why = if first.starts_with(file::MAGIC) {
        "this is a trace already: play it with \"onewrite replay\"".to_owned()
    } else if first.starts_with(b"SQLite format 3\0") {
        "this is a database: give it as --start, with a script that uses it".to_owned()
    } else if first.trim_ascii_start().starts_with(b"[")
        || first.trim_ascii_start().starts_with(b"{")
    {
        "this is no SQL: give --format json for a list in JSON".to_owned()
    } else {
        let shown: String = String::from_utf8_lossy(first)
            .trim()
            .chars()
            .take(SHOWN)
            .collect();
        format!("it begins with {shown:?}, which is no statement of SQL: give {EXPECTED}")
    };
    Err(why)
}

/// An opened input.
enum Source {
    /// The first statement, if there is any, and those after it.
    Script(Option<Vec<u8>>, Script<Box<dyn Read>>),
    List(import::List),
}

impl Source {
    fn of(format: Format, input: Box<dyn Read>) -> Result<Source, String> {
        if format == Format::Json {
            let list = import::list(input).map_err(|error| error.to_string())?;
            return Ok(Source::List(list));
        }
        let mut script = Script::new(input);
        let first = script.next_statement().map_err(|error| error.to_string())?;
        first.as_deref().map_or(Ok(()), check_is_sql)?;
        Ok(Source::Script(first, script))
    }
}

/// Writes the trace; returns the number of statements.
fn write(args: &Args, source: Source, mut out: Out) -> Result<u64, String> {
    let say = |error: &dyn std::fmt::Display| format!("{}: {error}", args.file.display());
    match source {
        Source::Script(first, mut script) => {
            out.begin(args.start.as_deref())?;
            let mut next = first;
            while let Some(sql) = next {
                out.statement(sql)?;
                next = script.next_statement().map_err(|error| say(&error))?;
            }
            out.finish()
        }
        Source::List(list) => {
            let made = made_by(&list.init, args.start.as_deref())?;
            out.begin(
                made.as_ref()
                    .map(|made| made.path())
                    .or(args.start.as_deref()),
            )?;
            for operation in list.operations {
                match operation {
                    Operation::Query(sql) => out.statement(sql.into_bytes())?,
                    Operation::Break(ms) => out.pause(ms)?,
                }
            }
            out.finish()
        }
    }
}

/// A database that `init` made, if there is any.
fn made_by(
    init: &[String],
    start: Option<&Path>,
) -> Result<Option<tempfile::NamedTempFile>, String> {
    if init.is_empty() {
        return Ok(None);
    }
    if start.is_some() {
        return Err("the list makes its own database: --start is for lists that do not".to_owned());
    }
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let make = || {
        let connection = rusqlite::Connection::open(file.path())?;
        connection.execute_batch("PRAGMA journal_mode=off; PRAGMA synchronous=off; BEGIN")?;
        for sql in init {
            connection.execute_batch(sql)?;
        }
        connection.execute_batch("COMMIT")
    };
    make().map_err(|error: rusqlite::Error| format!("init: {error}"))?;
    Ok(Some(file))
}

/// The trace that is written.
struct Out {
    writer: Writer<BufWriter<File>>,
    path: PathBuf,
    /// Nanoseconds since 1970 of the next statement.
    at: u64,
    count: u64,
}

impl Out {
    fn create(path: &Path) -> Result<Self, String> {
        directory::check_is_trace(path)?;
        let made = File::create(path)
            .and_then(|file| Writer::new(BufWriter::new(file), Header::default()));
        let writer = made.map_err(|error| cannot_write(path, &error))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = now.map_or(0, |now| now.as_nanos() as u64);
        Ok(Self {
            writer,
            path: path.to_owned(),
            at,
            count: 0,
        })
    }

    fn put(&mut self, event: &Event) -> Result<(), String> {
        self.writer
            .put(event)
            .map_err(|error| cannot_write(&self.path, &error))
    }

    /// One process, one connection, one database.
    fn begin(&mut self, start: Option<&Path>) -> Result<(), String> {
        let arguments = b"onewrite\0import\0".to_vec();
        self.put(&Event::Process {
            number: 1,
            pid: u64::from(std::process::id()),
            arguments,
        })?;
        let path = NAME.to_vec();
        match start {
            None => self.put(&Event::Database {
                path,
                start: Start::Empty,
            })?,
            Some(file) => {
                self.put(&Event::Database {
                    path,
                    start: Start::Copied,
                })?;
                self.copy(file)?;
            }
        }
        let (name, path, version) = (NAME.to_vec(), NAME.to_vec(), Vec::new());
        let at = self.at;
        self.put(&Event::Open {
            at,
            connection: 1,
            flags: 6,
            name,
            path,
            version,
        })
    }

    fn copy(&mut self, file: &Path) -> Result<(), String> {
        for part in Part::ALL {
            let name = onewrite_common::files::companion(file, part.suffix());
            if part != Part::Database && !name.exists() {
                continue;
            }
            let say = |error: std::io::Error| format!("{}: {error}", name.display());
            let mut input = File::open(&name).map_err(say)?;
            let mut offset = 0;
            loop {
                let mut bytes = Vec::with_capacity(PIECE_BYTES);
                let length = input
                    .by_ref()
                    .take(PIECE_BYTES as u64)
                    .read_to_end(&mut bytes);
                let length = length.map_err(say)? as u64;
                if length == 0 {
                    break;
                }
                self.put(&Event::Content {
                    path: NAME.to_vec(),
                    part,
                    offset,
                    bytes,
                })?;
                offset += length;
            }
        }
        Ok(())
    }

    fn statement(&mut self, sql: Vec<u8>) -> Result<(), String> {
        self.count += 1;
        // A microsecond, so that the statements are also in the order of time.
        self.at += 1_000;
        let when = When {
            at: self.at,
            took: 0,
            thread: 1,
        };
        let outcome = Outcome {
            code: UNKNOWN,
            autocommit: true,
            rows: None,
        };
        self.put(&Event::Exec {
            when,
            connection: 1,
            sql,
            outcome,
        })
    }

    fn pause(&mut self, ms: u64) -> Result<(), String> {
        self.at = self.at.saturating_add(ms.saturating_mul(1_000_000));
        self.put(&Event::Break)
    }

    fn finish(mut self) -> Result<u64, String> {
        let at = self.at;
        self.put(&Event::Close { at, connection: 1 })?;
        let ended = self.writer.finish();
        ended.map_err(|error| cannot_write(&self.path, &error))?;
        Ok(self.count)
    }
}
