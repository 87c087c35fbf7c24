//! Pages with more bit errors than error correction repairs.
//!
//! A read of such a page fails. When its block is emptied, a page without content takes its place:
//! its out-of-band area says that the logical page is lost ([`Kept::Lost`]). Reads of it fail, also
//! after a power cut, until the host writes or trims it. All other commands go on. Bookkeeping is
//! written again from memory. Recovery has no such memory: it fails if a page that the root names is lost.
//!
//! Until then the unreadable page is in place. If a piece of the map or an entry of the X-L2P table
//! names it, reads fail after a power cut, too. Otherwise recovery does not know of it, since its
//! out-of-band area cannot be read: the logical page comes back in an older version, or as zeros.

use std::sync::Arc;

use super::oob::{Content, Kept, Oob};
use super::{Ftl, FtlError};
use crate::nand::{NandError, Ppn};

/// A page as it was read.
type Read = (Oob, Arc<[u8]>);

/// A page on its way to another block.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) content: Content,
    pub(super) kept: Kept,
    pub(super) data: Arc<[u8]>,
}

/// A page that was found lost.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostPage {
    pub(crate) content: Content,
    /// The host has trimmed it.
    pub(crate) is_trimmed: bool,
    /// The NAND says so, too.
    pub(crate) is_true: bool,
}

impl Ftl {
    /// Whether an error is of a page with too many bit errors.
    pub(super) fn is_bit_error(&self, error: &FtlError) -> bool {
        let is_uncorrectable = matches!(error, FtlError::Nand(NandError::Uncorrectable(_)));
        is_uncorrectable && self.nand.has_bit_errors()
    }

    /// Bookkeeping that recovery has read. Without it the device cannot be opened.
    pub(super) fn needed<T>(
        &self,
        read: Result<T, FtlError>,
        page: Ppn,
        content: Content,
    ) -> Result<T, FtlError> {
        read.map_err(|error| match self.is_bit_error(&error) {
            true => FtlError::LostBookkeeping {
                page,
                content: content.words(),
            },
            false => error,
        })
    }

    /// A page that the FTL has written; `None` if it has too many bit errors.
    pub(super) fn read_if_kept(&mut self, ppn: Ppn) -> Result<Option<Read>, FtlError> {
        match self.read_page(ppn) {
            Err(error) if self.is_bit_error(&error) => Ok(None),
            read => read.map(Some),
        }
    }

    /// A valid page that is to be moved.
    pub(super) fn read_to_move(&mut self, ppn: Ppn) -> Result<Moving, FtlError> {
        if let Some((oob, data)) = self.read_if_kept(ppn)? {
            return Ok(Moving {
                content: oob.content,
                kept: oob.kept,
                data,
            });
        }
        let content = self.content_at(ppn)?;
        #[cfg(test)]
        self.lost.push(LostPage {
            content,
            is_trimmed: self.trims.values().any(|trimmed| *trimmed == ppn),
            is_true: self.nand.is_lost(ppn, 0),
        });
        Ok(Moving {
            content,
            kept: Kept::Lost,
            data: vec![0; self.page_bytes() as usize].into(),
        })
    }

    /// The content of a valid page that cannot be read, by what needs it.
    fn content_at(&self, ppn: Ppn) -> Result<Content, FtlError> {
        let written_back = self.map.cached.iter();
        let written_back = written_back.flat_map(|cached| &cached.written_back);
        let pieces = (0..).zip(&self.map.pieces);
        let mut pieces = pieces.chain(written_back.map(|(number, piece)| (*number, piece)));
        if let Some((number, _)) = pieces.find(|(_, piece)| piece.ppn == Some(ppn)) {
            return Ok(Content::Map(number));
        }
        if self.root == Some(ppn) {
            return Ok(Content::Root);
        }
        if self.table.pages.contains(&ppn) {
            return Ok(Content::Table(0));
        }
        if let Some((tid, lpn)) = self.table.active_at(ppn) {
            return Ok(Content::Transaction(tid, lpn));
        }
        let trims = self.trims.iter().map(|(lpn, ppn)| (*lpn, *ppn));
        let mut data = self.map.mapped().chain(trims);
        let found = data.find(|(_, mapped)| *mapped == ppn);
        found
            .map(|(lpn, _)| Content::Data(lpn))
            .ok_or_else(|| FtlError::Corrupt {
                page: ppn,
                expected: "a page that anybody needs".to_owned(),
            })
    }
}
