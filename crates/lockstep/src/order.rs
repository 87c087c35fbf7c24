//! An order: the steps of a run at which another process takes over.

use std::fmt;
use std::str::FromStr;

/// An event at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Turn {
    /// This process continues.
    To(u8),
    /// This process dies.
    Kill(u8),
}

/// See the module. Steps are counted from 1, and turns are sorted by step. Without turns, each
/// process continues until it waits or ends.
#[derive(Clone, PartialEq, Eq, Debug, Default, Hash)]
pub struct Order(pub Vec<(u32, Turn)>);

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (step, turn)) in self.0.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match turn {
                Turn::To(process) => write!(f, "{comma}{step}:{process}")?,
                Turn::Kill(process) => write!(f, "{comma}{step}:x{process}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Order, String> {
        let turn = |part: &str| {
            let (step, turn) = part.split_once(':')?;
            let turn = match turn.strip_prefix('x') {
                Some(process) => Turn::Kill(process.parse().ok()?),
                None => Turn::To(turn.parse().ok()?),
            };
            Some((step.parse().ok()?, turn))
        };
        let parts = text.split(',').filter(|part| !part.is_empty());
        let turns: Option<Vec<_>> = parts.map(turn).collect();
        let turns = turns.ok_or_else(|| format!("{text:?} is no order, like 12:1,40:x0"))?;
        Ok(Order(turns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_is_printed() {
        for text in ["", "3:1", "3:1,40:x0,41:2"] {
            let order: Order = text.parse().expect("an order");
            assert_eq!(order.to_string(), text);
        }
        assert!("3".parse::<Order>().is_err() && "a:1".parse::<Order>().is_err());
    }
}
