//! The only place that registers the `onewrite` VFS with this process's SQLite.

use crate::Error;

/// Registers the `onewrite` VFS, so that a connection can use it. May be called again.
pub(crate) fn register() -> Result<(), Error> {
    onewrite::register().map_err(|e| Error::Wrong(format!("the VFS onewrite: {e}")))
}
