//! Tables of figures for a terminal.
//!
//! Called by every report. A column in which nothing was measured is left out. A table wider than
//! the terminal is shown in parts, one below the other. Each part repeats the columns that name its
//! lines. A table in a file or a pipe keeps its full width.

use std::fmt::{self, Display};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A figure that was not measured.
pub const NONE: &str = "-";

/// See the module.
#[derive(Clone, Debug)]
pub struct TextTable {
    /// The number of columns at the left that name a line; each part repeats them.
    keys: usize,
    /// The number of columns at the left that are words. The others are figures, aligned right.
    words: usize,
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table without lines. The first `keys` columns name a line, and are words.
    pub fn new<H: Into<String>>(keys: usize, heads: impl IntoIterator<Item = H>) -> Self {
        Self {
            keys,
            words: keys,
            heads: heads.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// The first `words` columns are words.
    pub fn words(mut self, words: usize) -> Self {
        self.words = words;
        self
    }

    /// Adds a line.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether it has no line.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table for a terminal of this width; whole if there is none.
    fn within(&self, room: Option<u16>) -> String {
        let shown: Vec<usize> = (0..self.heads.len()).filter(|c| self.says(*c)).collect();
        let whole = self.of(&shown, None);
        let Some(room) = room else {
            return whole.to_string();
        };
        let widths = whole.column_max_content_widths();
        let parts = parts(&widths, self.keys.min(shown.len()), usize::from(room));
        let parts = parts.iter().map(|part| {
            let columns: Vec<usize> = part.iter().filter_map(|c| shown.get(*c).copied()).collect();
            self.of(&columns, Some(room)).to_string()
        });
        parts.collect::<Vec<_>>().join("\n")
    }

    /// Whether a column has a value.
    fn says(&self, column: usize) -> bool {
        column < self.keys
            || self.rows.is_empty()
            || (self.rows.iter()).any(|row| row.get(column).is_some_and(|cell| cell != NONE))
    }

    /// Some of its columns.
    fn of(&self, columns: &[usize], room: Option<u16>) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        if let Some(room) = room {
            // A part with one long word may still be too wide.
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(room);
        }
        let of = |row: &[String]| -> Vec<String> {
            let cell = |column: &usize| row.get(*column).cloned().unwrap_or_default();
            columns.iter().map(cell).collect()
        };
        table.set_header(of(&self.heads));
        for row in &self.rows {
            table.add_row(of(row));
        }
        for (column, number) in table.column_iter_mut().zip(columns) {
            if *number >= self.words {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

impl Display for TextTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.within(terminal_width()))
    }
}

/// Characters in a line of the terminal, where standard output is one and says how many.
pub(crate) fn terminal_width() -> Option<u16> {
    known(Table::new().width())
}

/// A serial console says 0, for it does not know.
fn known(width: Option<u16>) -> Option<u16> {
    width.filter(|characters| *characters > 0)
}

/// Distributes columns of these widths among parts at most `room` wide. Each part begins with the
/// first `keys` columns, and has at least one more.
fn parts(widths: &[u16], keys: usize, room: usize) -> Vec<Vec<usize>> {
    // A cell has a line and two blanks next to its text.
    let wide = |columns: &[usize]| -> usize {
        let of = |c: &usize| widths.get(*c).map_or(0, |w| usize::from(*w)) + 3;
        columns.iter().map(of).sum::<usize>() + 1
    };
    let begun: Vec<usize> = (0..keys).collect();
    let mut parts = vec![begun.clone()];
    for column in keys..widths.len() {
        let Some(part) = parts.last_mut() else { break };
        part.push(column);
        if part.len() > keys + 1 && wide(part) > room {
            part.pop();
            parts.push(begun.iter().copied().chain([column]).collect());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::new(1, ["mode", "a\nsecond", "device", "flushes"]);
        table.row(["wal", "1,000", NONE, "2.00"]);
        table.row(["onewrite", "2,000", NONE, "1.00"]);
        table
    }

    fn widest(text: &str) -> usize {
        text.lines()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn a_terminal_that_does_not_know_its_width_gets_whole_lines() {
        assert_eq!(table().within(known(Some(0))), table().within(None));
        assert_eq!(known(Some(80)), Some(80));
    }

    #[test]
    fn a_column_in_which_nothing_was_measured_is_left_out() {
        let text = table().within(None);
        assert!(
            !text.contains("device") && text.contains("flushes"),
            "{text}"
        );
    }

    #[test]
    fn no_part_is_wider_than_the_terminal_and_every_figure_is_in_one() {
        let whole = widest(&table().within(None));
        assert_eq!(table().within(Some(200)), table().within(None));
        for room in 24..=whole as u16 {
            let text = table().within(Some(room));
            assert!(widest(&text) <= usize::from(room), "{room}\n{text}");
            for figure in ["1,000", "2,000", "2.00", "1.00"] {
                assert_eq!(text.matches(figure).count(), 1, "{room}\n{text}");
            }
        }
        let narrow = table().within(Some(24));
        assert_eq!(narrow.matches("onewrite").count(), 2, "{narrow}");
    }

    #[test]
    fn an_empty_table_has_its_heads() {
        assert!(
            TextTable::new(1, ["mode", "x"])
                .within(Some(80))
                .contains("mode")
        );
    }
}
