//! The one place that makes the `onewrite` VFS known to this process's SQLite.

use crate::Error;

/// Registers the `onewrite` VFS, so that a connection can be opened with it. May be called again.
pub(crate) fn register() -> Result<(), Error> {
    onewrite::register().map_err(|e| Error::Wrong(format!("the VFS onewrite: {e}")))
}
