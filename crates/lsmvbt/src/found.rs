//! Pages that recovery has read. It needs some of them several times: a slot to write it again and to redo
//! it, the free map to know that its header is whole and to go on from it. It reads each of them once.
//!
//! Nobody else writes meanwhile: the handle is alone, or has the writer's lock. Its own writes change what
//! was read, so the first of them that brings other bytes forgets all. Then reads go to the storage again,
//! as they do after the recovery.

use foldhash::HashMap;

use crate::core::Core;
use crate::error::Result;
use crate::freemap::{FIRST, FreeMap};
use crate::header::{Header, MapRef};
use crate::page::Image;
use crate::room;

/// Pages kept at most: 1 MiB.
const MOST: usize = 256;

/// The pages, while a recovery keeps them.
#[derive(Debug, Default)]
pub(crate) struct FoundPages {
    pages: Option<HashMap<u32, Box<Image>>>,
    /// The free map that these maps of a header are.
    map: Option<(Vec<MapRef>, FreeMap)>,
}

impl Core {
    /// From now on pages are kept.
    pub(crate) fn keep_found(&mut self) {
        self.found = FoundPages {
            pages: Some(HashMap::default()),
            map: None,
        };
    }

    /// Pages are about to change, or the recovery is over.
    pub(crate) fn forget_found(&mut self) {
        self.found = FoundPages::default();
    }

    /// A copy of a page that is kept.
    pub(crate) fn found(&self, page: u32) -> Result<Option<Box<Image>>> {
        self.found_image(page).map(copy).transpose()
    }

    /// A page that is kept.
    pub(crate) fn found_image(&self, page: u32) -> Option<&Image> {
        let pages = self.found.pages.as_ref()?;
        pages.get(&page).map(|image| &**image)
    }

    /// The free map of a header, if it was read and is kept.
    pub(crate) fn found_map(&self, header: &Header) -> Option<FreeMap> {
        let (maps, free) = self.found.map.as_ref()?;
        (*maps == header.maps && free.hwm == header.hwm.max(FIRST)).then(|| free.clone())
    }

    /// Keeps it.
    pub(crate) fn note_found_map(&mut self, header: &Header, free: &FreeMap) {
        if self.found.pages.is_some() {
            self.found.map = Some((header.maps.clone(), free.clone()));
        }
    }

    /// Keeps a page, if there is room.
    pub(crate) fn note_found(&mut self, page: u32, image: &Image) -> Result<()> {
        if let Some(pages) = &mut self.found.pages
            && pages.len() < MOST
        {
            pages.insert(page, copy(image)?);
        }
        Ok(())
    }
}

/// A copy of a page.
pub(crate) fn copy(image: &Image) -> Result<Box<Image>> {
    let mut bytes = room::image()?;
    bytes.copy_from_slice(image);
    Ok(bytes)
}
