//! The `onewrite` command.
//!
//! Its parts are in the library. The exit code is 0 when all was done and right, 1 when something
//! was not, 2 for a wrong command line, and 130 when the user stopped it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onewrite_cli::{
    backup, compare, detach, device, doctor, exit, exporter, ftl, import, inspect, record, replay,
    run, salvage, scan, shell, status, top, trace, verify,
};

/// Durable SQLite commits in one device write: measure, explain and repair.
#[derive(Parser)]
#[command(name = "onewrite", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the same transactions under each journal mode and show what each costs
    #[command(after_long_help = compare::AFTER_HELP)]
    Compare(compare::Args),
    /// Run a published workload at its full length under each journal mode
    #[command(after_long_help = compare::BENCH_AFTER_HELP)]
    Bench(compare::BenchArgs),
    /// Copy a database in use, as it is at one moment, into a stock database
    #[command(after_long_help = backup::AFTER_HELP)]
    Backup(backup::Args),
    /// Run the stock sqlite3 shell on a database in any journal mode
    #[command(after_long_help = shell::AFTER_HELP)]
    Shell(shell::Args),
    /// Make a stock database of one that was not closed cleanly
    #[command(after_long_help = detach::AFTER_HELP)]
    Detach(detach::Args),
    /// Say what durable commits cost in a directory, why, and which journal mode fits
    #[command(after_long_help = doctor::AFTER_HELP)]
    Doctor(doctor::DoctorArgs),
    /// Serve the state of databases as metrics for Prometheus
    #[command(after_long_help = exporter::AFTER_HELP)]
    Exporter(exporter::Args),
    /// Make, mount, inspect, replay and cut a flash device in a file that commits transactions
    #[command(after_long_help = ftl::AFTER_HELP)]
    Ftl(ftl::Args),
    /// Show the contents of a log, or of a database and its log, on disk
    #[command(after_long_help = inspect::AFTER_HELP)]
    Inspect(inspect::Args),
    /// Make a new database of everything that can be proven whole in a database and a log
    #[command(after_long_help = salvage::AFTER_HELP)]
    Salvage(salvage::Args),
    /// Say whose a database is, its journal mode, its users, and whether it was closed cleanly
    #[command(after_long_help = status::AFTER_HELP)]
    Status(status::Args),
    /// Say whether a database and its logs are whole, and what would be lost
    #[command(after_long_help = verify::AFTER_HELP)]
    Verify(verify::Args),
    /// Show what a device writes while a command runs: journal, log, database, by file and process
    /// (root)
    #[command(after_long_help = trace::AFTER_HELP)]
    Trace(trace::Args),
    /// Show which programs write to SQLite databases, how often, and what that costs the device
    #[command(after_long_help = top::AFTER_HELP)]
    Top(top::Args),
    /// List SQLite databases, their programs, and settings that lose commits
    #[command(after_long_help = scan::AFTER_HELP)]
    Scan(scan::Args),
    /// Record the SQL that a program sends to SQLite
    #[command(after_long_help = record::AFTER_HELP)]
    Record(record::Args),
    /// Make a trace for `replay` from SQL of another source
    #[command(after_long_help = import::AFTER_HELP)]
    Import(import::Args),
    /// Play recorded SQL under each journal mode, compare results, and show what each costs
    #[command(after_long_help = replay::AFTER_HELP)]
    Replay(replay::Args),
    /// Run an unchanged program under a journal mode of onewrite
    #[command(after_long_help = run::AFTER_HELP)]
    Run(run::Args),
    /// A process of `compare --processes`; reads its job from standard input
    #[command(hide = true)]
    CompareWorker,
    /// The process that answers the device of `compare --device`; reads its orders from standard
    /// input
    #[command(hide = true)]
    DeviceServer,
}

fn main() -> ExitCode {
    #[cfg(feature = "lsmvbt")]
    lsmvbt_sqlite::link();
    let outcome = match Cli::parse().command {
        Command::Compare(args) => compare::run(&args),
        Command::Bench(args) => compare::run_bench(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Shell(args) => shell::run(&args),
        Command::Detach(args) => detach::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Exporter(args) => exporter::run(&args),
        Command::Ftl(args) => ftl::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Salvage(args) => salvage::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Run(args) => run::run(&args),
        Command::CompareWorker => compare::run_worker(),
        Command::DeviceServer => device::run_server(),
    };
    exit("onewrite", outcome)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    /// The widest that clap makes a line.
    const WIDTH: usize = 100;

    /// clap breaks a line that is too long, and keeps the breaks that are there: words would be left alone
    /// between the two.
    #[test]
    fn no_help_has_a_word_alone_on_a_line() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            let help = command.get_after_long_help().or(command.get_after_help());
            let help = help.map_or_else(String::new, ToString::to_string);
            let name = command.get_name();
            let mut before = "";
            for line in help.lines() {
                let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
                let is_broken = is_prose(before) && is_prose(line) && !before.ends_with(':');
                assert!(
                    !is_broken,
                    "{name}: a break in a paragraph:\n{before}\n{line}"
                );
                let is_example = line.starts_with("  onewrite ");
                let is_long = is_example && line.chars().count() > WIDTH;
                assert!(!is_long, "{name}: {WIDTH} characters at most:\n{line}");
                before = line;
            }
        }
    }

    /// The words of a shell's command, without quotes.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quote) = (vec![String::new()], None);
        for c in line.chars() {
            match (quote, c) {
                (Some(open), _) if c == open => quote = None,
                (None, '\'' | '"') => quote = Some(c),
                (None, ' ') => words.push(String::new()),
                _ => words.last_mut().expect("a word").push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn each_example_of_a_help_is_a_command_line() {
        let (mut commands, mut examples) = (vec![Cli::command()], 0);
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            let help = command.get_after_long_help().or(command.get_after_help());
            let help = help.map_or_else(String::new, ToString::to_string);
            let lines = help.lines().map(str::trim);
            for line in lines.flat_map(|line| line.split(" && ")) {
                let line = line.strip_prefix("sudo ").unwrap_or(line);
                // A comment, a pipe or a redirection ends it.
                let ends = [" # ", " | ", " > "]
                    .iter()
                    .filter_map(|end| line.find(end));
                let line = &line[..ends.min().unwrap_or(line.len())];
                if !line.starts_with("onewrite ") {
                    continue;
                }
                examples += 1;
                let parsed = Cli::try_parse_from(words(line));
                assert!(
                    parsed.is_ok(),
                    "{line}\n{}",
                    parsed.err().expect("an error")
                );
            }
        }
        assert!(examples > 30, "{examples}");
    }
}
