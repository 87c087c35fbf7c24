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

/// What was measured in that row.
pub fn ours(figure: &Value, name: &str, quantity: &str) -> f64 {
    let row = row(figure, name, quantity);
    row["ours"]
        .as_f64()
        .unwrap_or_else(|| panic!("not measured: {row}"))
}
