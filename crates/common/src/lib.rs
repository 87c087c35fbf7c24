//! Small helpers that several crates share. It depends on nothing but the standard library, because
//! the engine uses it too.

pub mod exposition;
pub mod files;
pub mod metrics;
pub mod mounts;
pub mod random;

/// The median of sorted figures: the mean of the middle two if their number is even.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// The one in the middle of sorted things; the upper one of the middle two if their number is even.
pub fn middle<T>(sorted: &[T]) -> Option<&T> {
    sorted.get(sorted.len() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[4.0]), Some(4.0));
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), Some(3.0));
        assert_eq!(middle(&[1, 2, 4, 9]), Some(&4));
        assert_eq!(middle::<u8>(&[]), None);
    }
}
