//! Models of devices: small TOML files, some of them built in.

use std::path::Path;

use crate::error::Error;

/// The built-in models: name, and the text of the file.
pub(crate) type BuiltIn<'a> = &'a [(&'a str, &'a str)];

/// A larger file is not a model.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The built-in model of that name, or the model in the file of that name. `parse` gets the model's
/// name (of a file, without its ending) and the text. `what` names the kind of model.
///
/// # Errors
/// If there is no such model or file, or the file is not a model.
pub(crate) fn find<T>(
    name: &str,
    what: &str,
    built_in: BuiltIn<'_>,
    parse: impl Fn(&str, &str) -> Result<T, String>,
) -> Result<T, Error> {
    let path = Path::new(name);
    let bad = |message: String| Error::Model {
        path: path.to_owned(),
        message,
    };
    if let Some((name, text)) = built_in.iter().find(|(known, _)| *known == name) {
        return parse(name, text).map_err(bad);
    }
    if !path.exists() {
        let known: Vec<&str> = built_in.iter().map(|(known, _)| *known).collect();
        let known = known.join(", ");
        return Err(bad(format!(
            "there is no such file, and no {what} is called that (there are {known})"
        )));
    }
    let length = path.metadata().map_err(Error::io("stat", path))?.len();
    if length > MAX_FILE_BYTES {
        return Err(bad(format!("{length} bytes are too many")));
    }
    let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    parse(&stem, &text).map_err(bad)
}
