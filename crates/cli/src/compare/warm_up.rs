//! How long the warm-up of a steady state is.
//!
//! It writes the pages of two checkpoints, so that the log is reused. A database that inserts alone
//! make may then still fit into SQLite's cache. So the warm-up grows until the database is larger.
//! Stock SQLite in memory says how large that is. `compare` and `onewrite-lab matrix` call this.

use onewrite_workload::plan::Plan;
use onewrite_workload::team;

use super::session::LEAST_CACHE_KIB;
use crate::interrupt;

/// The database should have this size, in KiB: four times the least cache, and a quarter more.
const LEAST_DATABASE_KIB: u64 = 5 * LEAST_CACHE_KIB as u64;

/// The warm-up grows by half at most this often, to 130 times its length.
const STEPS: u32 = 12;

/// Transactions that write the pages of two checkpoints.
pub fn two_logs(plan: &Plan, autocheckpoint: u32) -> u32 {
    autocheckpoint
        .saturating_mul(2)
        .div_ceil(plan.op.frames().max(1))
}

/// `plan` with a warm-up for a steady state: at least `two_logs`, in front of the transactions that
/// the plan measures.
pub fn sized(plan: &Plan, autocheckpoint: u32) -> Result<Plan, String> {
    let measured = plan.measured();
    let with = |warm_up: u32| Plan {
        count: measured.saturating_add(warm_up),
        warm_up,
        ..plan.clone()
    };
    let mut warm_up = two_logs(plan, autocheckpoint);
    // A warehouse is far larger than any cache here, and takes long to make.
    if plan.op.is_tpcc() {
        return Ok(with(warm_up));
    }
    for _ in 0..STEPS {
        let kib = team::kib_after_warm_up(&with(warm_up), interrupt::requested())
            .map_err(|error| error.to_string())?;
        if kib >= LEAST_DATABASE_KIB {
            break;
        }
        warm_up = warm_up.max(1).saturating_add(warm_up.div_ceil(2));
    }
    Ok(with(warm_up))
}

#[cfg(test)]
mod tests {
    use onewrite_workload::plan::{Op, Order};

    use super::*;

    fn plan(op: Op) -> Plan {
        Plan {
            op,
            count: 50,
            warm_up: 0,
            record_size: 100,
            updates: 5,
            warehouses: 1,
            order: Order::Id,
            seed: 1,
            workers: 1,
            readers: 0,
            rate: None,
        }
    }

    #[test]
    fn a_warm_up_makes_a_database_that_the_least_cache_does_not_hold() {
        for op in [
            Op::Insert,
            Op::Indexed,
            Op::Messenger,
            Op::Message,
            Op::Sns,
            Op::App,
        ] {
            let plan = plan(op);
            let sized = sized(&plan, 1000).expect("a warm-up");
            assert!(sized.warm_up >= two_logs(&plan, 1000), "{}", op.name());
            assert_eq!(sized.measured(), 50);
            let kib = team::kib_after_warm_up(&sized, interrupt::requested()).expect("a size");
            assert!(
                kib >= 4 * u64::from(LEAST_CACHE_KIB),
                "{}: {kib}",
                op.name()
            );
        }
    }
}
