//! Files and their names. Each change is a transaction by itself, done when the call returns.

use super::layout::{ChunkNo, Inode, MAX_NAME};
use super::{FileNo, Files, FilesError};
use crate::ftl::Tid;

impl Files {
    /// Names and files.
    pub fn list(&self) -> impl Iterator<Item = (&[u8], FileNo)> {
        self.current
            .iter()
            .map(|(file, inode)| (inode.name.as_slice(), *file))
    }

    /// The file of a name.
    ///
    /// # Errors
    /// If there is none.
    pub fn lookup(&self, name: &[u8]) -> Result<FileNo, FilesError> {
        let mut files = self.list();
        files
            .find(|(known, _)| *known == name)
            .map(|(_, file)| file)
            .ok_or(FilesError::NotFound)
    }

    /// Makes an empty file, durably.
    ///
    /// # Errors
    /// If a file has that name, or no inode is free.
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

    /// Removes a file, durably, with all that was written to it.
    ///
    /// # Errors
    /// If there is no such file, it shares a transaction with others, or the device fails.
    pub fn remove(&mut self, file: FileNo) -> Result<(), FilesError> {
        self.inode(file)?;
        self.check_alone(file)?;
        self.abort(file)?;
        self.change_inodes(&[(file, None)])?;
        let inode = self.current.remove(&file).unwrap_or_default();
        self.give_back(inode.chunks.into_iter().flatten().collect())
    }

    /// Gives a file another name, durably. A file that has that name is removed in the same
    /// transaction.
    ///
    /// # Errors
    /// If there is no such file, the removed one shares a transaction with others, or the device
    /// fails.
    pub fn rename(&mut self, file: FileNo, name: &[u8]) -> Result<(), FilesError> {
        self.rename_over(file, name, None)
    }

    /// The same, but a file that has that name gets another one and keeps its uncommitted writes.
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
                self.check_alone(old)?;
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
        // Not its own uncommitted inode, if that is on the device already: that is written at
        // commit.
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

    /// Checks that an abort of a file's transaction takes nothing from other files.
    fn check_alone(&self, file: FileNo) -> Result<(), FilesError> {
        match self.sharing(file).len() {
            1 => Ok(()),
            _ => Err(FilesError::Busy),
        }
    }

    /// Changes inodes in a separate transaction.
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

    /// The content of these chunks is not needed any more: they are free when that is durable.
    pub(super) fn give_back(&mut self, chunks: Vec<ChunkNo>) -> Result<(), FilesError> {
        let mut are_blank = true;
        for chunk in &chunks {
            for lpn in self.layout.pages_of(*chunk) {
                self.lazy.remove(&lpn);
                are_blank &= self.ftl.is_blank(lpn);
                self.ftl.trim(lpn)?;
            }
        }
        if !are_blank {
            self.ftl.flush()?;
        }
        self.free.extend(chunks);
        Ok(())
    }
}

fn check_name(name: &[u8]) -> Result<(), FilesError> {
    match (1..=MAX_NAME).contains(&name.len()) {
        true => Ok(()),
        false => Err(FilesError::Name),
    }
}
