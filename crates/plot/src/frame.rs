//! The common parts of all pictures: the canvas, its title and legend, text, and marks.

use std::sync::OnceLock;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};

use crate::colors::Color;
use crate::picture::{Error, FONT, Picture};

/// The color of text.
pub(crate) const INK: RGBColor = RGBColor(40, 40, 40);
/// The color of axes.
pub(crate) const AXIS: RGBColor = RGBColor(110, 110, 110);
/// The color of the lines of a grid.
pub(crate) const GRID: RGBColor = RGBColor(228, 228, 228);

/// Height of ordinary text in pixels.
pub(crate) const TEXT: i32 = 13;
/// Height of a title.
const TITLE: i32 = 16;
/// Distance from the edge.
const MARGIN: i32 = 12;
/// Distance from the title and the legend.
const ABOVE: i32 = 6;
/// Height of a line of the legend.
pub(crate) const LINE: i32 = 20;

pub(crate) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The shape of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A disc.
    Circle,
    /// A square on its side.
    Square,
    /// A square on a corner.
    Diamond,
    /// A triangle that points up.
    Triangle,
    /// A triangle that points down.
    TriangleDown,
    /// A cross of two diagonals.
    Cross,
    /// A cross of two lines upright.
    Plus,
    /// An open circle.
    Ring,
    /// An upright line.
    Upright,
}

/// A kind of thing in a picture: its name in the legend, its color, its mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Its color.
    pub color: Color,
    /// Its mark.
    pub shape: Shape,
}

impl Color {
    pub(crate) fn rgb(self) -> RGBColor {
        RGBColor(self.0, self.1, self.2)
    }
}

pub(crate) fn failed<E: std::fmt::Display>(error: E) -> Error {
    Error::Draw(error.to_string())
}

/// Makes the built-in font known to plotters, so that plotters can measure text.
fn use_font() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        for (style, bytes) in [
            (FontStyle::Normal, notosans::REGULAR_TTF),
            (FontStyle::Bold, notosans::BOLD_TTF),
        ] {
            // Fails only for a font that cannot be parsed; ours can.
            let _ = register_font(FONT, style, bytes);
        }
    });
}

/// Text of a height, aligned to its point in this way.
pub(crate) fn style(height: i32, color: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    (FONT, height).into_font().color(&color).pos(Pos::new(h, v))
}

/// Width of a text in pixels.
pub(crate) fn width(text: &str, height: i32) -> i32 {
    use_font();
    let font = (FONT, height).into_font();
    let measured = font.box_size(text).map(|(width, _)| width as i32);
    // Half an em for each letter where plotters cannot measure it.
    measured.unwrap_or(text.chars().count() as i32 * height / 2)
}

/// The part of a text that fits into `room` pixels, with an ellipsis where it is cut.
pub(crate) fn shortened(text: &str, height: i32, room: i32) -> String {
    if width(text, height) <= room {
        return text.to_owned();
    }
    let mut letters: Vec<char> = text.chars().collect();
    while !letters.is_empty() {
        letters.pop();
        let cut: String = letters.iter().chain(&['…']).collect();
        if width(&cut, height) <= room {
            return cut;
        }
    }
    String::new()
}

/// Makes a picture: title, subtitle and legend at its top. `draw` draws on the rest of the canvas.
pub(crate) fn picture(
    size: (u32, u32),
    title: &str,
    subtitle: Option<&str>,
    legend: &[Series],
    draw: impl FnOnce(&Canvas<'_>) -> Result<(), Error>,
) -> Result<Picture, Error> {
    use_font();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let wide = size.0 as i32 - 2 * MARGIN;
        let mut top = MARGIN;
        if !title.is_empty() {
            let bold = (FONT, TITLE, FontStyle::Bold).into_font().color(&INK);
            let bold = bold.pos(Pos::new(HPos::Left, VPos::Top));
            root.draw_text(&shortened(title, TITLE, wide), &bold, (MARGIN, top))
                .map_err(failed)?;
            top += TITLE + 8;
        }
        if let Some(subtitle) = subtitle {
            let text = style(TEXT, AXIS, HPos::Left, VPos::Top);
            root.draw_text(&shortened(subtitle, TEXT, wide), &text, (MARGIN, top))
                .map_err(failed)?;
            top += TEXT + 8;
        }
        top = draw_legend(&root, legend, top, size.0 as i32)?;
        let (_, below) = root.split_vertically(top);
        draw(&below.margin(ABOVE, MARGIN / 2, MARGIN, MARGIN))?;
        root.present().map_err(failed)?;
    }
    Ok(Picture::new(&svg, size, title))
}

/// Draws the legend in as many lines as it needs and returns where it ends.
fn draw_legend(root: &Canvas<'_>, legend: &[Series], top: i32, total: i32) -> Result<i32, Error> {
    if legend.is_empty() {
        return Ok(top);
    }
    let text = style(TEXT, INK, HPos::Left, VPos::Center);
    let mut y = top + LINE / 2;
    for (series, (x, line)) in legend.iter().zip(legend_places(legend, total)) {
        y = top + LINE / 2 + LINE * line;
        let mark = mark(5, series.shape, series.color.rgb());
        root.draw(&(EmptyElement::at((x + 6, y)) + mark))
            .map_err(failed)?;
        root.draw_text(&series.name, &text, (x + 18, y))
            .map_err(failed)?;
    }
    Ok(y + LINE / 2 + 4)
}

/// The left edge of each entry of a legend, and its line, the first being 0.
pub(crate) fn legend_places(legend: &[Series], total: i32) -> Vec<(i32, i32)> {
    let (mut x, mut line) = (MARGIN, 0);
    let mut places = Vec::with_capacity(legend.len());
    for series in legend {
        // A browser's own font may be wider than the measured one.
        let wide = 18 + width(&series.name, TEXT) * 3 / 2 + 12;
        if x > MARGIN && x + wide > total - MARGIN {
            (x, line) = (MARGIN, line + 1);
        }
        places.push((x, line));
        x += wide;
    }
    places
}

/// A mark of a radius in pixels.
pub(crate) fn mark<'a>(
    radius: i32,
    shape: Shape,
    color: RGBColor,
) -> DynElement<'static, SVGBackend<'a>, (i32, i32)> {
    let fill = color.mix(0.75).filled();
    let line = color.stroke_width(2);
    let polygon = |points: &[(i32, i32)]| Polygon::new(points, fill).into_dyn();
    let path = |points: &[(i32, i32)]| PathElement::new(points, line).into_dyn();
    // This gives all shapes of a radius about the same area.
    let (r, wide) = (radius, radius * 5 / 4);
    match shape {
        Shape::Circle => Circle::new((0, 0), r, fill).into_dyn(),
        Shape::Ring => Circle::new((0, 0), r, line).into_dyn(),
        Shape::Square => polygon(&[(-r, -r), (r, -r), (r, r), (-r, r)]),
        Shape::Diamond => polygon(&[(0, -wide), (wide, 0), (0, wide), (-wide, 0)]),
        Shape::Triangle => polygon(&[(0, -wide), (wide, r), (-wide, r)]),
        Shape::TriangleDown => polygon(&[(0, wide), (wide, -r), (-wide, -r)]),
        Shape::Cross => path(&[(-r, -r), (r, r), (0, 0), (-r, r), (r, -r)]),
        Shape::Upright => path(&[(0, -wide), (0, wide)]),
        Shape::Plus => path(&[(0, -wide), (0, wide), (0, 0), (-wide, 0), (wide, 0)]),
    }
}
