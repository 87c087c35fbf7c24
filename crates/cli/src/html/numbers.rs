//! Figures in the format of a page.

/// A rate without a fraction, unless it is a small one.
pub fn rate(per_s: f64) -> String {
    match per_s < 10.0 {
        true => format!("{per_s:.1}"),
        false => grouped(per_s.round() as u64),
    }
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = digits.get(..first).unwrap_or_default().to_owned();
    for group in digits.as_bytes().get(first..).unwrap_or_default().chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.extend(group.iter().copied().map(char::from));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let texts = [0, 999, 1_000, 12_345, 123_456, 1_234_567].map(grouped);
        assert_eq!(
            texts,
            ["0", "999", "1,000", "12,345", "123,456", "1,234,567"]
        );
        assert_eq!(
            (rate(3.26), rate(1234.5)),
            ("3.3".to_owned(), "1,235".to_owned())
        );
    }
}
