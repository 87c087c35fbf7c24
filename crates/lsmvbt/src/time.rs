//! Times as text, in UTC: `2026-11-27 10:00:00`.

const DAY: i64 = 86_400;
/// Days of the 400 years after which the calendar repeats.
const ERA: i64 = 146_097;

/// Days from 1970 to a date. Years begin with March here, so that a leap day is the last one.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, within) = (year.div_euclid(400), year.rem_euclid(400));
    let since_march = (month + 9) % 12;
    let of_year = (153 * since_march + 2) / 5 + day - 1;
    era * ERA + within * 365 + within / 4 - within / 100 + of_year - 719_468
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Reads a time in UTC, as seconds since 1970: `2026-11-27`, `2026-11-27 10:00` or
/// `2026-11-27 10:00:00`, with a space or a `T` between date and time, and perhaps a `Z` at the end.
/// `None` if it is none. A version's time is one that fits into 32 bits without a sign.
pub fn seconds_of(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00"));
    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let mut time = numbers(time, ':')?;
    if time.len() == 2 {
        time.push(0);
    }
    let [hour, minute, second] = time.try_into().ok()?;
    let is_date = (0..10_000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let within = (hour * 60 + minute) * 60 + second;
    Some(days_to(year, month, day) * DAY + within)
}

fn numbers(text: &str, between: char) -> Option<Vec<i64>> {
    let digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts = text.split(between);
    parts
        .map(|part| Some(part).filter(digits)?.parse().ok())
        .collect()
}

/// Writes a time.
pub(crate) fn text(seconds: u32) -> String {
    let seconds = i64::from(seconds);
    let (days, within) = (seconds / DAY, seconds % DAY);
    let (mut year, mut month) = (1970 + days / 366, 1);
    while days_to(year + 1, 1, 1) <= days {
        year += 1;
    }
    while month < 12 && days_to(year, month + 1, 1) <= days {
        month += 1;
    }
    let day = days - days_to(year, month, 1) + 1;
    let (hour, minute, second) = (within / 3600, within / 60 % 60, within % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_comes_back_and_every_day_has_its_number() {
        let mut days = 0;
        for year in 1970..2106 {
            for month in 1..=12 {
                for day in 1..=days_of(year, month) {
                    let at = format!("{year}-{month:02}-{day:02} 23:59:58");
                    let seconds = seconds_of(&at).unwrap();
                    assert_eq!(seconds, days * DAY + DAY - 2, "{at}");
                    assert_eq!(text(u32::try_from(seconds).unwrap()), at);
                    days += 1;
                }
            }
        }
        assert_eq!(text(u32::MAX), "2106-02-07 06:28:15");
        assert_eq!(seconds_of("2026-11-27T10:00Z"), Some(1_795_773_600));
        assert_eq!(seconds_of("2026-11-27"), Some(1_795_737_600));
        assert_eq!(seconds_of("1969-12-31 23:59:59"), Some(-1));
        let last = i64::from(u32::MAX);
        assert_eq!(seconds_of("2106-02-07 06:28:16"), Some(last + 1));
        assert_eq!(seconds_of("9999-12-31"), Some(253_402_214_400));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let wrong = [
            "",
            "-",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-11-00",
            "2026-11-27 24:00:00",
            "2026-11-27 10",
            "2026-11-27 10:00:00:00",
            "2026-11-27 -1:00",
            "10000-01-01",
            "9223372036854775807-01-01",
            "99999999999999999999-01-01",
            "+2026-11-27",
            "2026-11-27 10:0x",
        ];
        for text in wrong {
            assert_eq!(seconds_of(text), None, "{text}");
        }
    }
}
