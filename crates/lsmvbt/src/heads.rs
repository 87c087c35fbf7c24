//! The heads of a slot of `Torn::Double`: they name the slot's images, and hold those that fit.
//!
//! A head is a page, with [`crate::page`]'s header and checksum:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 16 | 1 | type: 7 |
//! | 18 | 1 | flags: 2 = the slot does not end its transaction |
//! | 20 | 4 | the slot's number among those of its transaction; 0: it is the only one |
//! | 32 | 8 | version |
//! | 48 | 2 | images that stand in this head; 0 up to format 5 |
//! | 52 | 2 | images that this head names |
//! | 56 | 4 | images of the whole slot |
//! | 64 | 8 each | for each image that it names: page number, CRC |
//! | then | | for each image that stands here: see below |
//! | behind | | zeros |
//!
//! An image in a head leaves out its first 16 bytes, which the head has as well, and its longest run of
//! zeros. In a node this is the gap between the offsets of the cells and the cells:
//!
//! | bytes | what |
//! | --- | --- |
//! | 2 | its place among the images that the head names, from 0; rising |
//! | 2 | offset in the page of the first zero left out: 64 or more |
//! | 2 | offset behind the last one |
//! | | the page's bytes from 16 to the first offset, and from the second one to its end |
//!
//! The head's checksum covers them, so a torn head is no head, and its slot is none. Each image then has
//! to have the CRC that its head names, byte for byte as it will stand in place.

use crate::commit::{LIST_ENTRIES, list_page};
use crate::error::Result;
use crate::page::{self, CAPACITY, HEADER, Image, Stamp, set_u16, set_u32, u16_at, u32_at};
use crate::room;
use crate::rounds::Round;
use crate::types::PAGE_SIZE;

/// Page type of a head.
pub(crate) const SLOT_TYPE: u8 = 7;
/// Flag of a slot that does not end its transaction.
const NOT_LAST: u8 = 2;
/// Bytes in front of each image in a head.
const BEFORE: usize = 6;
/// The first byte of an image that is in a head: checksum, page number and salt come before.
const FROM: usize = 16;

/// An image with its page.
pub(crate) type PageImage = (u32, Box<Image>);

/// An image that stands in its head, and the zeros that it leaves out there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InHead {
    /// Its place among the images of the head.
    index: usize,
    zeros: (usize, usize),
}

/// Where the images of a slot stand. The room for the slot is made by it, and the slot written.
pub(crate) struct Layout<'a> {
    /// The images that each head names, and those of them that stand in it.
    heads: Vec<(&'a [PageImage], Vec<InHead>)>,
}

impl<'a> Layout<'a> {
    /// Takes each image into its head that still has room, in their order.
    pub(crate) fn of(images: &'a [PageImage]) -> Layout<'a> {
        let parts = images.chunks(LIST_ENTRIES);
        let heads = parts.map(|part| (part, those_that_fit(part))).collect();
        Layout { heads }
    }

    /// Pages of the slot that it takes.
    pub(crate) fn pages(&self) -> usize {
        let of_head = |(part, inside): &(&[PageImage], Vec<InHead>)| 1 + part.len() - inside.len();
        self.heads.iter().map(of_head).sum()
    }

    /// The images that have a page of their own. They follow the heads, in this order.
    pub(crate) fn outside(&self) -> impl Iterator<Item = &'a Image> {
        self.heads.iter().flat_map(|(part, inside)| {
            let mut inside = inside.iter().map(|one| one.index).peekable();
            let all = part.iter().enumerate();
            all.filter_map(move |(at, (_, image))| {
                inside.next_if_eq(&at).is_none().then_some(&**image)
            })
        })
    }

    /// The heads, for their pages.
    pub(crate) fn heads(
        &self,
        page_of: impl Fn(u32) -> u32,
        salt: u64,
        stamp: Stamp,
        round: Round,
    ) -> Vec<Box<Image>> {
        let images: usize = self.heads.iter().map(|(part, _)| part.len()).sum();
        let heads = self.heads.iter().zip(0..);
        heads
            .map(|((part, inside), number)| {
                let page = page_of(number);
                slot_head(page, salt, stamp, round, images as u32, part, inside)
            })
            .collect()
    }
}

fn those_that_fit(part: &[PageImage]) -> Vec<InHead> {
    let mut room = CAPACITY.saturating_sub(8 * part.len());
    let mut inside = Vec::new();
    for (index, (_, image)) in part.iter().enumerate() {
        // None takes less: the rest of a page's header is no zeros that are left out.
        if room < BEFORE + HEADER - FROM {
            break;
        }
        let zeros = longest_zeros(image);
        let takes = BEFORE + (zeros.0 - FROM) + (PAGE_SIZE - zeros.1);
        if takes <= room {
            room -= takes;
            inside.push(InHead { index, zeros });
        }
    }
    inside
}

/// The longest run of zeros behind a page's header that has eight of them in one aligned word: its
/// first byte, and the one behind it. Both are the page's end if there is none.
fn longest_zeros(image: &Image) -> (usize, usize) {
    let mut longest = (PAGE_SIZE, PAGE_SIZE);
    let mut begin = None;
    for at in (HEADER..=PAGE_SIZE).step_by(8) {
        let is_zero = image.get(at..at + 8).is_some_and(|word| word == [0; 8]);
        match (is_zero, begin) {
            (true, None) => begin = Some(at),
            (false, Some(from)) => {
                if at - from > longest.1 - longest.0 {
                    longest = (from, at);
                }
                begin = None;
            }
            _ => {}
        }
    }
    let (from, to) = longest;
    let before = image[HEADER..from].iter().rev();
    let after = image[to..].iter();
    match from == to {
        true => longest,
        false => (
            from - before.take_while(|byte| **byte == 0).count(),
            to + after.take_while(|byte| **byte == 0).count(),
        ),
    }
}

/// A head: like a list page, with what is said at the top.
fn slot_head(
    page: u32,
    salt: u64,
    stamp: Stamp,
    round: Round,
    images: u32,
    part: &[PageImage],
    inside: &[InHead],
) -> Box<Image> {
    let entries: Vec<(u32, u32)> = part.iter().map(|(p, i)| (*p, page::crc_of(i))).collect();
    let stamp = Stamp {
        durable: 0,
        ..stamp
    };
    let mut head = list_page(page, salt, stamp, &entries, 0);
    head[16] = SLOT_TYPE;
    head[18] = if round.is_last { 0 } else { NOT_LAST };
    set_u32(&mut head[..], 20, round.number);
    set_u16(&mut head[..], 48, inside.len() as u16);
    set_u32(&mut head[..], 56, images);
    let mut at = HEADER + 8 * part.len();
    for InHead { index, zeros } in inside {
        let image = &part[*index].1;
        for (i, number) in [*index, zeros.0, zeros.1].into_iter().enumerate() {
            set_u16(&mut head[..], at + 2 * i, number as u16);
        }
        at += BEFORE;
        for bytes in [&image[FROM..zeros.0], &image[zeros.1..]] {
            head[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
    }
    page::seal(&mut head);
    head
}

/// The content of a head.
pub(crate) struct Head {
    pub(crate) version: u64,
    pub(crate) round: Round,
    /// Images of the whole slot.
    pub(crate) images: u32,
    /// Page and checksum of each image that it names, and the image if it stands here.
    pub(crate) named: Vec<(u32, u32, Option<Box<Image>>)>,
}

/// True for a page that has the type of a head. The page must be verified.
pub(crate) fn is_head(image: &Image) -> bool {
    image[16] == SLOT_TYPE
}

/// Reads a verified page; `None` if it is no head. Images in it are as they will stand in place, but not
/// yet compared with their checksums.
///
/// # Errors
/// `NoMemory`.
pub(crate) fn read_head(head: &Image) -> Result<Option<Head>> {
    let count = usize::from(u16_at(head, 52));
    if !is_head(head) || count == 0 || count > LIST_ENTRIES {
        return Ok(None);
    }
    let entry = |i| {
        let at = HEADER + 8 * i;
        (u32_at(head, at), u32_at(head, at + 4), None)
    };
    let mut named: Vec<_> = (0..count).map(entry).collect();
    let mut at = HEADER + 8 * count;
    for _ in 0..u16_at(head, 48) {
        let Some((InHead { index, zeros }, behind)) = in_head_at(head, at) else {
            return Ok(None);
        };
        let Some((page, crc, place @ None)) = named.get_mut(index) else {
            return Ok(None);
        };
        let mut image = room::image()?;
        set_u32(&mut image[..], 0, *crc);
        set_u32(&mut image[..], 4, *page);
        image[8..FROM].copy_from_slice(&head[8..FROM]);
        let bytes = &head[at + BEFORE..behind];
        let (first, second) = bytes.split_at(zeros.0 - FROM);
        image[FROM..zeros.0].copy_from_slice(first);
        image[zeros.1..].copy_from_slice(second);
        *place = Some(image);
        at = behind;
    }
    let round = Round {
        number: u32_at(head, 20),
        is_last: head[18] & NOT_LAST == 0,
    };
    Ok(Some(Head {
        version: page::u64_at(head, 32),
        round,
        images: u32_at(head, 56),
        named,
    }))
}

/// The image that stands at an offset of a head, and the offset behind it; `None` if there can be none.
fn in_head_at(head: &Image, at: usize) -> Option<(InHead, usize)> {
    let before = head.get(at..at + BEFORE)?;
    let [index, from, to] = [0, 2, 4].map(|i| usize::from(u16_at(before, i)));
    if !(HEADER..=to).contains(&from) || to > PAGE_SIZE {
        return None;
    }
    let behind = at + BEFORE + (from - FROM) + (PAGE_SIZE - to);
    let zeros = (from, to);
    (behind <= PAGE_SIZE).then_some((InHead { index, zeros }, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freemap::FreeMap;
    use crate::page::{Entry, INF, Node, PageType, seal};
    use crate::types::{PageNo, TreeKind};

    const SALT: u64 = 0x1122_3344_5566_7788;
    const STAMP: Stamp = Stamp {
        ver: 9,
        from: 8,
        durable: 7,
    };
    const ROUND: Round = Round {
        number: 3,
        is_last: false,
    };

    fn random(seed: &mut u64, below: usize) -> usize {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize % below
    }

    /// A node filled up to so many bytes, with payloads of random sizes.
    fn filled(kind: PageType, tree: Option<TreeKind>, page: u32, most: usize) -> PageImage {
        let level = u8::from(kind == PageType::Inner);
        let mut node = Node::new(PageNo(page), kind, tree, 1, level, 2);
        let mut seed = u64::from(page) * 31 + most as u64;
        loop {
            let local = match kind {
                PageType::Catalog => 0,
                _ => 1 + random(&mut seed, 120).min(most.saturating_sub(node.size() + 32)),
            };
            let key = node.len() as i64;
            let e = Entry {
                start: 3,
                end: if key % 5 == 4 { 6 } else { INF },
                key,
                total: local as u32,
                key_len: local as u32,
                child: 77 + key as u32,
                ..Entry::default()
            };
            if node.size()
                + node.cost(&Entry {
                    local: local as u16,
                    ..e
                })
                > most
            {
                break;
            }
            let bytes: Vec<u8> = (0..local)
                .map(|_| 1 + random(&mut seed, 255) as u8)
                .collect();
            node.insert(node.len(), e, &bytes);
        }
        (page, node.encode(SALT, STAMP).unwrap())
    }

    fn overflow(page: u32, data: &[u8]) -> PageImage {
        let node = Node::overflow(PageNo(page), 1, 2, data, 5);
        (page, node.encode(SALT, STAMP).unwrap())
    }

    fn free_map(page: u32) -> PageImage {
        let mut map = FreeMap::new(5000);
        (100..3000).step_by(3).for_each(|page| map.insert(page));
        (page, map.encode(0, PageNo(page), SALT))
    }

    /// A page of each kind, with all amounts of content.
    fn pages_of_all_kinds() -> Vec<PageImage> {
        use TreeKind::{Bytes, Custom, Integer};
        let mut all = Vec::new();
        let mut page = 100;
        for most in (0..=CAPACITY).step_by(56) {
            for (kind, tree) in [
                (PageType::Leaf, Some(Integer)),
                (PageType::Leaf, Some(Bytes)),
                (PageType::Leaf, Some(Custom)),
                (PageType::Inner, Some(Integer)),
                (PageType::Inner, Some(Custom)),
                (PageType::Catalog, None),
            ] {
                all.push(filled(kind, tree, page, most));
                page += 1;
            }
            all.push(overflow(page, &vec![0xa5; most]));
            all.push(overflow(page + 1, &vec![0; most]));
            page += 2;
        }
        all.push(free_map(page));
        all
    }

    /// The images of a slot, read from its pages as recovery does.
    fn read(slot: &[&Image]) -> Vec<PageImage> {
        let mut found = Vec::new();
        let (mut heads, mut images) = (0, usize::MAX);
        while found.len() < images {
            let head = read_head(slot[heads]).unwrap().expect("a head");
            assert_eq!((head.version, head.round), (STAMP.ver, ROUND));
            images = head.images as usize;
            found.extend(head.named);
            heads += 1;
        }
        let mut outside = slot[heads..].iter();
        let all: Vec<PageImage> = found
            .into_iter()
            .map(|(page, crc, inside)| {
                let image = inside.unwrap_or_else(|| Box::new(**outside.next().unwrap()));
                assert_eq!((page::crc_of(&image), u32_at(&image[..], 4)), (crc, page));
                (page, image)
            })
            .collect();
        assert_eq!(outside.next(), None);
        all
    }

    /// Writes a slot and reads it; the number of images in heads.
    fn comes_back(images: &[PageImage]) -> usize {
        let layout = Layout::of(images);
        let heads = layout.heads(|number| 1000 + number, SALT, STAMP, ROUND);
        let heads = heads.iter().map(|head| &**head);
        let slot: Vec<&Image> = heads.clone().chain(layout.outside()).collect();
        assert_eq!(slot.len(), layout.pages());
        for (head, page) in heads.clone().zip(1000..) {
            page::verify(head, PageNo(page), SALT).unwrap();
        }
        assert!(read(&slot) == images, "another image came back");
        images.len() + heads.count() - slot.len()
    }

    #[test]
    fn an_image_of_each_kind_comes_back_byte_for_byte() {
        let all = pages_of_all_kinds();
        let inside: usize = all
            .iter()
            .map(|one| comes_back(std::slice::from_ref(one)))
            .sum();
        // Those with some 3,970 bytes of content at most.
        assert!(inside > all.len() * 19 / 20, "{inside} of {}", all.len());
        for many in [2, 3, 7, 40, LIST_ENTRIES] {
            let inside: usize = all.chunks(many).map(comes_back).sum();
            assert!(inside > 0, "{many}");
        }
        assert!(comes_back(&all) > 0);
        let full = filled(PageType::Leaf, Some(TreeKind::Integer), 7, CAPACITY);
        assert_eq!(comes_back(&[full]), 0, "a page without a gap has its own");
    }

    #[test]
    fn a_head_takes_as_many_images_as_fit() {
        let small = |page| overflow(page, &[1; 100]);
        let images: Vec<PageImage> = (200..300).map(small).collect();
        let each = 8 + BEFORE + (HEADER - FROM) + 100;
        // All are named, whether they stand in the head or not.
        let room = CAPACITY - 8 * images.len();
        assert_eq!(comes_back(&images), room / (each - 8));
        let large = overflow(400, &[1; 3000]);
        // The first one that fits, not the first one that does not.
        let some = [large.clone(), overflow(401, &[1; 2000]), small(402)];
        assert_eq!(comes_back(&some), 2);
        assert!(std::ptr::eq(
            Layout::of(&some).outside().next().unwrap(),
            &*some[1].1
        ));
    }

    #[test]
    fn what_a_page_leaves_out_is_zeros() {
        for (page, image) in pages_of_all_kinds() {
            let (from, to) = longest_zeros(&image);
            assert!(image[from..to].iter().all(|byte| *byte == 0), "{page}");
            if matches!(image[16], 1..=3) {
                // The gap of a node has nothing of the entries that were there.
                let gap = HEADER + 2 * usize::from(u16_at(&image[..], 48))
                    ..usize::from(u16_at(&image[..], 50));
                assert!(image[gap].iter().all(|byte| *byte == 0), "{page}");
            }
        }
    }

    #[test]
    fn a_node_writes_no_byte_of_an_entry_that_is_gone() {
        let mut node = Node::new(PageNo(9), PageType::Leaf, Some(TreeKind::Integer), 1, 0, 2);
        for key in 0..8 {
            let e = Entry {
                start: 3,
                end: INF,
                key,
                total: 200,
                ..Entry::default()
            };
            node.insert(node.len(), e, &[0xee; 200]);
        }
        let image = node.encode(SALT, STAMP).unwrap();
        let mut node = Node::decode(&image, PageNo(9), SALT).unwrap();
        node.sift(|e| e.key == 100);
        let images = [(9, node.encode(SALT, STAMP).unwrap())];
        let head = &Layout::of(&images).heads(|_| 1000, SALT, STAMP, ROUND)[0];
        for image in [&images[0].1, head] {
            assert!(!image.windows(8).any(|bytes| bytes == [0xee; 8]));
        }
    }

    /// Damage is found by the checksum. But these bytes may be made by anyone who can compute one.
    #[test]
    fn no_bytes_of_a_head_make_reading_it_panic() {
        let images: Vec<PageImage> = pages_of_all_kinds().into_iter().take(60).collect();
        let good = &Layout::of(&images).heads(|_| 1000, SALT, STAMP, ROUND)[0];
        let (mut seed, mut none) = (5, 0);
        for _ in 0..20_000 {
            let mut head = good.clone();
            for _ in 0..1 + random(&mut seed, 4) {
                let at = match random(&mut seed, 2) {
                    0 => 48 + random(&mut seed, 6),
                    _ => random(&mut seed, PAGE_SIZE),
                };
                head[at] = random(&mut seed, 256) as u8;
            }
            seal(&mut head);
            none += usize::from(read_head(&head).unwrap().is_none());
        }
        assert!(none > 1000, "{none}");
    }
}
