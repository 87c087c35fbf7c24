//! The files of the simulated system. Their bytes never move, so that processes can map them.

use std::collections::HashMap;
use std::ptr;

/// The most bytes of a file.
pub const MOST_BYTES: usize = 24 << 20;
const PAGE: usize = 4096;
const PAGES: usize = MOST_BYTES / PAGE;

/// A file, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Inode(pub u32);

/// The bytes of one file, and the pages that differ from the last snapshot.
struct Bytes {
    at: *mut u8,
    dirty: Vec<u32>,
    is_dirty: Box<[bool]>,
    /// Pages that may be nonzero.
    is_used: Box<[bool]>,
    is_mapped: bool,
}

impl Bytes {
    fn new() -> Bytes {
        // SAFETY: a new mapping. It takes memory only for touched pages.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                MOST_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert!(at != libc::MAP_FAILED, "no memory for a file");
        Bytes {
            at: at.cast(),
            dirty: Vec::new(),
            is_dirty: vec![false; PAGES].into(),
            is_used: vec![false; PAGES].into(),
            is_mapped: false,
        }
    }

    fn touch(&mut self, from: usize, to: usize) {
        for page in from / PAGE..to.div_ceil(PAGE) {
            self.is_used[page] = true;
            if !self.is_dirty[page] {
                self.is_dirty[page] = true;
                self.dirty.push(page as u32);
            }
        }
    }

    fn page(&mut self, page: usize) -> &mut [u8] {
        // SAFETY: within the mapping, and there is no other reference to it: processes have
        // pointers.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(page * PAGE), PAGE) }
    }
}

/// A copy of the directory and its files.
#[derive(Clone, Default)]
pub struct Snapshot {
    sizes: Vec<u64>,
    names: Vec<(String, Inode)>,
    pages: HashMap<(u32, u32), Box<[u8]>>,
}

/// See the module.
#[derive(Default)]
pub struct Files {
    bytes: Vec<Bytes>,
    sizes: Vec<u64>,
    names: Vec<(String, Inode)>,
}

impl Files {
    pub fn find(&self, name: &str) -> Option<Inode> {
        let found = self.names.iter().find(|(known, _)| known == name);
        found.map(|(_, inode)| *inode)
    }

    /// The name of the file.
    pub fn name(&self, inode: Inode) -> &str {
        let found = self.names.iter().find(|(_, known)| *known == inode);
        found.map_or("(deleted)", |(name, _)| name)
    }

    pub fn create(&mut self, name: &str) -> Inode {
        let inode = Inode(self.sizes.len() as u32);
        self.sizes.push(0);
        if self.bytes.len() < self.sizes.len() {
            self.bytes.push(Bytes::new());
        }
        self.names.push((name.to_owned(), inode));
        inode
    }

    pub fn unlink(&mut self, name: &str) -> bool {
        let before = self.names.len();
        self.names.retain(|(known, _)| known != name);
        self.names.len() != before
    }

    pub fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(inode) = self.find(from) else {
            return false;
        };
        self.unlink(to);
        self.unlink(from);
        self.names.push((to.to_owned(), inode));
        true
    }

    pub fn size(&self, inode: Inode) -> u64 {
        self.sizes[inode.0 as usize]
    }

    pub fn is_linked(&self, inode: Inode) -> bool {
        self.names.iter().any(|(_, known)| *known == inode)
    }

    /// The address at which a process sees the file that it maps.
    pub fn map(&mut self, inode: Inode, offset: usize) -> *mut u8 {
        let bytes = &mut self.bytes[inode.0 as usize];
        bytes.is_mapped = true;
        assert!(offset < MOST_BYTES);
        // SAFETY: within the mapping.
        unsafe { bytes.at.add(offset) }
    }

    /// Copies to `out`; returns the number of copied bytes.
    ///
    /// # Safety
    /// `out` has room for `count` bytes.
    pub unsafe fn read(&self, inode: Inode, out: *mut u8, count: usize, offset: u64) -> usize {
        let size = self.size(inode);
        let count = count.min(size.saturating_sub(offset) as usize);
        // SAFETY: by this function's contract; within the file.
        unsafe {
            let from = self.bytes[inode.0 as usize]
                .at
                .add(offset.min(size) as usize);
            ptr::copy(from, out, count);
        }
        count
    }

    /// # Safety
    /// `from` has `count` bytes.
    pub unsafe fn write(&mut self, inode: Inode, from: *const u8, count: usize, offset: u64) {
        let end = offset as usize + count;
        assert!(end <= MOST_BYTES, "a file of {end} bytes");
        let bytes = &mut self.bytes[inode.0 as usize];
        bytes.touch(offset as usize, end);
        // SAFETY: by this function's contract; within the mapping.
        unsafe { ptr::copy(from, bytes.at.add(offset as usize), count) };
        let size = &mut self.sizes[inode.0 as usize];
        *size = (*size).max(end as u64);
    }

    pub fn truncate(&mut self, inode: Inode, size: u64) {
        assert!(size as usize <= MOST_BYTES, "a file of {size} bytes");
        let before = std::mem::replace(&mut self.sizes[inode.0 as usize], size);
        if size < before {
            self.zero(inode, size as usize, before as usize);
        }
    }

    pub fn zero(&mut self, inode: Inode, from: usize, to: usize) {
        let bytes = &mut self.bytes[inode.0 as usize];
        let mut at = from;
        while at < to {
            let (page, end) = (at / PAGE, (at / PAGE + 1) * PAGE);
            if bytes.is_used[page] || bytes.is_mapped {
                bytes.touch(at, end.min(to));
                bytes.page(page)[at % PAGE..end.min(to) - page * PAGE].fill(0);
            }
            at = end;
        }
    }

    /// Marks mapped files as changed, because processes change them without a call.
    fn touch_mapped(&mut self) {
        for (bytes, size) in self.bytes.iter_mut().zip(&self.sizes) {
            if bytes.is_mapped {
                bytes.touch(0, *size as usize);
            }
        }
    }

    /// Copies everything. Later changes are counted against this copy.
    pub fn snapshot(&mut self) -> Snapshot {
        self.touch_mapped();
        let mut pages = HashMap::new();
        for (number, bytes) in self.bytes.iter_mut().enumerate() {
            bytes.dirty.clear();
            bytes.is_dirty.fill(false);
            for page in 0..PAGES {
                if bytes.is_used[page] {
                    let copy = Box::from(&*bytes.page(page));
                    pages.insert((number as u32, page as u32), copy);
                }
            }
        }
        Snapshot {
            sizes: self.sizes.clone(),
            names: self.names.clone(),
            pages,
        }
    }

    /// Restores everything. The snapshot must be the last one that was taken or restored, unless
    /// `all`.
    pub fn restore(&mut self, to: &Snapshot, all: bool) {
        self.touch_mapped();
        for (number, bytes) in self.bytes.iter_mut().enumerate() {
            let mut dirty = std::mem::take(&mut bytes.dirty);
            if all {
                let there = |page: &u32| {
                    bytes.is_used[*page as usize] || to.pages.contains_key(&(number as u32, *page))
                };
                dirty = (0..PAGES as u32).filter(there).collect();
            }
            for page in dirty.drain(..) {
                bytes.is_dirty[page as usize] = false;
                match to.pages.get(&(number as u32, page)) {
                    Some(before) => bytes.page(page as usize).copy_from_slice(before),
                    None => {
                        bytes.page(page as usize).fill(0);
                        bytes.is_used[page as usize] = false;
                    }
                }
                bytes.is_used[page as usize] = to.pages.contains_key(&(number as u32, page));
            }
            bytes.dirty = dirty;
        }
        self.sizes.clone_from(&to.sizes);
        self.names.clone_from(&to.names);
    }
}
