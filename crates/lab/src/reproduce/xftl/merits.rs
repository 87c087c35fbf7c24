//! Slide 22's factors: 3.0 and 11.7, somewhere in 1 to 20 pages a transaction.
//!
//! The slide does not say of how many pages they are. So they are judged over all lengths of the
//! figure `updates` on a device: by the one that comes nearest.

use super::targets::{Pair, REASONS, TO_ROLLBACK, TO_WAL, device, explained, pairs, xftl_of};
use super::trial::Ran;
use crate::reproduce::outcome::{Shown, Stated};

const MERITS: [(&str, Stated); 2] = [("WAL", TO_WAL), ("rollback journal", TO_ROLLBACK)];

/// Slide 22's factors, over all transaction lengths that were run on a device: whether one
/// of them reaches the factor.
pub fn judge(ran: &[Ran]) -> Vec<Shown> {
    let mut shown = Vec::new();
    let xftl: Vec<&Ran> = xftl_of(ran);
    let lengths = xftl.iter().filter(|one| one.figure == "updates");
    let lengths: Vec<&Ran> = lengths.copied().filter(|one| one.is_partsupply()).collect();
    for (index, first) in lengths.iter().enumerate() {
        let is_same = |one: &&&Ran| {
            let device = |ran: &Ran| (ran.controller, ran.fullness, ran.mode);
            device(one) == device(first)
        };
        // One figure for each device.
        if lengths[..index].iter().any(|one| is_same(&one)) {
            continue;
        }
        let same = lengths.iter().filter(is_same);
        let pairs: Vec<Pair<'_>> = same.flat_map(|one| pairs(one, ran)).collect();
        shown.extend(merit(first, &pairs));
    }
    shown
}

fn merit(first: &Ran, pairs: &[Pair<'_>]) -> Option<Shown> {
    let mut notes = Vec::new();
    let mut nearest = Vec::new();
    let mut rows = Vec::new();
    for (mode, stated) in MERITS {
        let mut of: Vec<Pair<'_>> = pairs
            .iter()
            .filter(|one| one.other.mode == mode)
            .copied()
            .collect();
        of.retain(Pair::is_comparable);
        let off = |pair: &Pair<'_>| (pair.time() / stated.amount).ln().abs();
        let Some(best) = of.iter().min_by(|a, b| off(a).total_cmp(&off(b))).copied() else {
            continue;
        };
        of.sort_by_key(|pair| pair.xftl.updates);
        let times: Vec<String> = of
            .iter()
            .map(|pair| format!("{:.2} at {}", pair.time(), pair.xftl.updates))
            .collect();
        notes.push(format!(
            "{mode} to X-FTL, by pages a transaction: {}; the nearest to {} is at {}",
            times.join(", "),
            stated.amount,
            best.xftl.updates
        ));
        rows.push(best.time_row(Some(stated)));
        nearest.push(best);
    }
    let differences = explained(&rows, &nearest, REASONS);
    (!rows.is_empty()).then(|| {
        Shown::of(
            "updates",
            "the paper's 3.0 and 11.7: the number of pages that comes nearest",
            format!("partsupply, {}, {}", first.mode, device(first)),
            rows,
            differences,
            notes,
        )
    })
}

#[cfg(test)]
pub mod tests {
    use super::super::targets::tests::ran;
    use super::super::targets::{self, TIME};
    use super::super::text::PAPER;
    use super::super::trial::WRITTEN;
    use super::*;
    use crate::reproduce::outcome::{Row, Verdict};

    /// Runs of `updates`: WAL and X-FTL at numbers of pages, with WAL's time to X-FTL's.
    pub fn lengths(figure: &'static str, times: &[(u32, f64)]) -> Vec<Shown> {
        let of = |mode, updates: u32, ms| Ran {
            figure,
            updates,
            workload: format!("partsupply, {updates} pages"),
            ..ran(mode, ms, u64::from(updates), 1)
        };
        let pairs = times.iter().flat_map(|(updates, time)| {
            [of("WAL", *updates, 3.0 * time), of(WRITTEN, *updates, 3.0)]
        });
        targets::judge(&pairs.collect::<Vec<Ran>>())
    }

    #[test]
    fn the_paper_s_factor_is_looked_for_in_all_lengths_of_a_transaction() {
        let merit = |times: &[(u32, f64)]| {
            let shown = lengths("updates", times);
            // No length is judged alone.
            let (merit, alone) = shown.split_last().expect("figures");
            let mut rows = alone.iter().flat_map(|shown| &shown.rows);
            let is_judged = |row: &Row| row.quantity == TIME && row.verdict != Verdict::NotCompared;
            assert!(alone.len() == times.len() && !rows.any(is_judged));
            (merit.rows[0].verdict, merit.notes.join(" "))
        };
        let (verdict, note) = merit(&[(1, 1.9), (5, 1.5), (10, 2.9), (20, 1.8)]);
        assert_eq!(verdict, Verdict::Same);
        assert!(
            note.contains("1.50 at 5") && note.ends_with("is at 10"),
            "{note}"
        );
        assert_eq!(merit(&[(1, 1.9), (20, 1.8)]).0, Verdict::Magnitude);
        // Planted: WAL is faster at every length.
        assert_eq!(merit(&[(1, 0.5), (20, 0.9)]).0, Verdict::Misses);
        // A figure of one length says nothing of the others.
        for figure in ["controllers", "activities", "space"] {
            let shown = lengths(figure, &[(5, 1.5)]);
            let mut rows = shown.iter().flat_map(|shown| &shown.rows);
            assert!(
                rows.all(|row| row.quantity != TIME || !row.differs()),
                "{figure}"
            );
        }
    }

    #[test]
    fn no_text_says_that_the_factors_are_of_5_pages() {
        let judged = lengths("updates", &[(1, 1.9), (5, 1.5)]);
        let merit = judged.last().expect("a figure");
        let from = |row: &Row| {
            row.ratio
                .as_ref()
                .and_then(|ratio| ratio.paper)
                .map(|p| p.from)
        };
        let of_merit = merit.rows.iter().filter_map(from);
        let said = [TO_WAL.from, TO_ROLLBACK.from, PAPER, merit.title];
        for text in of_merit.chain(said) {
            assert!(!text.contains("5 pages"), "{text}");
        }
        let sentences = PAPER.split(". ").filter(|one| one.contains("11.7"));
        assert!(sentences.into_iter().all(|one| one.contains("1 to 20")));
    }
}
