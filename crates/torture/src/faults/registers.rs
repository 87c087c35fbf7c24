//! The registers of a traced thread that makes a system call. Only this module of the tracer
//! depends on the processor.
//!
//! x86-64 and 64-bit ARM have a tracer. On other processors [`Registers::of`] fails, and
//! `onewrite-torture faults` reports this before it begins.

use nix::unistd::Pid;

/// Whether this processor has a tracer.
pub const ARE_KNOWN: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
type Set = nix::libc::user_regs_struct;

/// See the module.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub struct Registers(Set);

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Registers {
    /// Reads the registers of a stopped thread.
    pub fn of(pid: Pid) -> nix::Result<Self> {
        nix::sys::ptrace::getregs(pid).map(Self)
    }

    /// Writes the registers back.
    pub fn store(&self, pid: Pid) -> nix::Result<()> {
        nix::sys::ptrace::setregs(pid, self.0)
    }
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// The call's number.
    pub fn number(&self) -> i64 {
        self.0.orig_rax.cast_signed()
    }

    /// Its arguments.
    pub fn arguments(&self) -> [u64; 6] {
        let Set {
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..
        } = self.0;
        [rdi, rsi, rdx, r10, r8, r9]
    }

    /// Changes one of the arguments.
    pub fn set_argument(&mut self, at: usize, value: u64) {
        let Set {
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..
        } = &mut self.0;
        *[rdi, rsi, rdx, r10, r8, r9][at] = value;
    }

    /// After the call: gives the arguments their values back. The kernel preserves these registers,
    /// and code with the call inline uses them again.
    pub fn restore_arguments(&mut self, arguments: [u64; 6]) {
        for (at, value) in arguments.into_iter().enumerate() {
            self.set_argument(at, value);
        }
    }

    /// Changes the call's result.
    pub fn set_result(&mut self, result: i64) {
        self.0.rax = result.cast_unsigned();
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    /// The call's number.
    pub fn number(&self) -> i64 {
        self.0.regs[8].cast_signed()
    }

    /// Its arguments.
    pub fn arguments(&self) -> [u64; 6] {
        std::array::from_fn(|at| self.0.regs[at])
    }

    /// Changes one of the arguments.
    pub fn set_argument(&mut self, at: usize, value: u64) {
        self.0.regs[at] = value;
    }

    /// After the call: gives the arguments their values back, but the first, whose register has the
    /// result. The kernel preserves these registers, and code with the call inline uses them again.
    pub fn restore_arguments(&mut self, arguments: [u64; 6]) {
        self.0.regs[1..6].copy_from_slice(&arguments[1..]);
    }

    /// Changes the call's result.
    pub fn set_result(&mut self, result: i64) {
        self.0.regs[0] = result.cast_unsigned();
    }
}

/// No registers can be read.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub enum Registers {}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Registers {
    /// Always fails.
    pub fn of(_: Pid) -> nix::Result<Self> {
        Err(nix::errno::Errno::ENOSYS)
    }

    /// Never called, like all that follow.
    pub fn store(&self, _: Pid) -> nix::Result<()> {
        match *self {}
    }

    /// See above.
    pub fn number(&self) -> i64 {
        match *self {}
    }

    /// See above.
    pub fn arguments(&self) -> [u64; 6] {
        match *self {}
    }

    /// See above.
    pub fn set_argument(&mut self, _: usize, _: u64) {
        match *self {}
    }

    /// See above.
    pub fn restore_arguments(&mut self, _: [u64; 6]) {
        match *self {}
    }

    /// See above.
    pub fn set_result(&mut self, _: i64) {
        match *self {}
    }
}
