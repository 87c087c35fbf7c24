//! Drives two and three connections through the orders of their steps. Each is a process of its own
//! on a simulated kernel. Checks every read, every acknowledged commit, and the files at the end.
//! `scripts/lockstep` builds and runs it.

mod connection;
mod history;
mod image;
mod kernel;
mod mode;
mod order;
mod run;
mod script;
mod search;
mod steps;
mod world;

use clap::Parser;
use connection::Stop;
use kernel::Mutant;
use mode::Mode;
use order::Order;
use run::Beginning;
use script::{SCRIPTS, Script};
use search::{Found, Search};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use world::World;

/// Lock-step search with one SQLite and one journal mode.
#[derive(Parser)]
struct Arguments {
    /// Library that scripts/lockstep has built: SQLite, the engine, and the libc of a simulated
    /// process.
    library: PathBuf,
    #[arg(long)]
    mode: Mode,
    /// Orders in all, shared by the scripts.
    #[arg(long, default_value_t = 100_000)]
    orders: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Try only random orders, to continue a search with another seed.
    #[arg(long)]
    random: bool,
    /// Run only scripts with this text in their names.
    #[arg(long, default_value = "")]
    script: String,
    #[arg(long)]
    mutant: Option<Mutant>,
    /// Run this order alone, and print its steps.
    #[arg(long)]
    replay: Option<Order>,
    /// Kill processes only at system calls and between the copies of a wal-index header, not
    /// between other stores to it. SQLite without the engine does not survive those.
    #[arg(long)]
    no_kills_in_memory: bool,
    /// Continue after a loss, until all orders are done.
    #[arg(long)]
    all: bool,
    /// Report progress on standard error.
    #[arg(long)]
    progress: bool,
}

#[derive(Serialize)]
struct Loss {
    script: &'static str,
    order: String,
    message: String,
    /// The run, step by step.
    steps: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    sqlite: String,
    mode: Mode,
    mutant: Option<Mutant>,
    seed: u64,
    orders: u64,
    steps: u64,
    seconds: f64,
    /// Processor seconds of this process. Elapsed time may be longer, because others use the
    /// processor, too.
    processor_seconds: f64,
    /// Orders for each processor second.
    orders_per_second: f64,
    /// The search tried all orders with at most this many preemptions, in every script.
    all_preemptions: usize,
    /// Bytes of memory that are restored for each order.
    memory: usize,
    losses: u64,
    found: Vec<Loss>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match search(&arguments) {
        Ok(report) => {
            println!("{}", serde_json::to_string(&report).expect("plain data"));
            ExitCode::from(u8::from(report.losses > 0))
        }
        Err(message) => {
            eprintln!("lockstep: {message}");
            ExitCode::from(2)
        }
    }
}

fn search(arguments: &Arguments) -> Result<Report, String> {
    let mut world = World::new(&arguments.library, arguments.mode).map_err(|e| e.to_string())?;
    world.kernel.mutant = arguments.mutant;
    world.kills_in_memory = !arguments.no_kills_in_memory;
    let scripts: Vec<_> = SCRIPTS
        .iter()
        .filter(|script| script.name.contains(&arguments.script))
        .filter(|script| !loses_by_itself(&world, arguments.mode, script))
        .collect();
    if scripts.is_empty() {
        return Err(format!("no script {:?}", arguments.script));
    }
    let began = Instant::now();
    let mut report = Report {
        sqlite: world.sqlite_version(),
        mode: arguments.mode,
        mutant: arguments.mutant,
        seed: arguments.seed,
        orders: 0,
        steps: 0,
        seconds: 0.0,
        processor_seconds: 0.0,
        orders_per_second: 0.0,
        all_preemptions: usize::MAX,
        memory: 0,
        losses: 0,
        found: Vec::new(),
    };
    let share = arguments.orders.div_ceil(scripts.len() as u64);
    for script in scripts {
        search_script(arguments, &mut world, *script, share, &mut report)?;
        if report.losses > 0 && !arguments.all {
            break;
        }
        if arguments.progress {
            eprintln!(
                "  {} {} after {}: {} orders, {} losses, {:.0} s",
                report.sqlite,
                arguments.mode.pragma(),
                script.name,
                report.orders,
                report.losses,
                began.elapsed().as_secs_f64()
            );
        }
    }
    report.seconds = began.elapsed().as_secs_f64();
    report.processor_seconds = processor_seconds();
    report.orders_per_second = report.orders as f64 / report.processor_seconds;
    Ok(report)
}

fn processor_seconds() -> f64 {
    // SAFETY: a place for the time, which is plain integers.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time);
        time
    };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Whether SQLite itself loses commits. Before 3.50 it does after a `ROLLBACK TO` when it recovers
/// its own log. The engine does not write those logs.
fn loses_by_itself(world: &World, mode: Mode, script: &Script) -> bool {
    let version = world.sqlite_version();
    let minor = version
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse::<u32>().ok());
    mode.is_sqlites() && script.goes_back() && minor < Some(50)
}

/// Runs an order once more, and records its steps.
fn steps_of(world: &mut World, beginning: &Beginning, order: &Order) -> Vec<String> {
    world.trace = Some(Vec::new());
    world.try_order(beginning, order);
    world.trace.take().unwrap_or_default()
}

fn search_script(
    arguments: &Arguments,
    world: &mut World,
    script: Script,
    share: u64,
    report: &mut Report,
) -> Result<(), String> {
    let beginning = world.prepare(script).map_err(|stop| match stop {
        Stop::Busy => format!("{}: busy in the beginning", script.name),
        Stop::Wrong(message) => format!("{}: {message}", script.name),
    })?;
    if let Some(order) = &arguments.replay {
        report.found.push(Loss {
            script: script.name,
            order: order.to_string(),
            steps: steps_of(world, &beginning, order),
            message: world.failure.clone().unwrap_or_default(),
        });
        report.orders += 1;
        report.steps += u64::from(world.step);
        report.losses += u64::from(world.failure.is_some());
        return Ok(());
    }
    report.memory = report.memory.max(world.memory());
    let mut search = Search::new(arguments.seed, script.programs.len());
    let mut losses = 0;
    for number in 0..share {
        // Most orders are systematic, while there are any; the others are random.
        let is_systematic = number < share / 4 * 3 && !arguments.random;
        let is_first = number == 0;
        // The first order shows how many steps there are.
        let order = search.next(is_systematic || is_first);
        world.try_order(&beginning, &order);
        report.orders += 1;
        report.steps += u64::from(world.step);
        if let Some(message) = world.failure.clone() {
            losses += 1;
            report.losses += 1;
            if losses == 1 {
                let found = Found { order, message };
                let found = search::shrink(world, &beginning, found);
                report.found.push(Loss {
                    script: script.name,
                    order: found.order.to_string(),
                    message: found.message,
                    steps: steps_of(world, &beginning, &found.order),
                });
            }
            if !arguments.all {
                break;
            }
        } else if is_systematic || is_first {
            search.note(&order, &world.choices);
        }
    }
    report.all_preemptions = report.all_preemptions.min(search.exhausted);
    Ok(())
}
