//! Table III: the applications' queries, counted in the generated traces.

use super::GENERATED;
use super::data::{self, Application};
use crate::reproduce::experiment::Experiment;
use crate::reproduce::outcome::{Kind, Row, Shown, Stated, explain};

/// Generates each trace at its full length, whatever length is run, and counts it.
pub fn table_3(experiment: &mut Experiment<'_>) -> Result<Shown, String> {
    let mut rows = Vec::new();
    for one in &data::APPLICATIONS {
        rows.extend(rows_of(experiment, one)?);
    }
    let differences = explain(&rows, &[], experiment)?;
    let notes = vec![
        GENERATED.to_owned(),
        "the paper's lines and sizes of trace files have no counterpart: a trace here is made from its seed"
            .to_owned(),
    ];
    Ok(Shown {
        figure: "table-iii",
        title: "what four applications ask SQLite for",
        how: "every transaction of each trace, as a run executes it".to_owned(),
        rows,
        differences,
        sequences: Vec::new(),
        notes,
    })
}

fn rows_of(experiment: &Experiment<'_>, one: &Application) -> Result<Vec<Row>, String> {
    let count = one.queries.transactions;
    let found = experiment.plan(one.op, count).queries();
    let found = found.ok_or("its queries depend on what it reads")?;
    let row = |what, unit| Row::new(one.name, what, unit, Kind::Counted).ran(one.op.name());
    let counted = |what, published: u32, found: u32| {
        let stated = Stated::about(f64::from(published), data::TABLE_III);
        row(what, "queries")
            .paper(Some(stated))
            .ours(Some(f64::from(found)))
            .judged()
    };
    let writes = found.writes();
    let all = (writes + found.selects).max(1);
    let published = &one.queries;
    let tenths = f64::from(writes * 10 / found.transactions.max(1)) / 10.0;
    let reads = (f64::from(found.selects) * 10.0 / f64::from(all)).round();
    let transactions = Stated::about(f64::from(count), data::TABLE_III);
    let files = Stated::about(f64::from(published.files), data::WORKLOADS);
    let per_transaction = Stated::about(one.per_transaction, data::TABLE_III);
    let reads_of_ten = Stated::about(f64::from(one.reads_of_ten), data::TABLE_III);
    let plain = |what, unit, stated, found| {
        row(what, unit)
            .paper(Some(stated))
            .ours(Some(found))
            .judged()
    };
    Ok(vec![
        counted("insert", published.inserts, found.inserts),
        counted("select", published.selects, found.selects),
        counted("update", published.updates, found.updates),
        counted("delete", published.deletes, found.deletes),
        plain(
            "transactions",
            "number",
            transactions,
            f64::from(found.transactions),
        ),
        plain(
            "queries a transaction",
            "cut to a tenth",
            per_transaction,
            tenths,
        ),
        plain("reads of ten queries", "rounded", reads_of_ten, reads),
        plain("database files", "number", files, f64::from(found.files)),
    ])
}
