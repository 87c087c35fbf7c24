//! Pages that stay in their slot: commits of `Double` to the same leaf, which write one page.
//!
//! A commit that changes one leaf and nothing else fills a slot, whose head has the image. It is not written in
//! place. [`STAYS`] names the page, and all that read it from the file find it in the head. The next such commit
//! of the same leaf takes the other slot, and writes nothing else. Before any other commit fills its slot, the page
//! is written in place, and the flush of that slot covers it (MV56). Until then it has its own slot.
//!
//! A commit with a late page may begin with it: it writes the page in place, with a change (see [`crate::late`]).
//! Recovery finds the slot, as it does where the page in place was torn.

use crate::core::Core;
use crate::double::{Place, SlotContent};
use crate::error::{Error, Result};
use crate::found::copy;
use crate::heads::{self, Head, Layout};
use crate::late::only_leaf;
use crate::page::{self, Image, PageType, u64_at};
use crate::shared::STAYS;
use crate::types::PageNo;

/// A page that stays in its slot, and the head that has its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stays {
    pub(crate) page: u32,
    head: u32,
}

impl Core {
    /// The page that stays in its slot, if there is one.
    pub(crate) fn stays(&self) -> Result<Option<Stays>> {
        let word = self.load(STAYS)?;
        let (page, head) = ((word >> 32) as u32, word as u32);
        Ok((page != 0).then_some(Stays { page, head }))
    }

    pub(crate) fn set_stays(&self, stays: Option<Stays>) -> Result<()> {
        let word = stays.map_or(0, |stays| {
            u64::from(stays.page) << 32 | u64::from(stays.head)
        });
        self.store(STAYS, word)
    }

    fn may_any_stay(&self) -> bool {
        self.options.late_after != u32::MAX
    }

    /// The page of this commit, if it stays in the slot.
    pub(crate) fn stays_in(&mut self, slot: u32, layout: &Layout<'_>) -> Result<Option<Stays>> {
        let head = self.slots()?.page(slot, 0);
        let txn = self.txn()?;
        let page = only_leaf(txn).map(|(page, _)| page);
        let is_only = layout.pages() == 1 && txn.rounds.is_none();
        Ok(page
            .filter(|_| is_only && self.may_any_stay())
            .map(|page| Stays { page, head }))
    }

    /// The image in the slot. If the page was written in place just now, and the slot has another commit: an error,
    /// so that the caller looks again.
    pub(crate) fn image_in_slot(&mut self, stays: Stays) -> Result<Box<Image>> {
        let image = self.read_image(stays.head)?;
        page::verify(&image, PageNo(stays.head), self.salt)?;
        let Head { named, .. } = heads::read_head(&image)?.ok_or(no_image(stays))?;
        // The word changes before the slot is written over. So this is the newest commit, which is published.
        if self.stays()? != Some(stays) {
            return Err(no_image(stays));
        }
        let mut named = named.into_iter();
        let found = named.find_map(|(page, crc, image)| {
            let image = image.filter(|_| page == stays.page)?;
            (page::crc_of(&image) == crc).then_some(image)
        });
        found.ok_or(no_image(stays))
    }

    // ---- recovery

    /// The page of the newest slot that recovery has found, and its image, if that may stay there. The page in place must
    /// be whole, so that only its slot is needed.
    pub(crate) fn may_stay(
        &mut self,
        newest: Option<&(u32, SlotContent)>,
    ) -> Result<Option<(Stays, Box<Image>)>> {
        let Some((slot, content)) = newest else {
            return Ok(None);
        };
        let [(page, Place::Head(image))] = &content.places[..] else {
            return Ok(None);
        };
        let (page, head) = (*page, self.slots()?.page(*slot, 0));
        let in_place = self.read_image(page)?;
        let is_whole = page::verify(&in_place, PageNo(page), self.salt).is_ok();
        let is_older = u64_at(&in_place[..], 32) < content.version;
        // Otherwise the newest version would be one that no slot has. As for the page that is whole, this is more than
        // the protocol needs.
        let is_newest = content.version > self.header.floor;
        let is_only = content.round.number == 0 && content.round.is_last;
        // A page that came home may have to be written again, and its carrier has its number (MV59).
        let is_commit = page::from_of(image).is_some();
        let is_leaf = image[16] == PageType::Leaf.byte() && self.may_any_stay();
        let may = is_whole && is_older && is_newest && is_only && is_commit && is_leaf;
        let stays = Stays { page, head };
        may.then(|| Ok((stays, copy(image)?))).transpose()
    }

    /// Writes the page that could have stayed in place, before a header that settles its slot.
    pub(crate) fn redo_what_stays(&mut self, stays: Option<(Stays, Box<Image>)>) -> Result<()> {
        let Some((Stays { page, .. }, image)) = stays else {
            return Ok(());
        };
        self.flush_what_was_found()?;
        self.forget_found();
        self.write_home_image(page, image)?;
        self.flush_storage()
    }

    // ---- in place

    /// Writes the page that stays in its slot in place, if there is one. The flush of the next slot, or of the next header
    /// that settles slots, covers it (MV56, MV57).
    pub(crate) fn write_what_stays(&mut self) -> Result<()> {
        let Some(stays) = self.stays()? else {
            return Ok(());
        };
        // An open may have found the slot without its flush (MV26).
        self.flush_newest()?;
        let image = self.image_in_slot(stays)?;
        self.forget_found();
        self.write_home_image(stays.page, image)?;
        self.set_stays(None)
    }

    /// The same before a commit of these pages, unless its own slot has the page.
    pub(crate) fn write_what_stays_but(&mut self, images: &[(u32, Box<Image>)]) -> Result<()> {
        let Some(Stays { page, .. }) = self.stays()? else {
            return Ok(());
        };
        let is_replaced = images.iter().any(|(other, _)| *other == page);
        match is_replaced || self.txn()?.freed.contains(&page) {
            true => Ok(()),
            false => self.write_what_stays(),
        }
    }
}

fn no_image(stays: Stays) -> Error {
    Error::Damaged {
        page: PageNo(stays.page),
        what: "no slot has its newest image any more",
    }
}

#[cfg(test)]
mod tests {
    use crate::heads;
    use crate::page::u64_at;
    use crate::{Db, Durability, MemoryFile, Options, Torn, TreeId, TreeKind};

    const TREE: TreeId = TreeId(1);

    fn open(file: &MemoryFile) -> Db {
        let options = Options {
            torn: Torn::Double,
            ..Options::default()
        };
        Db::open(file.storage(), options).unwrap()
    }

    fn put(db: &mut Db, value: u8) {
        db.begin_write().unwrap();
        db.put_integer(TREE, 1, &[value; 100]).unwrap();
    }

    fn commit(db: &mut Db, value: u8) {
        put(db, value);
        db.commit(Durability::Flush).unwrap();
    }

    /// A reader has looked at the word, and not yet at the head. Two transactions fill the slots, the second of
    /// which is not published.
    #[test]
    fn an_image_of_a_commit_that_is_not_published_is_none() {
        let file = MemoryFile::new();
        let (mut db, mut reader) = (open(&file), open(&file));
        db.begin_write().unwrap();
        assert_eq!(db.create_tree(TreeKind::Integer).unwrap(), TREE);
        db.commit(Durability::Flush).unwrap();
        commit(&mut db, 1);
        commit(&mut db, 2);
        let stays = reader.core.stays().unwrap().unwrap();
        let image = reader.core.image_in_slot(stays).unwrap();
        assert_eq!(u64_at(&image[..], 32), 4);
        commit(&mut db, 3);
        assert!(reader.core.stays().unwrap() != Some(stays));
        put(&mut db, 4);
        db.write(Durability::Flush).unwrap();
        // The head is one, and has the page.
        let head = reader.core.read_image(stays.head).unwrap();
        let named = heads::read_head(&head).unwrap().unwrap().named;
        assert_eq!((u64_at(&head[..], 32), named[0].0), (6, stays.page));
        assert!(reader.core.image_in_slot(stays).is_err());
        // The next look finds the page in place.
        let node = reader.core.node(stays.page).unwrap();
        assert_eq!(node.ver, db.current_version().unwrap().0);
        db.rollback().unwrap();
    }
}
