//! Transactions of files: begun by the first write, ended by commit or abort, shared on demand.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::ChunkNo;
use super::{FileNo, Files, FilesError};
use crate::ftl::{Lpn, Tid};

/// The writes since the last commit.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) files: BTreeSet<FileNo>,
    /// Pages that are not on the device yet.
    pub(super) pages: BTreeMap<Lpn, Vec<u8>>,
    /// How often it has written or trimmed a page on the device: at least as many as its entries
    /// of the X-L2P table.
    pub(super) on_device: usize,
    /// Pages with the lazily written bytes applied.
    pub(super) lazy: BTreeMap<Lpn, Vec<u8>>,
    /// Pages that had lazily written bytes, and were then written.
    pub(super) overtaken: BTreeSet<Lpn>,
    /// Chunks that the transaction took.
    pub(super) taken: Vec<ChunkNo>,
    /// Chunks that are not needed once it is committed.
    pub(super) left: Vec<ChunkNo>,
}

impl Files {
    /// The files in a file's transaction; only the file itself, if it has none.
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

    /// The transaction of a file; begins one if there is none.
    pub(super) fn transaction_of(&mut self, file: FileNo) -> Tid {
        let tid = *self
            .joined
            .entry(file)
            .or_insert(Tid(u64::from(file.0) + 1));
        self.transactions.entry(tid).or_default().files.insert(file);
        tid
    }

    /// Puts two files into one transaction, with the writes of each.
    ///
    /// # Errors
    /// If there is no such file.
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
            on_device,
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
        transaction.on_device += on_device;
        transaction.lazy.extend(lazy);
        transaction.overtaken.extend(overtaken);
        transaction.taken.extend(taken);
        transaction.left.extend(left);
        Ok(())
    }

    /// fsync: commits the file's transaction, with all files that share it.
    ///
    /// # Errors
    /// If the X-L2P table has no room, and the transaction stays as it was; or if the device fails.
    pub fn commit(&mut self, file: FileNo) -> Result<(), FilesError> {
        self.inode(file)?;
        let Some(tid) = self.joined.get(&file).copied() else {
            return Ok(());
        };
        while self.write_first(tid)? {}
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
        // The transaction is durable whatever this returns. Chunks that cannot be given back now
        // are free after the next mount.
        let _ = self.give_back(done.left);
        Ok(())
    }

    /// Writes the first page of a transaction in memory to the device; `false` if there is none.
    /// The page stays in memory if that fails.
    pub(super) fn write_first(&mut self, tid: Tid) -> Result<bool, FilesError> {
        let transaction = self.transactions.entry(tid).or_default();
        let Some((lpn, page)) = transaction.pages.first_key_value() else {
            return Ok(false);
        };
        self.ftl.write_in(tid, *lpn, page)?;
        transaction.pages.pop_first();
        transaction.on_device += 1;
        Ok(true)
    }

    /// Drops the writes since the last commit, in all files that share the transaction.
    ///
    /// # Errors
    /// If there is no such file, or the device fails.
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
        // None of them was ever committed: they read as zeros, as before.
        self.free.extend(dropped.taken);
        Ok(())
    }
}
