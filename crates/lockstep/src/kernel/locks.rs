//! Locks on bytes of files, as in fcntl(2): of processes, and of open files.

use super::files::Inode;

/// The holder of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A process, for POSIX locks.
    Process(u8),
    /// An open file description.
    Description(u32),
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    inode: Inode,
    from: u64,
    to: u64,
    is_exclusive: bool,
    owner: Owner,
}

/// See the module.
#[derive(Clone, Default)]
pub struct Locks(Vec<Lock>);

impl Locks {
    /// The holder of a conflicting lock.
    pub fn conflict(
        &self,
        inode: Inode,
        (from, to): (u64, u64),
        is_exclusive: bool,
        owner: Owner,
    ) -> Option<(Owner, bool)> {
        let stands = |lock: &&Lock| {
            lock.inode == inode
                && lock.from < to
                && from < lock.to
                && lock.owner != owner
                && (lock.is_exclusive || is_exclusive)
        };
        let found = self.0.iter().find(stands);
        found.map(|lock| (lock.owner, lock.is_exclusive))
    }

    /// Sets the lock of `owner` on these bytes; `None` releases them. Returns whether this released
    /// something.
    pub fn set(
        &mut self,
        inode: Inode,
        (from, to): (u64, u64),
        is_exclusive: Option<bool>,
        owner: Owner,
    ) -> bool {
        let mut rest = Vec::new();
        let before = self.0.len();
        self.0.retain(|lock| {
            let is_met =
                lock.inode == inode && lock.owner == owner && lock.from < to && from < lock.to;
            if is_met {
                if lock.from < from {
                    rest.push(Lock { to: from, ..*lock });
                }
                if lock.to > to {
                    rest.push(Lock { from: to, ..*lock });
                }
            }
            !is_met
        });
        let has_released = self.0.len() != before;
        self.0.append(&mut rest);
        if let Some(is_exclusive) = is_exclusive {
            self.0.push(Lock {
                inode,
                from,
                to,
                is_exclusive,
                owner,
            });
        }
        has_released
    }

    /// Releases the locks of `owner`, on one file or on all.
    pub fn release(&mut self, inode: Option<Inode>, owner: Owner) {
        self.0
            .retain(|lock| lock.owner != owner || inode.is_some_and(|inode| lock.inode != inode));
    }

    /// Whether `owner` holds any of these bytes.
    pub fn holds(&self, inode: Inode, (from, to): (u64, u64), owner: Owner) -> bool {
        self.0.iter().any(|lock| {
            lock.inode == inode && lock.owner == owner && lock.from < to && from < lock.to
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Inode = Inode(1);
    const ONE: Owner = Owner::Process(1);
    const TWO: Owner = Owner::Description(2);

    #[test]
    fn an_exclusive_lock_keeps_others_out_until_its_bytes_are_released() {
        let mut locks = Locks::default();
        locks.set(FILE, (10, 20), Some(true), ONE);
        assert!(locks.conflict(FILE, (19, 20), false, TWO).is_some());
        assert!(locks.conflict(FILE, (19, 20), true, ONE).is_none());
        assert!(locks.conflict(Inode(2), (19, 20), true, TWO).is_none());
        assert!(locks.set(FILE, (12, 15), None, ONE));
        assert!(locks.conflict(FILE, (12, 15), true, TWO).is_none());
        assert!(locks.conflict(FILE, (11, 12), true, TWO).is_some());
        assert!(locks.conflict(FILE, (15, 16), true, TWO).is_some());
    }

    #[test]
    fn shared_locks_stand_next_to_each_other() {
        let mut locks = Locks::default();
        locks.set(FILE, (0, 1), Some(false), ONE);
        assert!(locks.conflict(FILE, (0, 1), false, TWO).is_none());
        assert!(locks.conflict(FILE, (0, 1), true, TWO).is_some());
        locks.release(Some(FILE), ONE);
        assert!(locks.conflict(FILE, (0, 1), true, TWO).is_none());
    }
}
