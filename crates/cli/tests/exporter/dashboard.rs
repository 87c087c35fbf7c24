//! The dashboard for Grafana names only metrics that exist.

use onewrite_common::exposition::Kind;
use onewrite_common::metrics::ALL;
use serde_json::Value;
use std::collections::BTreeSet;

const DASHBOARD: &str = include_str!("../../../../docs/grafana/onewrite.json");

/// The queries of all panels, with Grafana's variables replaced as for a dashboard of everything.
pub fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let query = |target: &Value| {
        let query = target["expr"].as_str().expect("a query");
        let query = query.replace("$database", ".*");
        query.replace("$__rate_interval", "30s")
    };
    targets.map(query).collect()
}

/// The words of a query that begin as our metrics do.
fn names(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("onewrite_"))
}

#[test]
fn the_dashboard_names_metrics_that_are_exported() {
    let exported: BTreeSet<String> = ALL
        .iter()
        .flat_map(|(metric, _)| match metric.kind {
            Kind::Histogram => vec![
                format!("{}_bucket", metric.name),
                format!("{}_sum", metric.name),
                format!("{}_count", metric.name),
            ],
            _ => vec![metric.name.to_owned()],
        })
        .collect();
    let queries = queries();
    assert!(queries.len() > 20, "{queries:?}");
    for query in &queries {
        assert!(names(query).count() > 0, "{query}");
        for name in names(query) {
            assert!(exported.contains(name), "{name} in {query}");
        }
        assert!(!query.contains('$'), "{query}");
    }
}
