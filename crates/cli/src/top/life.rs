//! How long a device lasts at the present rate of SQLite's writes.
//!
//! Makers state how many bytes may be written to an SSD (TBW, terabytes written). The kernel does not
//! know that number, but it knows the size. So the rating is asked for as a number of full writes: TBW
//! divided by the size.

/// The rating where the user gives none: 360 TBW for 1 TB, as of Crucial's MX500 and Samsung's 870 QVO.
pub const USUAL_FULL_WRITES: f64 = 360.0;

const DAYS_OF_A_YEAR: f64 = 365.25;

/// Years until a device of `size` bytes has got all writes that it is rated for; `None` if nothing is
/// written.
pub fn years(size: u64, full_writes: f64, bytes_per_day: f64) -> Option<f64> {
    let days = size as f64 * full_writes / bytes_per_day;
    (bytes_per_day > 0.0).then_some(days / DAYS_OF_A_YEAR)
}

/// The number of an option: more than 0.
pub fn full_writes(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "a number is expected, such as 600 for 600 TBW on 1 TB".to_owned())?;
    match number > 0.0 && number.is_finite() {
        true => Ok(number),
        false => Err("it must be more than 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_writes_last_half_as_long() {
        let terabyte = 1_000_000_000_000;
        let a_day = 365.25e9;
        let life = years(terabyte, 365.25, a_day);
        assert!(life.is_some_and(|years| (years - 1000.0 / 365.25).abs() < 1e-9));
        let half = years(terabyte, 365.25, 2.0 * a_day);
        assert_eq!(half.map(|years| years * 2.0), life);
        assert_eq!(years(terabyte, 365.25, 0.0), None);
    }

    #[test]
    fn a_rating_is_a_positive_number() {
        assert_eq!(full_writes("600"), Ok(600.0));
        for text in ["", "x", "0", "-1", "inf", "NaN"] {
            assert!(full_writes(text).is_err(), "{text}");
        }
    }
}
