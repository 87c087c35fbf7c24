//! Pages that recovery has read. It needs some of them several times: a slot to write it again and to redo
//! it, the free map to know that its header is whole and to go on from it. It reads each of them once.
//!
//! Nobody else writes meanwhile: the handle is alone, or has the writer's lock. Its own writes change what
//! was read, so the first of them that brings other bytes forgets all. Then reads go to the storage again,
//! as they do after the recovery.

use foldhash::HashMap;

use crate::core::Core;
use crate::error::Result;
use crate::page::Image;
use crate::room;

/// Pages kept at most: 1 MiB.
const MOST: usize = 256;

/// The pages, while a recovery keeps them.
#[derive(Debug, Default)]
pub(crate) struct FoundPages(Option<HashMap<u32, Box<Image>>>);

impl Core {
    /// From now on pages are kept.
    pub(crate) fn keep_found(&mut self) {
        self.found = FoundPages(Some(HashMap::default()));
    }

    /// Pages are about to change, or the recovery is over.
    pub(crate) fn forget_found(&mut self) {
        self.found = FoundPages::default();
    }

    /// A copy of a page that is kept.
    pub(crate) fn found(&self, page: u32) -> Result<Option<Box<Image>>> {
        let kept = self.found.0.as_ref().and_then(|pages| pages.get(&page));
        kept.map(|image| copy(image)).transpose()
    }

    /// Keeps a page, if there is room.
    pub(crate) fn note_found(&mut self, page: u32, image: &Image) -> Result<()> {
        if let Some(pages) = &mut self.found.0
            && pages.len() < MOST
        {
            pages.insert(page, copy(image)?);
        }
        Ok(())
    }
}

fn copy(image: &Image) -> Result<Box<Image>> {
    let mut bytes = room::image()?;
    bytes.copy_from_slice(image);
    Ok(bytes)
}
