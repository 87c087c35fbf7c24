//! A finished picture: SVG, and with the feature `png` the PNG of it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The built-in font's family.
pub(crate) const FONT: &str = "Noto Sans";

/// The faces that a viewer without Noto Sans takes.
const FONTS: &str = "Noto Sans, DejaVu Sans, Verdana, Helvetica, sans-serif";

/// Why a picture could not be drawn or saved.
#[derive(Debug)]
pub enum Error {
    /// The drawing library's message.
    Draw(String),
    /// A file name that ends in neither `.svg` nor `.png`.
    Format(PathBuf),
    /// A file name that ends in `.png`, in a build without the feature `png`.
    NoPng(PathBuf),
    /// The file could not be written.
    Write(PathBuf, std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draw(text) => write!(f, "cannot draw: {text}"),
            Self::Format(path) => write!(
                f,
                "{}: a picture's file name ends in .svg or .png",
                path.display()
            ),
            Self::NoPng(path) => write!(
                f,
                "{}: this build draws no PNG; write .svg, or build with `--features png`",
                path.display()
            ),
            Self::Write(path, error) => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Write(_, error) => Some(error),
            _ => None,
        }
    }
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    svg: String,
    /// In pixels.
    size: (u32, u32),
}

impl Picture {
    /// Makes a picture from plotters' output. `title` is for readers who cannot see the picture.
    pub(crate) fn new(drawn: &str, size: (u32, u32), title: &str) -> Self {
        let (width, height) = size;
        // plotters' own first tag has a fixed size; ours shrinks with its page.
        let inside = drawn.split_once('>').map_or("", |(_, rest)| rest);
        let inside = inside.replace(
            &format!("font-family=\"{FONT}\""),
            &format!("font-family=\"{FONTS}\""),
        );
        let title = escape(title);
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" style=\"max-width:100%;height:auto\" role=\"img\" \
             aria-label=\"{title}\">\n<title>{title}</title>{inside}"
        );
        Self { svg, size }
    }

    /// The SVG document: an `<svg>` element without an XML declaration, for a file or a page.
    pub fn svg(&self) -> &str {
        &self.svg
    }

    /// Width and height of the SVG in pixels.
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// Writes the picture to a file, as SVG or as PNG in twice the size, by the ending of its name.
    ///
    /// # Errors
    /// If the name ends otherwise, the build has no PNG, or the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let bytes = match Self::is_png(path)? {
            #[cfg(feature = "png")]
            true => self.png(2.0)?,
            _ => self.svg.clone().into_bytes(),
        };
        fs::write(path, bytes).map_err(|error| Error::Write(path.to_owned(), error))
    }

    /// Whether [`Picture::save`] would write a PNG there. Callers ask before hours of work.
    ///
    /// # Errors
    /// If the name ends in neither `.svg` nor `.png`, or in `.png` without the feature `png`.
    pub fn is_png(path: &Path) -> Result<bool, Error> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("png") if cfg!(feature = "png") => Ok(true),
            Some("png") => Err(Error::NoPng(path.to_owned())),
            Some("svg") => Ok(false),
            _ => Err(Error::Format(path.to_owned())),
        }
    }
}

/// Several pictures as one, below each other.
pub fn stack(pictures: &[Picture], title: &str) -> Picture {
    grid(pictures, 1, title)
}

/// Several pictures as one, row by row, with `columns` next to each other.
pub fn grid(pictures: &[Picture], columns: usize, title: &str) -> Picture {
    let (mut inside, mut top, mut widest) = (String::from(">"), 0, 1);
    for row in pictures.chunks(columns.max(1)) {
        let mut left = 0;
        for picture in row {
            inside.push_str(&format!("\n<g transform=\"translate({left},{top})\">"));
            // The content of the outer tag, without its own title.
            let body = picture
                .svg
                .split_once("</title>")
                .map_or("", |(_, body)| body);
            inside.push_str(body.trim_end().strip_suffix("</svg>").unwrap_or(body));
            inside.push_str("</g>");
            left += picture.size.0;
        }
        widest = widest.max(left);
        top += row.iter().map(|picture| picture.size.1).max().unwrap_or(0);
    }
    inside.push_str("\n</svg>\n");
    Picture::new(&inside, (widest, top.max(1)), title)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
