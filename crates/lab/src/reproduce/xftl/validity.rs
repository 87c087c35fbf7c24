//! Equal validity in all modes: the share of valid pages in the blocks that garbage collection
//! empties. It is measured, not set.
//!
//! On equally full devices the modes leave different blocks to collect, so that one copies more
//! than another. Here each mode has a device as full as it takes for the wanted validity. The
//! search is bounded, and only the validities that it has measured decide the next fill: it goes
//! in proportion and halves in turn. A file system may place the same files elsewhere in the next run,
//! so validities scatter by some points. One such run may narrow the search to a wrong place. If no fill is left
//! between two, the one with the nearest validity is run again. Each try is a whole run on a new device, so the
//! validity shown is that of the run shown. If no try is near enough, the nearest one is shown, and not
//! compared.

use serde::Serialize;

use super::trial::Ran;

/// Validities of the figure `activities`, in percent, unless the user sets them. The usual device
/// has them in all modes. Above these it takes a smaller X-L2P table, and so less spare NAND.
pub const WANTED: [u32; 2] = [30, 45];
/// How far a run's validity may be from the wanted one, in percentage points.
pub const TOLERANCE: f64 = 3.0;
/// The most runs for one validity.
const MOST_TRIES: u32 = 12;
/// How full a device may become, in percent.
const LEAST: u32 = 10;
const MOST: u32 = 100;
/// The first try.
const FIRST: u32 = 80;

/// A wanted validity, and whether it was reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sought {
    /// Percent of valid pages.
    pub wanted: u32,
    pub tolerance: f64,
    /// Runs of the same mode and device, of which this one is the nearest.
    pub tries: u32,
    pub is_reached: bool,
}

/// A run's validity; without garbage collection no page was valid.
fn validity(ran: &Ran) -> f64 {
    ran.gc_validity.unwrap_or(0.0)
}

/// The run with the wanted validity, or the nearest one. `known` are runs of the same mode on
/// devices that differ only in how full they are. `run` makes another one.
pub fn seek(
    wanted: u32,
    known: &mut Vec<Ran>,
    mut run: impl FnMut(u32) -> Result<Ran, String>,
) -> Result<Ran, String> {
    let off = |ran: &Ran| (validity(ran) - f64::from(wanted)).abs();
    for _ in 0..MOST_TRIES {
        if known.iter().any(|ran| off(ran) <= TOLERANCE) {
            break;
        }
        let points: Vec<(u32, f64)> = known
            .iter()
            .map(|ran| (ran.full_percent, validity(ran)))
            .collect();
        let Some(full_percent) = next(&points, f64::from(wanted)) else {
            break;
        };
        known.push(run(full_percent)?);
    }
    let nearest = known.iter().min_by(|a, b| off(a).total_cmp(&off(b)));
    let nearest = nearest.ok_or("no device was tried")?;
    Ok(Ran {
        sought: Some(Sought {
            wanted,
            tolerance: TOLERANCE,
            tries: known.len() as u32,
            is_reached: off(nearest) <= TOLERANCE,
        }),
        ..nearest.clone()
    })
}

/// The next fill to try after these fills and their validities; `None` if there is none left.
/// A fuller device has more valid pages.
fn next(points: &[(u32, f64)], wanted: f64) -> Option<u32> {
    let below = points.iter().filter(|point| point.1 < wanted);
    let below = below.max_by_key(|point| point.0).copied();
    let from = below.map_or(0, |(full, _)| full);
    let above = points.iter().filter(|point| point.1 >= wanted);
    let above = above.filter(|point| point.0 > from);
    match (below, above.min_by_key(|point| point.0).copied()) {
        (None, None) => Some(FIRST),
        (Some((low, _)), None) => (low < MOST).then(|| (low + MOST).div_ceil(2)),
        (None, Some((high, _))) => (high > LEAST).then(|| (LEAST + high) / 2),
        (Some((low, under)), Some((high, over))) => {
            let share = match points.len() % 2 {
                0 => (wanted - under) / (over - under),
                _ => 0.5,
            };
            let between = f64::from(low) + share * f64::from(high - low);
            match high - low {
                1 if wanted - under < over - wanted => Some(low),
                1 => Some(high),
                _ => Some((between.round() as u32).clamp(low + 1, high - 1)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::targets::tests::ran;
    use super::*;

    /// A device whose validity is this at each fill.
    fn found(wanted: u32, of: impl Fn(u32) -> f64) -> (Ran, Vec<u32>) {
        let mut tried = Vec::new();
        let found = seek(wanted, &mut Vec::new(), |full_percent| {
            tried.push(full_percent);
            Ok(Ran {
                full_percent,
                gc_validity: Some(of(full_percent)),
                ..ran("WAL", 9.0, 8, 2)
            })
        });
        (found.unwrap(), tried)
    }

    #[test]
    fn a_run_of_the_wanted_validity_is_found_wherever_it_is() {
        let straight = |full: u32| f64::from(full) * 0.9;
        let bent = |full: u32| f64::from(full).powi(3) / 12_500.0;
        for wanted in [20, 30, 50, 70] {
            for (found, tried) in [found(wanted, straight), found(wanted, bent)] {
                let sought = found.sought.unwrap();
                let off = (found.gc_validity.unwrap() - f64::from(wanted)).abs();
                assert!(sought.is_reached && off <= TOLERANCE, "{wanted}: {tried:?}");
                assert_eq!(sought.tries as usize, tried.len());
            }
        }
    }

    #[test]
    fn what_no_device_has_is_the_nearest_run_and_says_so() {
        let (nearest, tried) = found(70, |full| f64::from(full) * 0.6);
        assert_eq!(
            (nearest.full_percent, nearest.is_comparable()),
            (100, false)
        );
        assert!(tried.len() <= MOST_TRIES as usize, "{tried:?}");
        // A step that jumps over it.
        let (nearest, tried) = found(50, |full| if full < 55 { 20.0 } else { 60.0 });
        assert!(!nearest.is_comparable(), "{tried:?}");
        assert_eq!(nearest.gc_validity, Some(60.0));
    }

    #[test]
    fn no_fill_is_tried_twice_while_others_are_left() {
        // Validities that do not grow with the fill, as short runs have them.
        let (_, tried) = found(65, |full| 20.0 + f64::from(full * 37 % 60));
        let again = (1..tried.len()).find(|at| tried[..*at].contains(&tried[*at]));
        for fill in &tried[again.unwrap_or(tried.len())..] {
            let near = |other: &u32| other.abs_diff(*fill) == 1;
            assert!(tried.iter().any(near), "{fill} was not the last: {tried:?}");
        }
    }

    #[test]
    fn runs_that_mislead_do_not_end_the_search() {
        // The first run of each fill is far from 50, and the next ones are where they belong.
        let mut tried = Vec::new();
        let sought = seek(50, &mut Vec::new(), |full_percent| {
            let is_first = !tried.contains(&full_percent);
            tried.push(full_percent);
            let validity = match (is_first, full_percent) {
                (true, ..=82) => 46.0,
                (true, _) => 54.0,
                (false, _) => f64::from(full_percent) - 32.0,
            };
            Ok(Ran {
                full_percent,
                gc_validity: Some(validity),
                ..ran("WAL", 9.0, 8, 2)
            })
        });
        assert!(sought.unwrap().is_comparable(), "{tried:?}");
    }

    #[test]
    fn runs_that_are_known_are_not_made_again() {
        let mut known = vec![Ran {
            full_percent: 80,
            gc_validity: Some(51.0),
            ..ran("WAL", 9.0, 8, 2)
        }];
        let found = seek(50, &mut known, |_| Err("another run".to_owned())).unwrap();
        assert_eq!(found.sought.map(|sought| sought.tries), Some(1));
    }
}
