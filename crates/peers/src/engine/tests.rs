//! Every engine does what the workloads ask for, and the workloads notice when it does not.

use super::*;
use crate::work::{self, Workload};

/// An engine that acknowledges a transaction and keeps none of it.
struct Lying<'a>(Box<dyn Session + 'a>);

struct Nothing<'a>(&'a mut dyn Session);

impl Transaction for Nothing<'_> {
    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        self.0.get(table, key)
    }

    fn put(&mut self, _: Table, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

impl Session for Lying<'_> {
    fn write(&mut self, body: Body<'_>) -> Result<()> {
        body(&mut Nothing(&mut *self.0))
    }

    fn get(&mut self, table: Table, key: u64) -> Result<Option<Vec<u8>>> {
        self.0.get(table, key)
    }

    fn scan(&mut self, table: Table, first: u64, limit: usize, each: Each<'_>) -> Result<()> {
        self.0.scan(table, first, limit, each)
    }
}

#[test]
fn every_engine_keeps_what_every_workload_writes_and_a_lost_commit_is_seen() {
    for setting in SETTINGS
        .iter()
        .filter(|setting| setting.missing().is_none())
    {
        for workload in [Workload::Commit, Workload::App, Workload::Bulk] {
            let what = format!("{}, {}", setting.name, workload.name());
            let dir = tempfile::tempdir().unwrap();
            let engine = setting.open(dir.path()).unwrap();
            let mut session = engine.session().unwrap();
            work::populate(workload, &mut *session).unwrap();
            for number in 0..20 {
                work::operate(workload, &mut *session, number).expect(&what);
            }
            drop(session);
            drop(engine);
            let engine = setting.open(dir.path()).unwrap();
            let mut session = engine.session().unwrap();
            work::verify(workload, &mut *session, 20).expect(&what);
            let mut lying = Lying(session);
            work::operate(workload, &mut lying, 20).expect(&what);
            let found = work::verify(workload, &mut *lying.0, 21);
            assert!(found.is_err(), "{what}: {found:?}");
            drop(lying);
            assert_eq!(engine.check().expect(&what), "ok", "{what}");
        }
    }
}

#[test]
fn threads_at_the_same_time_lose_nothing() {
    for setting in SETTINGS
        .iter()
        .filter(|setting| setting.missing().is_none())
    {
        let dir = tempfile::tempdir().unwrap();
        let engine = setting.open(dir.path()).unwrap();
        work::populate(Workload::App, &mut *engine.session().unwrap()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let engine = &engine;
                scope.spawn(move || {
                    let mut session = engine.session().unwrap();
                    for number in work::share(0..80, thread, 4) {
                        work::operate(Workload::App, &mut *session, number).expect(setting.name);
                    }
                });
            }
        });
        let mut session = engine.session().unwrap();
        work::verify(Workload::App, &mut *session, 80).expect(setting.name);
    }
}
