//! Measures one cell: the rounds of `compare` twice, first as fast as each mode can, then all modes
//! at half of stock's rate.

use std::path::PathBuf;

use onewrite_cli::compare::report::{Report, Run};
use onewrite_cli::compare::rounds::{Comparison, IsOpen, Rounds};
use onewrite_cli::compare::session::Terms;
use onewrite_cli::place::{self, Place, Room, Where};
use onewrite_cli::progress::Progress;
use onewrite_flash::latency::Latency;
use onewrite_workload::mode::{Mode, Synchronous};
use onewrite_workload::plan::Plan;
use serde::{Deserialize, Serialize};

use super::grid::Cell;
use super::rule::{Judged, is_free_open, is_paced_open};

/// The same for every cell.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The modes; `wal` first.
    pub modes: Vec<Mode>,
    /// Transactions of a run, if not the cell's own number.
    pub count: Option<u32>,
    /// The seed of values and orders.
    pub seed: u64,
    /// Rounds at most, of each of the two comparisons.
    pub max_rounds: u32,
    /// The directory of the scratch image.
    pub scratch_dir: Option<PathBuf>,
}

/// The results of one cell: a line of the results file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Of this format.
    pub version: u32,
    /// The cell's name.
    pub cell: String,
    /// Transactions of a run.
    pub count: u32,
    /// Transactions before them.
    pub warm_up: u32,
    /// The seed.
    pub seed: u64,
    /// Rounds at most.
    pub max_rounds: u32,
    /// Rounds as fast as each mode could.
    pub rounds: u32,
    /// Rounds at the offered rate.
    pub paced_rounds: u32,
    /// That rate: half of stock's, in transactions a second.
    pub offered_per_s: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// Each mode but stock's.
    pub modes: Vec<Judged>,
}

impl Measured {
    /// Whether it was measured as the user wants it now.
    pub fn answers(&self, cell: &Cell, choice: &Choice) -> bool {
        let asked = choice.modes.iter().skip(1).map(Mode::spec);
        self.cell == cell.to_string()
            && self.seed == choice.seed
            && self.max_rounds == choice.max_rounds
            && choice.count.is_none_or(|count| self.count == count)
            && asked.eq(self.modes.iter().map(|mode| mode.mode.as_str()))
    }
}

/// Measures a cell on a file system of its own.
pub fn cell(cell: &Cell, choice: &Choice, progress: &Progress) -> Result<Measured, String> {
    progress.say("sizing the warm-up");
    let plan = cell.plan(choice.count, choice.seed)?;
    let model = Latency::find(cell.device).map_err(|error| error.to_string())?;
    let room = Room {
        op: plan.op,
        count: plan.count.saturating_mul(cell.page_kib / 4),
        record_size: 100,
        autocheckpoint: cell.autocheckpoint(),
        warehouses: 1,
    };
    let place = Where::on_model(model, choice.scratch_dir.clone());
    let place = place::choose(&place, room.bytes(), progress)?;
    let measured = on(cell, &plan, choice, &place, progress);
    let removed = place.remove();
    let measured = measured?;
    removed.map(|()| measured)
}

fn on(
    cell: &Cell,
    plan: &Plan,
    choice: &Choice,
    place: &Place,
    progress: &Progress,
) -> Result<Measured, String> {
    let modes = choice.modes.iter().map(|mode| with_pages(mode, cell));
    let modes = modes.collect::<Result<Vec<Mode>, String>>()?;
    let stock = modes.first().map(Mode::spec).unwrap_or_default();
    let free = measure(cell, plan, &modes, choice, &is_free_open, place, progress)?;
    let offered_per_s = half_of(&free, stock)?;
    let paced = Plan {
        rate: Some(offered_per_s),
        ..plan.clone()
    };
    let paced = measure(
        cell,
        &paced,
        &modes,
        choice,
        &is_paced_open,
        place,
        progress,
    )?;
    let judged = modes.iter().zip(&choice.modes).skip(1);
    let judged = judged.map(|(mode, asked)| judge(mode.spec(), asked.spec(), &free, &paced));
    let rounds = |report: &Report| report.runs.iter().map(|run| run.repeat).max().unwrap_or(0);
    Ok(Measured {
        version: 1,
        cell: cell.to_string(),
        count: plan.measured(),
        warm_up: plan.warm_up,
        seed: choice.seed,
        max_rounds: choice.max_rounds,
        rounds: rounds(&free),
        paced_rounds: rounds(&paced),
        offered_per_s,
        kernel: place::kernel_release(),
        modes: judged.collect(),
    })
}

/// The mode with the cell's page size.
fn with_pages(mode: &Mode, cell: &Cell) -> Result<Mode, String> {
    let joint = if mode.spec().contains(':') { ',' } else { ':' };
    let spec = format!("{}{joint}page_size={}", mode.spec(), cell.page_kib * 1024);
    Mode::parse(&spec).map_err(|error| error.to_string())
}

fn measure(
    cell: &Cell,
    plan: &Plan,
    modes: &[Mode],
    choice: &Choice,
    is_open: IsOpen<'_>,
    place: &Place,
    progress: &Progress,
) -> Result<Report, String> {
    let comparison = Comparison {
        plan,
        terms: Terms {
            synchronous: Synchronous::Full,
            autocheckpoint: cell.autocheckpoint(),
            threads: cell.threads,
            processes: cell.processes,
            steady: cell.steady,
            cache_kib: None,
        },
        modes,
        rounds: Rounds {
            least: 1,
            most: choice.max_rounds,
            within: None,
        },
        is_open,
    };
    let report = comparison.measure(place, None, progress)?;
    // A part of a cell does not count as one.
    match onewrite_cli::interrupt::is_requested() {
        true => Err("interrupted".to_owned()),
        false => Ok(report),
    }
}

/// Half of the median rate of a mode.
fn half_of(report: &Report, mode: &str) -> Result<u32, String> {
    let of_mode = report.runs.iter().filter(|run| run.mode == mode);
    let mut rates: Vec<f64> = of_mode.map(|run| run.ops_per_s).collect();
    rates.sort_by(f64::total_cmp);
    let failed = || {
        let failed = report.failed.iter().find(|failed| failed.mode == mode);
        failed.map_or_else(|| format!("{mode}: no run"), |failed| failed.error.clone())
    };
    let median = rates.get(rates.len() / 2).ok_or_else(failed)?;
    Ok((median / 2.0).max(1.0) as u32)
}

fn judge(spec: &str, asked: &str, free: &Report, paced: &Report) -> Judged {
    for report in [free, paced] {
        let failed = report.failed.iter().find(|failed| failed.mode == spec);
        let of_mode = |run: &&Run| run.mode == spec;
        let mut runs = report.runs.iter().filter(of_mode);
        let wrong = runs.find_map(|run| run.checked.problem().map(str::to_owned));
        if let Some(problem) = failed.map(|failed| failed.error.clone()).or(wrong) {
            return Judged::failed(asked, problem);
        }
    }
    let free = free.ratios.as_ref().and_then(|ratios| ratios.find(spec));
    let paced = paced.ratios.as_ref().and_then(|ratios| ratios.find(spec));
    Judged::of(asked, free, paced)
}
