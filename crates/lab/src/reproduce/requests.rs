//! The time that a run's requests and its processor time account for.

use onewrite_cli::compare::report::Run;

use super::experiment::{Experiment, Trial};
use super::outcome::Predicted;

/// Seconds that requests take on a device, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A plain write of a block.
    pub write_s: f64,
    /// The difference of a durable one.
    pub flush_s: f64,
}

/// The work that a run waited for.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// The device's writes with data.
    pub writes: f64,
    /// Its flushes.
    pub flushes: f64,
    /// Processor time of the transactions, in seconds.
    pub cpu_s: f64,
}

/// The counts that [`by_requests`] predicts from.
pub const REQUESTS: &str = "the device's writes and flushes, by the time of a plain write and of a durable one, and the \
                            transactions' processor time";

impl Waited {
    /// The counts of a run.
    ///
    /// # Errors
    /// The device was not counted.
    pub fn of(run: &Run) -> Result<Self, String> {
        let device = run.device.ok_or("requests were not counted")?;
        Ok(Self {
            writes: device.writes.unwrap_or(device.write_requests) as f64,
            flushes: device.flushes as f64,
            cpu_s: run.cpu_s,
        })
    }

    /// The time that these take on a device, if nothing is done meanwhile.
    pub fn seconds(&self, costs: Costs) -> f64 {
        self.writes * costs.write_s + self.flushes * costs.flush_s + self.cpu_s
    }
}

/// The prediction of a row from all that a transaction of two trials waits for. `figure` is the row's
/// from these seconds, `what` the row's name for the transactions.
pub fn by_requests(
    experiment: &mut Experiment<'_>,
    trials: [&Trial; 2],
    what: &str,
    figure: fn(f64, f64) -> f64,
) -> Result<Predicted, String> {
    let costs = experiment.costs()?;
    let mut told = Vec::new();
    let mut seconds = |trial: &Trial| -> Result<f64, String> {
        let run = experiment.run(trial)?;
        let (waited, count) = (Waited::of(run)?, f64::from(run.count.max(1)));
        told.push(format!(
            "{:.2} writes, {:.2} flushes and {:.0} us of the processor in {}",
            waited.writes / count,
            waited.flushes / count,
            waited.cpu_s / count * 1e6,
            run.mode
        ));
        Ok(waited.seconds(costs) / count)
    };
    let figure = figure(seconds(trials[0])?, seconds(trials[1])?);
    let measured = format!(
        "a write takes {:.0} us, a flush {:.0} us; a transaction:",
        costs.write_s * 1e6,
        costs.flush_s * 1e6
    );
    let of_row = format!("{what}: {}", told.join(", "));
    Ok(Predicted::of_row(figure, &measured, of_row))
}
