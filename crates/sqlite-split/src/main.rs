//! `onewrite-sqlite-split IN OUT`: cuts the amalgamation IN and writes the result to OUT.

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, output] = arguments.as_slice() else {
        eprintln!("usage: onewrite-sqlite-split SQLITE3.C OUTPUT.C");
        return ExitCode::from(2);
    };
    match run(input, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{input}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(input: &str, output: &str) -> Result<(), Box<dyn Error>> {
    let text = std::fs::read_to_string(input)?;
    std::fs::write(output, onewrite_sqlite_split::split(&text)?)?;
    Ok(())
}
