//! The contents of files: reading, writing, and writing lazily.

use super::{FileNo, Files, FilesError, LAZY_PAGES, LazyWrites, PAGES_IN_MEMORY};
use crate::ftl::{Lpn, Tid};

impl Files {
    /// Reads bytes of a file's current state; returns how many there were.
    ///
    /// # Errors
    /// If there is no such file, or the device fails.
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

    /// The logical page of a file's page `page`; `None` in a hole, and after the last chunk.
    pub(super) fn place(&self, file: FileNo, page: u64) -> Result<Option<Lpn>, FilesError> {
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
    /// If there is no such file or no room, or the device fails. Some of the bytes may have been
    /// written.
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

    /// Writes bytes of which a part may become durable without the rest. The transaction is
    /// committed whenever it would have more than half the entries of the X-L2P table. So it can be
    /// of any size.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_in_parts(
        &mut self,
        file: FileNo,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FilesError> {
        let half = (self.ftl.config().table_capacity as usize / 2).max(2);
        // It may begin and end within pages.
        let part = (half / 2).max(1);
        for (number, data) in (0..).zip(data.chunks(part * self.layout.page_bytes)) {
            if self.size_of_transaction(file) + part + 1 > half {
                self.commit(file)?;
            }
            let begin = number * (part * self.layout.page_bytes) as u64;
            self.write(file, offset.saturating_add(begin), data)?;
        }
        Ok(())
    }

    /// The most pages that a file's transaction has, on the device and in memory.
    fn size_of_transaction(&self, file: FileNo) -> usize {
        let tid = self.joined.get(&file);
        let transaction = tid.and_then(|tid| self.transactions.get(tid));
        transaction.map_or(0, |one| one.on_device + one.pages.len())
    }

    /// Writes bytes that need not outlive the mount: see the module. Where that is not possible, it
    /// writes them like any others.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_lazily(
        &mut self,
        file: FileNo,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FilesError> {
        if self.lazy_writes == LazyWrites::Refused {
            return Err(FilesError::Refused);
        }
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

    /// Puts a page into a transaction: into memory, where another page makes room.
    fn put(&mut self, tid: Tid, lpn: Lpn, page: Vec<u8>) -> Result<(), FilesError> {
        self.overtake(tid, lpn);
        let pages = &mut self.transactions.entry(tid).or_default().pages;
        pages.insert(lpn, page);
        if pages.len() > PAGES_IN_MEMORY {
            self.write_first(tid)?;
        }
        Ok(())
    }

    /// The place of a file's page, in a new chunk if it had none.
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

    /// Zeroes the bytes after `bytes` in the last chunk that is kept.
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
                self.transactions.entry(tid).or_default().on_device += 1;
            }
        }
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
