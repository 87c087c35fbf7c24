//! The pictures of onewrite's tools: what a device was given over time, how much of it for what, and
//! figures side by side.
//!
//! A picture is described by a value ([`Addresses`], [`Traffic`], [`Bars`], [`Lines`]) whose `draw`
//! makes a [`Picture`]: SVG text that stands by itself (no script, no file, no network; it can be put
//! into a page as it is), and PNG of exactly that SVG. [`stack`] puts pictures under each other, [`grid`] beside
//! each other as well.
//!
//! ```
//! use onewrite_plot::{Arrangement, Axis, BarSeries, Bars, Unit, colors};
//!
//! let bars = Bars {
//!     title: "One insert".to_owned(),
//!     subtitle: None,
//!     categories: vec!["wal".to_owned(), "onewrite".to_owned()],
//!     axis: Axis::new("written", Unit::Bytes),
//!     arrangement: Arrangement::Stacked,
//!     series: vec![BarSeries::new("log", colors::LOG, [8_192.0, 4_096.0])],
//! };
//! let picture = bars.draw()?;
//! assert!(picture.svg().contains("One insert"));
//! assert!(picture.png(1.0)?.starts_with(b"\x89PNG"));
//! # Ok::<(), onewrite_plot::Error>(())
//! ```
//!
//! The font is built in (Noto Sans): a machine without any font draws the same PNG. A viewer of the SVG
//! that has no Noto Sans takes another sans-serif face. Colours are those of Okabe and Ito, which people
//! who see colours differently can tell apart; where things are marked, each kind has a shape as well.
//! The background is white.
//!
//! Who calls it: `onewrite trace --plot`, and reports that other commands write.

mod addresses;
mod bars;
pub mod colors;
mod frame;
mod heat;
mod lines;
mod picture;
mod ticks;
mod traffic;

pub use addresses::{Addresses, Mark, Region};
pub use bars::{Arrangement, BarSeries, Bars};
pub use colors::Color;
pub use frame::{Series, Shape};
pub use heat::Heat;
pub use lines::{LineSeries, Lines, Scale};
pub use picture::{Error, Picture, grid, stack};
pub use ticks::{Axis, Unit};
pub use traffic::{Moved, Traffic};
