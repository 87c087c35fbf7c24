//! Transactional files: a small file system whose files' changes are transactions of X-FTL.
//!
//! Everything that is written to a file since the last `fsync` is one transaction: its pages and its
//! inode. `fsync` is commit(t), and [`Files::abort`] is abort(t): the file is then, size and all, what it was. So the
//! file system needs no journal, and is as consistent as one that journals data and metadata both.
//! Creating, removing and renaming files are transactions of their own, done when the call returns.
//! Several files can share a transaction ([`Files::share`]): they are committed or aborted together.
//!
//! There is one directory. A name that begins with a zero byte is that of a file which was removed while it was
//! open, and goes when the file system is mounted. What a transaction has written is kept in memory at first, as in a page cache; beyond
//! a number of pages it is written to the device, uncommitted.
//!
//! Some bytes need not be what they are for longer than the file system is mounted: a counter by which whoever has the
//! file open knows that it has changed. Written lazily ([`Files::write_lazily`]) they are part of the transaction as all
//! others, but do not make a page be written: they are kept beside it, in memory, until it is written for another reason, or the file
//! system is unmounted ([`Files::settle`]). A power cut leaves them as they were on the device.
//!
//! Which chunks are free is known from the inodes. A chunk is handed out again only when nobody
//! needs what is in it even after a power cut, and reads as zeros.
//!
//! `layout` has the bytes, `fuse` the kernel's side.

pub mod fuse;
mod layout;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ftl::{Ftl, FtlError, Lpn, Tid};
pub use layout::FileNo;
use layout::{ChunkNo, Inode, Layout, MAX_NAME};

/// Pages of a transaction that are kept in memory.
const PAGES_IN_MEMORY: usize = 256;
/// Pages that have lazily written bytes, at most: they are kept in memory.
const LAZY_PAGES: usize = 64;

/// Why an operation was not done.
#[derive(Debug, PartialEq, Eq)]
pub enum FilesError {
    /// There is no such file.
    NotFound,
    /// A file has that name.
    Exists,
    /// No name, or one that is too long.
    Name,
    /// No inode or chunk is free, the file would be too long for its inode, or the device's X-L2P table has no entry left.
    NoSpace,
    /// What is on the device is no file system of ours.
    Format(&'static str),
    /// The device.
    Device(FtlError),
}

impl From<FtlError> for FilesError {
    fn from(error: FtlError) -> Self {
        match error {
            FtlError::TableFull { .. } => Self::NoSpace,
            error => Self::Device(error),
        }
    }
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such file"),
            Self::Exists => f.write_str("there is a file of that name"),
            Self::Name => write!(f, "a file's name has 1 to {MAX_NAME} bytes"),
            Self::NoSpace => f.write_str("no room: inodes, chunks, or entries of the X-L2P table"),
            Self::Format(what) => write!(f, "the device holds no file system of ours: {what}"),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FilesError {}

/// What has been written since the last commit.
#[derive(Debug, Default)]
struct Transaction {
    files: BTreeSet<FileNo>,
    /// Not on the device yet.
    pages: BTreeMap<Lpn, Vec<u8>>,
    /// As they are with what was written lazily.
    lazy: BTreeMap<Lpn, Vec<u8>>,
    /// Pages that had lazily written bytes before, and were written since.
    overtaken: BTreeSet<Lpn>,
    /// Chunks that were handed out.
    taken: Vec<ChunkNo>,
    /// Chunks that are not needed once it is committed.
    left: Vec<ChunkNo>,
}

/// See the module.
#[derive(Debug)]
pub struct Files {
    ftl: Ftl,
    layout: Layout,
    /// As committed.
    committed: BTreeMap<FileNo, Inode>,
    /// As everybody sees them.
    current: BTreeMap<FileNo, Inode>,
    transactions: BTreeMap<Tid, Transaction>,
    /// Which transaction a file is in.
    joined: BTreeMap<FileNo, Tid>,
    free: BTreeSet<ChunkNo>,
    /// Pages that are not on the device as they are: with what was written lazily, and committed.
    lazy: BTreeMap<Lpn, Vec<u8>>,
}

impl Files {
    /// Makes an empty file system.
    ///
    /// # Errors
    /// The device is too small, or fails.
    pub fn format(mut ftl: Ftl) -> Result<Self, FilesError> {
        let layout = Layout::of(ftl.page_bytes(), ftl.pages());
        if layout.page_bytes < 512 || layout.chunks == 0 {
            return Err(FilesError::NoSpace);
        }
        for file in 0..layout.inodes {
            ftl.trim(layout.inode_page(FileNo(file)))?;
        }
        ftl.write(Lpn(0), &layout.superblock())?;
        ftl.flush()?;
        Self::mount(ftl)
    }

    /// Mounts one.
    ///
    /// # Errors
    /// There is none; the device fails.
    pub fn mount(mut ftl: Ftl) -> Result<Self, FilesError> {
        let layout = Layout::of(ftl.page_bytes(), ftl.pages());
        if *ftl.read(Lpn(0))? != *layout.superblock() {
            return Err(FilesError::Format(
                "its superblock is not one for this device",
            ));
        }
        let mut committed = BTreeMap::new();
        let mut free: BTreeSet<ChunkNo> = (0..layout.chunks).map(ChunkNo).collect();
        for file in (0..layout.inodes).map(FileNo) {
            let page = ftl.read(layout.inode_page(file))?;
            let inode = Inode::decode(&page, &layout);
            let inode = inode.map_err(|()| FilesError::Format("an inode cannot be understood"))?;
            let Some(inode) = inode else { continue };
            for chunk in inode.chunks.iter().flatten() {
                if !free.remove(chunk) {
                    return Err(FilesError::Format("two files have the same chunk"));
                }
            }
            committed.insert(file, inode);
        }
        let mut files = Self {
            ftl,
            layout,
            current: committed.clone(),
            committed,
            transactions: BTreeMap::new(),
            joined: BTreeMap::new(),
            free: BTreeSet::new(),
            lazy: BTreeMap::new(),
        };
        // A power cut may have come between a file's end and the trim of its pages.
        files.give_back(free.into_iter().collect())?;
        let is_removed = |inode: &Inode| inode.name.first() == Some(&0);
        let removed = files.current.iter().filter(|(_, inode)| is_removed(inode));
        let removed: Vec<FileNo> = removed.map(|(file, _)| *file).collect();
        for file in removed {
            files.remove(file)?;
        }
        Ok(files)
    }

    /// The device below.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }

    /// The device below, for faults and statistics; what is written there breaks files.
    pub fn ftl_mut(&mut self) -> &mut Ftl {
        &mut self.ftl
    }

    /// Writes to the device what was written lazily and committed, but for pages that an active transaction has written.
    ///
    /// # Errors
    /// The device.
    pub fn settle(&mut self) -> Result<(), FilesError> {
        for (lpn, page) in self.lazy.clone() {
            match self.ftl.write(lpn, &page) {
                Ok(()) => drop(self.lazy.remove(&lpn)),
                Err(FtlError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.ftl.flush()?)
    }

    /// Takes the device out; what was not committed is lost.
    pub fn into_ftl(self) -> Ftl {
        self.ftl
    }

    /// Names and files.
    pub fn list(&self) -> impl Iterator<Item = (&[u8], FileNo)> {
        self.current
            .iter()
            .map(|(file, inode)| (inode.name.as_slice(), *file))
    }

    /// The file of a name.
    ///
    /// # Errors
    /// There is none.
    pub fn lookup(&self, name: &[u8]) -> Result<FileNo, FilesError> {
        let mut files = self.list();
        files
            .find(|(known, _)| *known == name)
            .map(|(_, file)| file)
            .ok_or(FilesError::NotFound)
    }

    /// Bytes of a file.
    ///
    /// # Errors
    /// There is no such file.
    pub fn size(&self, file: FileNo) -> Result<u64, FilesError> {
        self.inode(file).map(|inode| inode.bytes)
    }

    fn inode(&self, file: FileNo) -> Result<&Inode, FilesError> {
        self.current.get(&file).ok_or(FilesError::NotFound)
    }

    /// The files that are in a file's transaction; itself, if it is in none.
    pub fn sharing(&self, file: FileNo) -> BTreeSet<FileNo> {
        let tid = self.joined.get(&file);
        let transaction = tid.and_then(|tid| self.transactions.get(tid));
        let files = transaction.map(|transaction| transaction.files.clone());
        files.unwrap_or_else(|| BTreeSet::from([file]))
    }

    /// Whether a file has been changed since its last commit.
    pub fn is_changed(&self, file: FileNo) -> bool {
        self.joined.contains_key(&file)
    }

    /// Bytes of chunks: in all, and free.
    pub fn space(&self) -> (u64, u64) {
        let chunk = u64::from(self.layout.chunk_pages) * self.layout.page_bytes as u64;
        (
            u64::from(self.layout.chunks) * chunk,
            self.free.len() as u64 * chunk,
        )
    }

    /// Makes an empty file, durably.
    ///
    /// # Errors
    /// There is one of that name; no inode is free.
    pub fn create(&mut self, name: &[u8]) -> Result<FileNo, FilesError> {
        check_name(name)?;
        if self.lookup(name).is_ok() {
            return Err(FilesError::Exists);
        }
        let is_free = |file: &FileNo| !self.current.contains_key(file);
        let file = (0..self.layout.inodes)
            .map(FileNo)
            .find(is_free)
            .ok_or(FilesError::NoSpace)?;
        let inode = Inode {
            name: name.to_vec(),
            ..Inode::default()
        };
        self.change_inodes(&[(file, Some(inode.clone()))])?;
        self.current.insert(file, inode);
        Ok(file)
    }

    /// Removes a file, durably, with whatever was written to it.
    ///
    /// # Errors
    /// There is no such file; the device.
    pub fn remove(&mut self, file: FileNo) -> Result<(), FilesError> {
        self.inode(file)?;
        self.abort(file)?;
        self.change_inodes(&[(file, None)])?;
        let inode = self.current.remove(&file).unwrap_or_default();
        self.give_back(inode.chunks.into_iter().flatten().collect())
    }

    /// Gives a file another name, durably; a file that has that name is removed in the same transaction.
    ///
    /// # Errors
    /// There is no such file; the device.
    pub fn rename(&mut self, file: FileNo, name: &[u8]) -> Result<(), FilesError> {
        self.rename_over(file, name, None)
    }

    /// The same; a file that has that name gets another one, with what was written to it and not committed.
    ///
    /// # Errors
    /// As [`Self::rename`].
    pub fn replace(&mut self, file: FileNo, name: &[u8], hidden: &[u8]) -> Result<(), FilesError> {
        self.rename_over(file, name, Some(hidden))
    }

    fn rename_over(
        &mut self,
        file: FileNo,
        name: &[u8],
        hidden: Option<&[u8]>,
    ) -> Result<(), FilesError> {
        check_name(name)?;
        self.inode(file)?;
        let old = self.lookup(name).ok().filter(|old| *old != file);
        let mut renamed = self
            .committed
            .get(&file)
            .cloned()
            .ok_or(FilesError::NotFound)?;
        renamed.name = name.to_vec();
        let mut changes = vec![(file, Some(renamed))];
        match (old, hidden) {
            (Some(old), None) => {
                self.abort(old)?;
                changes.push((old, None));
            }
            (Some(old), Some(hidden)) => {
                let mut inode = self.committed.get(&old).cloned().unwrap_or_default();
                inode.name = hidden.to_vec();
                changes.push((old, Some(inode)));
            }
            (None, _) => {}
        }
        // Its own uncommitted inode, if that is on the device already, is not: it is written at commit.
        self.change_inodes(&changes)?;
        if let Some(inode) = self.current.get_mut(&file) {
            inode.name = name.to_vec();
        }
        let gone = match (old, hidden) {
            (Some(old), Some(hidden)) => {
                if let Some(inode) = self.current.get_mut(&old) {
                    inode.name = hidden.to_vec();
                }
                return Ok(());
            }
            (Some(old), None) => self.current.remove(&old).unwrap_or_default(),
            (None, _) => Inode::default(),
        };
        self.give_back(gone.chunks.into_iter().flatten().collect())
    }

    /// Changes inodes in a transaction of their own.
    fn change_inodes(&mut self, changes: &[(FileNo, Option<Inode>)]) -> Result<(), FilesError> {
        // Files' own transactions are named by their inodes, from 1.
        let tid = Tid(u64::from(self.layout.inodes) + 1);
        for (file, inode) in changes {
            let lpn = self.layout.inode_page(*file);
            let written = match inode {
                Some(inode) => self
                    .ftl
                    .write_in(tid, lpn, &inode.encode(self.layout.page_bytes)),
                None => self.ftl.trim_in(tid, lpn),
            };
            if let Err(error) = written {
                self.ftl.abort(tid)?;
                return Err(error.into());
            }
        }
        if let Err(error) = self.ftl.commit(tid) {
            self.ftl.abort(tid)?;
            return Err(error.into());
        }
        for (file, inode) in changes {
            match inode {
                Some(inode) => self.committed.insert(*file, inode.clone()),
                None => self.committed.remove(file),
            };
        }
        Ok(())
    }

    /// Nobody needs what is in these chunks any more: they are free when that is durable.
    fn give_back(&mut self, chunks: Vec<ChunkNo>) -> Result<(), FilesError> {
        for chunk in &chunks {
            for lpn in self.layout.pages_of(*chunk) {
                self.lazy.remove(&lpn);
                self.ftl.trim(lpn)?;
            }
        }
        if !chunks.is_empty() {
            self.ftl.flush()?;
        }
        self.free.extend(chunks);
        Ok(())
    }

    /// The transaction that a file is in, begun if there is none.
    fn transaction_of(&mut self, file: FileNo) -> Tid {
        let tid = *self
            .joined
            .entry(file)
            .or_insert(Tid(u64::from(file.0) + 1));
        self.transactions.entry(tid).or_default().files.insert(file);
        tid
    }

    /// Puts two files into one transaction, with what each has written.
    ///
    /// # Errors
    /// There is no such file.
    pub fn share(&mut self, file: FileNo, with: FileNo) -> Result<(), FilesError> {
        self.inode(file)?;
        self.inode(with)?;
        let (from, into) = (self.transaction_of(file), self.transaction_of(with));
        if from == into {
            return Ok(());
        }
        self.ftl.merge(from, into)?;
        let Transaction {
            files,
            pages,
            lazy,
            overtaken,
            taken,
            left,
        } = self.transactions.remove(&from).unwrap_or_default();
        for file in &files {
            self.joined.insert(*file, into);
        }
        let transaction = self.transactions.entry(into).or_default();
        transaction.files.extend(files);
        transaction.pages.extend(pages);
        transaction.lazy.extend(lazy);
        transaction.overtaken.extend(overtaken);
        transaction.taken.extend(taken);
        transaction.left.extend(left);
        Ok(())
    }

    /// Reads bytes of a file as it is now; returns how many there were.
    ///
    /// # Errors
    /// There is no such file; the device.
    pub fn read(&mut self, file: FileNo, offset: u64, out: &mut [u8]) -> Result<usize, FilesError> {
        let bytes = self.inode(file)?.bytes;
        let length = bytes.saturating_sub(offset).min(out.len() as u64) as usize;
        for part in self.parts(offset, length) {
            let target = &mut out[part.at..part.at + part.end - part.begin];
            match self.place(file, part.page)? {
                Some(lpn) => self.read_page(file, lpn, |page| {
                    target.copy_from_slice(&page[part.begin..part.end]);
                })?,
                None => target.fill(0),
            }
        }
        Ok(length)
    }

    /// Looks at a page as the file's transaction sees it.
    fn read_page(
        &mut self,
        file: FileNo,
        lpn: Lpn,
        look: impl FnOnce(&[u8]),
    ) -> Result<(), FilesError> {
        let tid = self.joined.get(&file).copied();
        let transaction = tid.and_then(|tid| self.transactions.get(&tid));
        let written = transaction.and_then(|transaction| {
            let pages = transaction.pages.get(&lpn);
            pages.or_else(|| transaction.lazy.get(&lpn))
        });
        let is_overtaken = transaction.is_some_and(|one| one.overtaken.contains(&lpn));
        let in_memory = match is_overtaken {
            true => written,
            false => written.or_else(|| self.lazy.get(&lpn)),
        };
        match (in_memory, tid) {
            (Some(page), _) => look(page),
            (None, Some(tid)) => look(&self.ftl.read_in(tid, lpn)?),
            (None, None) => look(&self.ftl.read(lpn)?),
        }
        Ok(())
    }

    /// Where page `page` of a file is; `None` in a hole, and behind the last chunk.
    fn place(&self, file: FileNo, page: u64) -> Result<Option<Lpn>, FilesError> {
        let pages = u64::from(self.layout.chunk_pages);
        let chunk = self
            .inode(file)?
            .chunks
            .get((page / pages) as usize)
            .copied()
            .flatten();
        Ok(chunk.map(|chunk| self.layout.data_page(chunk, (page % pages) as u32)))
    }

    /// Writes bytes into a file, in its transaction.
    ///
    /// # Errors
    /// There is no such file; no room; the device. Some of the bytes may have been written.
    pub fn write(&mut self, file: FileNo, offset: u64, data: &[u8]) -> Result<(), FilesError> {
        let end = offset
            .checked_add(data.len() as u64)
            .ok_or(FilesError::NoSpace)?;
        self.inode(file)?;
        let tid = self.transaction_of(file);
        for part in self.parts(offset, data.len()) {
            let lpn = self.take_place(file, tid, part.page)?;
            let source = &data[part.at..part.at + part.end - part.begin];
            let mut page = match part.end - part.begin == self.layout.page_bytes {
                true => Vec::new(),
                false => {
                    let mut page = Vec::new();
                    self.read_page(file, lpn, |bytes| page.extend_from_slice(bytes))?;
                    page
                }
            };
            page.resize(self.layout.page_bytes, 0);
            page[part.begin..part.end].copy_from_slice(source);
            self.put(tid, lpn, page)?;
        }
        if let Some(inode) = self.current.get_mut(&file) {
            inode.bytes = inode.bytes.max(end);
        }
        Ok(())
    }

    /// Writes bytes that need not outlive the mount: see the module. Where that is not possible they are written as
    /// any others.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_lazily(
        &mut self,
        file: FileNo,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FilesError> {
        let end = offset.saturating_add(data.len() as u64);
        let parts: Vec<Part> = self.parts(offset, data.len()).take(2).collect();
        let place = match parts.as_slice() {
            [part] if end <= self.inode(file)?.bytes => self.place(file, part.page)?,
            _ => None,
        };
        let Some(lpn) = place else {
            return self.write(file, offset, data);
        };
        let tid = self.transaction_of(file);
        let transaction = self.transactions.entry(tid).or_default();
        let is_full = self.lazy.len() + transaction.lazy.len() >= LAZY_PAGES;
        if is_full || transaction.pages.contains_key(&lpn) {
            return self.write(file, offset, data);
        }
        let mut page = Vec::new();
        self.read_page(file, lpn, |bytes| page.extend_from_slice(bytes))?;
        page[parts[0].begin..parts[0].end].copy_from_slice(data);
        let transaction = self.transactions.entry(tid).or_default();
        transaction.lazy.insert(lpn, page);
        Ok(())
    }

    /// A transaction writes a page itself, with all that was lazily written to it.
    fn overtake(&mut self, tid: Tid, lpn: Lpn) {
        let was_lazy = self.lazy.contains_key(&lpn);
        let transaction = self.transactions.entry(tid).or_default();
        transaction.lazy.remove(&lpn);
        if was_lazy {
            transaction.overtaken.insert(lpn);
        }
    }

    /// Puts a page into a transaction: into memory, where another one makes room.
    fn put(&mut self, tid: Tid, lpn: Lpn, page: Vec<u8>) -> Result<(), FilesError> {
        self.overtake(tid, lpn);
        let pages = &mut self.transactions.entry(tid).or_default().pages;
        pages.insert(lpn, page);
        if pages.len() > PAGES_IN_MEMORY
            && let Some((first, page)) = pages.pop_first()
            && let Err(error) = self.ftl.write_in(tid, first, &page)
        {
            self.transactions
                .entry(tid)
                .or_default()
                .pages
                .insert(first, page);
            return Err(error.into());
        }
        Ok(())
    }

    /// Where a page of a file is, in a new chunk if it was nowhere.
    fn take_place(&mut self, file: FileNo, tid: Tid, page: u64) -> Result<Lpn, FilesError> {
        if let Some(lpn) = self.place(file, page)? {
            return Ok(lpn);
        }
        let index = (page / u64::from(self.layout.chunk_pages)) as usize;
        if index >= self.layout.chunks_of_a_file() {
            return Err(FilesError::NoSpace);
        }
        let chunk = self.free.pop_first().ok_or(FilesError::NoSpace)?;
        self.transactions.entry(tid).or_default().taken.push(chunk);
        if let Some(inode) = self.current.get_mut(&file) {
            inode.chunks.resize(inode.chunks.len().max(index + 1), None);
            inode.chunks[index] = Some(chunk);
        }
        self.place(file, page)?.ok_or(FilesError::NotFound)
    }

    /// Makes a file longer (with zeros) or shorter, in its transaction.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn truncate(&mut self, file: FileNo, bytes: u64) -> Result<(), FilesError> {
        let before = self.inode(file)?.bytes;
        if bytes == before {
            return Ok(());
        }
        let tid = self.transaction_of(file);
        if bytes < before {
            self.zero_behind(file, tid, bytes)?;
            let chunk_bytes = u64::from(self.layout.chunk_pages) * self.layout.page_bytes as u64;
            let kept = bytes.div_ceil(chunk_bytes) as usize;
            if let Some(inode) = self.current.get_mut(&file) {
                let cut = inode.chunks.split_off(kept.min(inode.chunks.len()));
                let transaction = self.transactions.entry(tid).or_default();
                transaction.left.extend(cut.into_iter().flatten());
            }
        }
        if let Some(inode) = self.current.get_mut(&file) {
            inode.bytes = bytes;
        }
        Ok(())
    }

    /// Zeroes what is behind `bytes` in the last chunk that is kept.
    fn zero_behind(&mut self, file: FileNo, tid: Tid, bytes: u64) -> Result<(), FilesError> {
        let page_bytes = self.layout.page_bytes as u64;
        let pages = u64::from(self.layout.chunk_pages);
        let end = (bytes / page_bytes).div_ceil(pages) * pages;
        if !bytes.is_multiple_of(page_bytes)
            && let Some(lpn) = self.place(file, bytes / page_bytes)?
        {
            let mut page = Vec::new();
            self.read_page(file, lpn, |bytes| page.extend_from_slice(bytes))?;
            page[(bytes % page_bytes) as usize..].fill(0);
            self.put(tid, lpn, page)?;
        }
        for page in
            bytes.div_ceil(page_bytes)..end.max(bytes.div_ceil(page_bytes).next_multiple_of(pages))
        {
            if let Some(lpn) = self.place(file, page)? {
                self.overtake(tid, lpn);
                self.transactions.entry(tid).or_default().pages.remove(&lpn);
                self.ftl.trim_in(tid, lpn)?;
            }
        }
        Ok(())
    }

    /// fsync: commits the file's transaction, with all files that share it.
    ///
    /// # Errors
    /// No room in the X-L2P table, and the transaction goes on as it was; the device.
    pub fn commit(&mut self, file: FileNo) -> Result<(), FilesError> {
        self.inode(file)?;
        let Some(tid) = self.joined.get(&file).copied() else {
            return Ok(());
        };
        while let Some((lpn, page)) = self.transactions.entry(tid).or_default().pages.pop_first() {
            if let Err(error) = self.ftl.write_in(tid, lpn, &page) {
                self.transactions
                    .entry(tid)
                    .or_default()
                    .pages
                    .insert(lpn, page);
                return Err(error.into());
            }
        }
        let files = self
            .transactions
            .get(&tid)
            .map(|transaction| transaction.files.clone());
        let files = files.unwrap_or_default();
        for file in &files {
            let changed = self.current.get(file) != self.committed.get(file);
            if let Some(inode) = self.current.get(file).filter(|_| changed) {
                let page = inode.encode(self.layout.page_bytes);
                self.ftl
                    .write_in(tid, self.layout.inode_page(*file), &page)?;
            }
        }
        self.ftl.commit(tid)?;
        for file in files {
            self.joined.remove(&file);
            if let Some(inode) = self.current.get(&file) {
                self.committed.insert(file, inode.clone());
            }
        }
        let done = self.transactions.remove(&tid).unwrap_or_default();
        self.lazy.retain(|lpn, _| !done.overtaken.contains(lpn));
        self.lazy.extend(done.lazy);
        // The transaction is durable whatever comes of this: chunks that could not be given back now are when the
        // file system is mounted.
        let _ = self.give_back(done.left);
        Ok(())
    }

    /// Drops what was written since the last commit, in all files that share the transaction.
    ///
    /// # Errors
    /// There is no such file; the device.
    pub fn abort(&mut self, file: FileNo) -> Result<(), FilesError> {
        self.inode(file)?;
        let Some(tid) = self.joined.get(&file).copied() else {
            return Ok(());
        };
        self.ftl.abort(tid)?;
        let dropped = self.transactions.remove(&tid).unwrap_or_default();
        for file in dropped.files {
            self.joined.remove(&file);
            if let Some(inode) = self.committed.get(&file) {
                self.current.insert(file, inode.clone());
            }
        }
        // Nothing of them was ever committed: they read as zeros as they did.
        self.free.extend(dropped.taken);
        Ok(())
    }

    fn parts(&self, offset: u64, bytes: usize) -> impl Iterator<Item = Part> + use<> {
        let page = self.layout.page_bytes as u64;
        let end = offset + bytes as u64;
        (offset / page..end.div_ceil(page)).map(move |number| {
            let (from, to) = (offset.max(number * page), end.min((number + 1) * page));
            Part {
                page: number,
                begin: (from - number * page) as usize,
                end: (to - number * page) as usize,
                at: (from - offset) as usize,
            }
        })
    }
}

/// A part of a file's page.
#[derive(Clone, Copy, Debug)]
struct Part {
    page: u64,
    begin: usize,
    end: usize,
    at: usize,
}

fn check_name(name: &[u8]) -> Result<(), FilesError> {
    match (1..=MAX_NAME).contains(&name.len()) {
        true => Ok(()),
        false => Err(FilesError::Name),
    }
}

#[cfg(test)]
mod tests;
