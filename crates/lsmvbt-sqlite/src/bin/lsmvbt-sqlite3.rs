//! `lsmvbt-sqlite3 DATABASE [SQL]`: runs SQL, from the command line or from standard input, on the
//! SQLite of this package. Columns are separated by `|`, as in SQLite's own shell.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use lsmvbt_sqlite::sqlite::{Connection, Value, complete, version};

const USAGE: &str = "usage: lsmvbt-sqlite3 DATABASE [SQL]\n\
    DATABASE is a path or a URI; without SQL it is read from standard input.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [option] if option == "--version" => {
            println!("{}", version());
            Ok(true)
        }
        [option] if option == "--help" || option == "-h" => {
            println!("{USAGE}");
            Ok(true)
        }
        [option, ..] if option.starts_with('-') => {
            eprintln!("{option}: no such option; ./{option} is a file of that name\n{USAGE}");
            return ExitCode::from(2);
        }
        [database] => open(database).and_then(|connection| from_input(&connection)),
        [database, sql] => open(database).map(|connection| run(&connection, sql)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn open(database: &str) -> Result<Connection, String> {
    Connection::open(database).map_err(|error| format!("{database}: {error}"))
}

/// Runs SQL as it comes in. Without a terminal the first error ends it.
fn from_input(connection: &Connection) -> Result<bool, String> {
    let input = std::io::stdin();
    let interactive = input.is_terminal();
    let mut gathered = String::new();
    let prompt = |gathered: &str| {
        if interactive {
            print!(
                "{}",
                if gathered.is_empty() {
                    "sqlite> "
                } else {
                    "   ...> "
                }
            );
            let _ = std::io::stdout().flush();
        }
    };
    prompt(&gathered);
    for line in input.lock().lines() {
        gathered += &line.map_err(|error| format!("standard input: {error}"))?;
        gathered.push('\n');
        if complete(&gathered) {
            if !run(connection, &gathered) && !interactive {
                return Ok(false);
            }
            gathered.clear();
        }
        prompt(&gathered);
    }
    Ok(gathered.trim().is_empty() || run(connection, &gathered))
}

/// Runs SQL and prints its rows; false, and the error printed, if it fails.
fn run(connection: &Connection, sql: &str) -> bool {
    let mut output = std::io::stdout().lock();
    let result = connection.each(sql, |row| {
        let row: Vec<String> = row.iter().map(Value::to_string).collect();
        // A reader that has gone away is no reason to stop a statement half way.
        let _ = writeln!(output, "{}", row.join("|"));
    });
    if let Err(error) = &result {
        eprintln!("{error}");
    }
    result.is_ok()
}
