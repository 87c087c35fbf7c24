//! The rows that a statement returned, as a few bytes. They suffice to compare two runs.
//!
//! Each row is the CRC-32C of its values with their types. The rows of a run are kept twice: in
//! their order, and without order. So rows in another order are distinct from other rows. A false
//! match has a chance of one in 2^32 for each row.

/// The rows of one run so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rows {
    /// Their number.
    pub count: u64,
    /// Their checksum in order.
    pub ordered: u32,
    /// Their checksum without order.
    pub unordered: u64,
}

/// A row as its values are added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row(u32);

/// A value's type in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A 64-bit integer, big-endian.
    Integer = 1,
    /// A floating-point number: its bits, big-endian.
    Real = 2,
    /// UTF-8.
    Text = 3,
    /// Bytes.
    Blob = 4,
    /// NULL.
    Null = 5,
}

impl Row {
    /// Adds the next column.
    pub fn add(&mut self, kind: Kind, bytes: &[u8]) {
        let crc = crc32c::crc32c_append(self.0, &[kind as u8]);
        let crc = crc32c::crc32c_append(crc, &(bytes.len() as u64).to_be_bytes());
        self.0 = crc32c::crc32c_append(crc, bytes);
    }
}

impl Rows {
    /// Adds the next row.
    pub fn add(&mut self, row: Row) {
        self.count += 1;
        self.ordered = crc32c::crc32c_append(self.ordered, &row.0.to_be_bytes());
        // An odd multiplier, so that equal sums of different rows are as rare as possible.
        let spread = u64::from(row.0)
            .wrapping_add(1)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.unordered = self.unordered.wrapping_add(spread ^ (spread >> 29));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(texts: &[&str]) -> Rows {
        let mut rows = Rows::default();
        for text in texts {
            let mut row = Row::default();
            row.add(Kind::Text, text.as_bytes());
            rows.add(row);
        }
        rows
    }

    #[test]
    fn order_is_told_apart_from_content() {
        let (ab, ba) = (rows(&["a", "b"]), rows(&["b", "a"]));
        assert_eq!(ab.unordered, ba.unordered);
        assert_ne!(ab.ordered, ba.ordered);
        assert_ne!(ab.unordered, rows(&["a", "c"]).unordered);
        assert_ne!(rows(&["a", "a"]), rows(&["a"]));
    }

    #[test]
    fn types_and_column_bounds_count() {
        let row = |columns: &[(Kind, &str)]| {
            let mut row = Row::default();
            columns
                .iter()
                .for_each(|(kind, text)| row.add(*kind, text.as_bytes()));
            row.0
        };
        assert_ne!(row(&[(Kind::Text, "ab")]), row(&[(Kind::Blob, "ab")]));
        assert_ne!(
            row(&[(Kind::Text, "ab"), (Kind::Text, "c")]),
            row(&[(Kind::Text, "a"), (Kind::Text, "bc")])
        );
    }
}
