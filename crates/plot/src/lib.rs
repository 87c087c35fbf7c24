//! The pictures of onewrite's tools: a device's I/O over time, its amount for each purpose, and
//! figures for comparison.
//!
//! A value ([`Addresses`], [`Traffic`], [`Bars`], [`Lines`]) describes a picture; its `draw` makes
//! a [`Picture`]. A picture is self-contained SVG text: no script, no file, no network, ready for a
//! page. With the feature `png` there is also a PNG of exactly that SVG. [`stack`] puts pictures below each other, [`grid`] also
//! next to each other.
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
//! # #[cfg(feature = "png")]
//! assert!(picture.png(1.0)?.starts_with(b"\x89PNG"));
//! # Ok::<(), onewrite_plot::Error>(())
//! ```
//!
//! The font is built in (Noto Sans), so a machine without any font draws the same PNG. A viewer of
//! the SVG that lacks Noto Sans takes another sans-serif face. The colors are those of Okabe and
//! Ito, which people who see colors differently can distinguish. Each kind of mark also has its own
//! shape. The background is white.
//!
//! Callers: `onewrite trace --plot`, and the reports of other commands.

mod addresses;
mod bars;
mod cells;
mod chart;
pub mod colors;
mod frame;
mod heat;
mod lines;
mod picture;
#[cfg(feature = "png")]
mod png;
mod ticks;
mod traffic;

pub use addresses::{Addresses, Mark, Region};
pub use bars::{Arrangement, BarSeries, Bars};
pub use cells::{Cell, Cells};
pub use colors::Color;
pub use frame::{Series, Shape};
pub use heat::Heat;
pub use lines::{LineSeries, Lines, Scale};
pub use picture::{Error, Picture, grid, stack};
pub use ticks::{Axis, Unit};
pub use traffic::{Moved, Traffic};
