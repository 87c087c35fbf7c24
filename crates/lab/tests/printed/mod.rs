//! The figures that `reproduce --json` prints.

use serde_json::Value;

/// The figures of a document.
pub fn figures(document: &Value) -> &[Value] {
    document["figures"].as_array().expect("figures")
}

/// The row with this name and quantity.
pub fn row<'a>(figure: &'a Value, name: &str, quantity: &str) -> &'a Value {
    let rows = figure["rows"].as_array().expect("rows");
    rows.iter()
        .find(|row| row["name"] == name && row["quantity"] == quantity)
        .unwrap_or_else(|| panic!("no {name}, {quantity}: {figure}"))
}

/// The measured part of that row.
pub fn ours(figure: &Value, name: &str, quantity: &str) -> f64 {
    let row = row(figure, name, quantity);
    row["ours"]
        .as_f64()
        .unwrap_or_else(|| panic!("not measured: {row}"))
}

/// Every row that differs from the paper's has one difference, with a reason that predicts its figure.
pub fn differences_are_told(figure: &Value) {
    let rows = figure["rows"].as_array().expect("rows");
    let differences = figure["differences"].as_array().expect("differences");
    let differs = |row: &&Value| matches!(row["verdict"].as_str(), Some("magnitude" | "misses"));
    for row in rows.iter().filter(differs) {
        let told: Vec<&Value> = differences
            .iter()
            .filter(|one| one["row"] == row["name"] && one["quantity"] == row["quantity"])
            .collect();
        assert_eq!(told.len(), 1, "{row}: {figure}");
        let of = |name: &str| &told[0][name];
        assert!(of("why").is_string(), "no reason: {}", told[0]);
        assert!(of("predicted").is_number(), "no prediction: {}", told[0]);
        assert!(of("holds").is_boolean(), "{}", told[0]);
    }
    let differ = rows.iter().filter(differs).count();
    assert_eq!(differ, differences.len(), "{figure}");
}
