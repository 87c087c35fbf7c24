//! The layout of a trace event's record, from its `format` file in tracefs.
//!
//! Offsets differ between kernels, so none is hard-coded here. If a kernel's event lacks a field,
//! setting up the event fails; no wrong number follows later.

use std::collections::HashMap;

/// The layout of one event's records.
#[derive(Clone, Debug, Default)]
pub struct Format {
    id: u16,
    fields: HashMap<String, Field>,
}

/// The position of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    size: usize,
}

impl Format {
    /// Parses the text of a `format` file.
    pub fn parse(text: &str) -> Option<Self> {
        let mut format = Self::default();
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().ok()?;
            }
            if let Some((name, field)) = parse_field(line.trim()) {
                format.fields.insert(name, field);
            }
        }
        (format.id != 0).then_some(format)
    }

    /// The id at the start of the event's records.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// A field by name.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied()
    }
}

impl Field {
    /// The field's bytes in a record; empty if the record ends before it.
    pub fn bytes(self, record: &[u8]) -> &[u8] {
        record
            .get(self.offset..self.offset + self.size)
            .unwrap_or_default()
    }

    /// The bytes elsewhere in the record that a `__data_loc` field points to: 16 bits of offset,
    /// then 16 of length. The result lacks the zero byte that ends a text.
    pub fn located(self, record: &[u8]) -> &[u8] {
        let location = self.number(record);
        let (offset, length) = (
            (location & 0xffff) as usize,
            (location >> 16 & 0xffff) as usize,
        );
        let bytes = record.get(offset..offset + length).unwrap_or_default();
        bytes.strip_suffix(&[0]).unwrap_or(bytes)
    }

    /// The field as an unsigned number of up to eight bytes; 0 if the record ends before it.
    pub fn number(self, record: &[u8]) -> u64 {
        let mut wide = [0; 8];
        for (to, from) in wide.iter_mut().zip(self.bytes(record)) {
            *to = *from;
        }
        u64::from_le_bytes(wide)
    }
}

/// A line such as `field:char rwbs[10]; offset:34; size:10; signed:0;`, with tabs between the parts.
fn parse_field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let name = declaration.split_ascii_whitespace().last()?;
    let name = name.split('[').next()?.trim_start_matches('*');
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
    let (offset, size) = (number("offset:")?, number("size:")?);
    Some((name.to_owned(), Field { offset, size }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: block_rq_complete
ID: 2107
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;
\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;
\tfield:__data_loc char[] cmd;\toffset:44;\tsize:4;\tsigned:0;

print fmt: \"%d,%d %s\", REC->dev
";

    #[test]
    fn fields_are_found_by_name() {
        let format = Format::parse(TEXT).unwrap();
        assert_eq!(format.id(), 2107);
        assert_eq!(
            format.field("rwbs"),
            Some(Field {
                offset: 34,
                size: 10
            })
        );
        assert_eq!(
            format.field("cmd"),
            Some(Field {
                offset: 44,
                size: 4
            })
        );
        assert_eq!(format.field("nr_sector"), None);
        let mut record = [0u8; 48];
        record[16..20].copy_from_slice(&[1, 2, 0, 0]);
        assert_eq!(format.field("sector").unwrap().number(&record), 0x201);
        assert_eq!(format.field("sector").unwrap().number(&record[..20]), 0);
        record[44..48].copy_from_slice(&[40, 0, 4, 0]);
        record[40..44].copy_from_slice(b"abc\0");
        assert_eq!(format.field("cmd").unwrap().located(&record), b"abc");
        assert_eq!(format.field("cmd").unwrap().located(&record[..46]), b"");
    }

    #[test]
    fn a_text_without_an_id_is_no_format() {
        assert!(Format::parse("").is_none());
        assert!(Format::parse("ID: x").is_none());
    }
}
