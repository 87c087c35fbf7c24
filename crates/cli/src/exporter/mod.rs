//! `onewrite exporter`: serves the state of databases as metrics for Prometheus.
//!
//! It sees what all processes share: files, headers, the wal-index and locks. As `inspect` does, it
//! opens files only for reading and locks nothing. Nothing is kept from one request to the next.

mod config;
mod look;
mod serve;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Outcome;
use config::Config;

/// Explains the words below the options of `exporter --help`.
pub const AFTER_HELP: &str = "\
The text is at http://127.0.0.1:9871/metrics. Nothing is changed or locked. Each request looks at \
the files again. A pattern (*, ?, [...]) is looked up at each request, too, so new databases appear.

The configuration is a TOML file. Options add to its databases, and replace its address:
  listen = \"127.0.0.1:9871\"
  databases = [\"/srv/app/*.db\", \"/var/lib/shop/shop.db\"]

SIGTERM ends it, with exit code 0. There is no encryption and no password: an address that other \
machines reach needs --allow-remote.

Examples:
  onewrite exporter app.db
  onewrite exporter --config /etc/onewrite-exporter.toml
  onewrite exporter --listen 127.0.0.1:0 'data/*.db'";

/// The options of `onewrite exporter`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Databases, or patterns of their names
    #[arg(value_name = "DATABASE", required_unless_present = "config")]
    databases: Vec<String>,

    /// A TOML file with `databases` and `listen`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The address; port 0 takes a free one, which is printed [default: 127.0.0.1:9871]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Listen also on an address that other machines may reach
    #[arg(long)]
    allow_remote: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// The configuration is wrong, or the address is not available.
pub fn run(args: &Args) -> Outcome {
    let config = match &args.config {
        Some(file) => Config::read(file)?,
        None => Config::default(),
    };
    let listen = args.listen.or(config.listen).unwrap_or(config::LISTEN);
    if !listen.ip().is_loopback() && !args.allow_remote {
        return Err(format!(
            "{listen} is not an address of this machine alone: use 127.0.0.1, or add --allow-remote"
        ));
    }
    let patterns: Vec<_> = config.databases.iter().chain(&args.databases).collect();
    if patterns.is_empty() {
        return Err("no database: name one, or give --config a file with `databases`".to_owned());
    }
    let patterns = patterns
        .into_iter()
        .map(|pattern| look::Pattern::new(pattern))
        .collect::<Result<Vec<_>, _>>()?;
    end_on_signals()?;
    let named = |e| format!("cannot listen on {listen}: {e}: choose another with --listen");
    let listener = TcpListener::bind(listen).map_err(named)?;
    let address = listener.local_addr().map_err(named)?;
    eprintln!("onewrite: metrics at http://{address}/metrics");
    serve::forever(&listener, move || look::metrics(&patterns));
    Ok(ExitCode::SUCCESS)
}

/// There is nothing to take down: it ends where it is.
fn end_on_signals() -> Result<(), String> {
    let signals = Signals::new([SIGTERM, SIGINT]);
    let mut signals = signals.map_err(|e| format!("cannot handle signals: {e}"))?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            std::process::exit(0);
        }
    });
    Ok(())
}
