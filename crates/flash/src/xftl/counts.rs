//! Counts of random runs.

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) operations: u64,
    pub(super) cuts: u64,
    pub(super) cuts_in_recovery: u64,
    pub(super) commits_in_doubt: u64,
    pub(super) commits: u64,
    /// Pages that one transaction took over from another.
    pub(super) merged: u64,
    pub(super) conflicts: u64,
    pub(super) table_full: u64,
    pub(super) failures: u64,
    pub(super) worn_out: u64,
    pub(super) devices: u64,
    pub(super) collected: u64,
    /// Devices that had too little time to move blocks, and lost a page to bit errors.
    pub(super) lost: u64,
    /// Pages that such devices have marked as lost, and gone on.
    pub(super) marked_lost: u64,
    /// Blocks moved because of bit errors.
    pub(super) scrubbed: u64,
    /// Pages that complete pairs.
    pub(super) padded: u64,
    /// Pieces of the map written back.
    pub(super) written_back: u64,
    /// Pages programmed together with another plane's.
    pub(super) multi_plane: u64,
}

impl Counts {
    /// One device more.
    pub(super) fn add(&mut self, life: Counts) {
        self.operations += life.operations;
        self.cuts += life.cuts;
        self.cuts_in_recovery += life.cuts_in_recovery;
        self.commits_in_doubt += life.commits_in_doubt;
        self.commits += life.commits;
        self.merged += life.merged;
        self.conflicts += life.conflicts;
        self.table_full += life.table_full;
        self.failures += life.failures;
        self.worn_out += life.worn_out;
        self.devices += life.devices;
        self.collected += life.collected;
        self.lost += life.lost;
        self.marked_lost += life.marked_lost;
        self.scrubbed += life.scrubbed;
        self.padded += life.padded;
        self.written_back += life.written_back;
        self.multi_plane += life.multi_plane;
    }
}
