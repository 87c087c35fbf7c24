//! The PNG of a picture: exactly its SVG, with the built-in font and no other.

use std::fmt;
use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, fontdb};

use crate::picture::{Error, FONT, Picture};

/// The longest side of a PNG, in pixels.
const MAX_SIDE: f32 = 16_384.0;

impl Picture {
    /// The picture as a PNG of `scale` times its size. With the feature `png`.
    ///
    /// # Errors
    /// If the SVG cannot be rendered, or the PNG would be more than 16,384 pixels wide or high.
    pub fn png(&self, scale: f32) -> Result<Vec<u8>, Error> {
        let draw = |text: &dyn fmt::Display| Error::Draw(text.to_string());
        let options = usvg::Options {
            fontdb: fonts(),
            font_family: FONT.to_owned(),
            ..usvg::Options::default()
        };
        let tree = usvg::Tree::from_str(self.svg(), &options).map_err(|error| draw(&error))?;
        let side = |pixels: u32| (pixels as f32 * scale).ceil();
        let (width, height) = (side(self.size().0), side(self.size().1));
        if !(1.0..=MAX_SIDE).contains(&width) || !(1.0..=MAX_SIDE).contains(&height) {
            return Err(draw(&format_args!("{width} x {height} pixels")));
        }
        let mut pixels = Pixmap::new(width as u32, height as u32)
            .ok_or_else(|| draw(&format_args!("no room for {width} x {height} pixels")))?;
        let transform = Transform::from_scale(scale, scale);
        resvg::render(&tree, transform, &mut pixels.as_mut());
        pixels.encode_png().map_err(|error| draw(&error))
    }
}

fn fonts() -> Arc<fontdb::Database> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let made = || {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(notosans::REGULAR_TTF.to_vec());
        fonts.load_font_data(notosans::BOLD_TTF.to_vec());
        fonts.set_sans_serif_family(FONT);
        Arc::new(fonts)
    };
    Arc::clone(FONTS.get_or_init(made))
}
