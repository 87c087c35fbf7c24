//! Virtual time: the time that the device would have taken.
//!
//! Nothing sleeps. The controller does one thing after the other. A die programs or erases by
//! itself, so that dies work at the same time; the channel to them carries one transfer at a time.
//! The controller waits for a die only when it needs it again, or when it must know that an
//! operation is done (`Clock::wait_for`). A die therefore works on at most one operation.
//!
//! With several requests in flight ([`crate::queue`]) the controller's time goes back to the moment
//! at which the next request begins. Earlier requests keep the times that they have: a die or
//! a channel is free when the last of them is done with it.

use super::geometry::Geometry;

/// Nanoseconds since the device was new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanoseconds(pub u64);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    now: u64,
    channels: Vec<u64>,
    dies: Vec<u64>,
    /// The end of each die's last program or erase.
    changes: Vec<u64>,
    /// When the page of each die's last program had arrived there.
    arrivals: Vec<u64>,
}

impl Clock {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            now: 0,
            channels: vec![0; geometry.channels as usize],
            dies: vec![0; geometry.dies() as usize],
            changes: vec![0; geometry.dies() as usize],
            arrivals: vec![0; geometry.dies() as usize],
        }
    }

    /// The controller's time.
    pub(crate) fn now(&self) -> Nanoseconds {
        Nanoseconds(self.now)
    }

    /// The controller waits until the die is free.
    pub(crate) fn wait_for(&mut self, die: u32) {
        self.now = self.now.max(self.dies[die as usize]);
    }

    /// The controller is at another moment, for another request.
    pub(crate) fn continue_at(&mut self, now: Nanoseconds) {
        self.now = now.0;
    }

    /// Whether the die programs or erases now.
    pub(crate) fn is_changing(&self, die: u32) -> bool {
        self.changes[die as usize] > self.now
    }

    /// The rest of the die's current operation.
    pub(crate) fn busy(&self, die: u32) -> u64 {
        self.dies[die as usize].saturating_sub(self.now)
    }

    /// Cells into the page register, and from there to the controller, which waits for it.
    pub(crate) fn read(&mut self, die: u32, channel: u32, read: u64, transfer: u64) {
        self.wait_for(die);
        let bus = &mut self.channels[channel as usize];
        let end = (self.now + read).max(*bus) + transfer;
        *bus = end;
        self.dies[die as usize] = end;
        self.now = end;
    }

    /// Cells into the page register, by the die alone. The die is idle.
    pub(crate) fn load(&mut self, die: u32, read: u64) {
        self.wait_for(die);
        self.dies[die as usize] = self.now + read;
    }

    /// The page register to the controller, which waits for it.
    pub(crate) fn transfer(&mut self, die: u32, channel: u32, transfer: u64) {
        self.read(die, channel, 0, transfer);
    }

    /// A transfer to the page register, which the controller waits for. Then the die works alone.
    pub(crate) fn program(&mut self, die: u32, channel: u32, transfer: u64, program: u64) {
        self.wait_for(die);
        self.program_with_last(die, channel, transfer, program);
    }

    /// Whether the controller has done nothing since it sent the die a page to program.
    pub(crate) fn has_just_sent(&self, die: u32) -> bool {
        self.arrivals[die as usize] == self.now
    }

    /// A transfer right after the one of the last program; then the die programs both pages.
    pub(crate) fn program_with_last(
        &mut self,
        die: u32,
        channel: u32,
        transfer: u64,
        program: u64,
    ) {
        let bus = &mut self.channels[channel as usize];
        let moved = self.now.max(*bus) + transfer;
        *bus = moved;
        self.now = moved;
        self.arrivals[die as usize] = moved;
        self.dies[die as usize] = moved + program;
        self.changes[die as usize] = moved + program;
    }

    /// The die works alone.
    pub(crate) fn erase(&mut self, die: u32, erase: u64) {
        self.wait_for(die);
        self.dies[die as usize] = self.now + erase;
        self.changes[die as usize] = self.now + erase;
    }

    /// Time in which the device has nothing to do.
    pub(crate) fn pass(&mut self, nanoseconds: u64) {
        self.now += nanoseconds;
    }
}
