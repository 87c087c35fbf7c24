//! Processes in lock-step. One process runs at a time. At every step that others could notice, the
//! order decides which one continues.
//!
//! All run on one thread, each on a stack of its own. A step is a system call on a file of the
//! database, or an access to the wal-index that `scripts/lockstep` has marked in SQLite's source.

use crate::connection::{Connection, Ledger, Stop};
use crate::image::{Image, Memory};
use crate::kernel::calls::{Arguments, Outcome};
use crate::kernel::{Kernel, PROCESSES};
use crate::mode::Mode;
use crate::order::Turn;
use crate::script::{NEXT_LIFE, Op, Script, Setting};
use crate::steps;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use libc::c_long;
use std::ptr;

/// A run with more steps counts as stuck.
const MOST_STEPS: u32 = 30_000;
/// Nanoseconds that a step takes.
const STEP_NANOSECONDS: u64 = 20_000;
/// The number of a step in memory, as in `c/guest.c`.
pub const MEMORY: i64 = 10_001;

/// The number of a barrier, among the places in memory.
pub const BARRIER: i64 = 1;

type Thread = Coroutine<(), (), (), DefaultStack>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Ready,
    /// Until another process releases a lock.
    Blocked,
    Asleep {
        until: u64,
        word: Option<u64>,
    },
    Ended,
}

pub struct Process {
    pub image: Image,
    /// The memory without an open connection.
    pub fresh: Memory,
    pub connection: Connection,
    pub state: State,
    woken: bool,
    /// The next step of the process is one in memory.
    pub is_in_memory: bool,
    pub thread: Option<Thread>,
    pub stack: Option<DefaultStack>,
    yielder: *const Yielder<(), ()>,
    pub was_killed: bool,
    /// The process was killed, and its next life has not begun.
    pub is_dead: bool,
}

/// The alternatives at a step.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The process that was about to make the step.
    pub current: u8,
    /// The processes that could continue instead, as bits.
    pub runnable: u8,
    /// Whether the current process could be killed here.
    pub may_kill: bool,
}

/// All state of a run, and of the beginning that it starts from.
pub struct World {
    pub kernel: Kernel,
    pub processes: Vec<Process>,
    pub current: usize,
    is_scheduling: bool,
    pub order: Vec<(u32, Turn)>,
    pub next_turn: usize,
    pub wanted: Option<usize>,
    pub step: u32,
    /// The choices, by step.
    pub choices: Vec<Choice>,
    /// Processes may also be killed in the middle of their accesses to memory.
    pub kills_in_memory: bool,
    pub trace: Option<Vec<String>>,
    pub history: Ledger,
    pub failure: Option<String>,
    pub mode: Mode,
    pub script: Option<Script>,
}

/// The world that images call into. There is one thread.
static mut WORLD: *mut World = ptr::null_mut();

extern "C" fn host(
    nr: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // SAFETY: set for as long as images run. No borrow of the world is kept over a switch of
    // stacks.
    unsafe { World::call(WORLD, nr, &[a, b, c, d, e, f]) }
}

/// The function that images get.
pub fn host_function() -> crate::image::Host {
    host
}

impl World {
    /// Loads the images.
    ///
    /// # Errors
    /// An image cannot be loaded.
    pub fn new(library: &std::path::Path, mode: Mode) -> std::io::Result<Box<World>> {
        let mut world = Box::new(World {
            kernel: Kernel::default(),
            processes: Vec::new(),
            current: 0,
            is_scheduling: false,
            order: Vec::new(),
            next_turn: 0,
            wanted: None,
            step: 0,
            choices: Vec::new(),
            kills_in_memory: false,
            trace: None,
            history: Ledger::default(),
            failure: None,
            mode,
            script: None,
        });
        // SAFETY: the box does not move, and worlds are made one after the other.
        unsafe { WORLD = &raw mut *world };
        for number in 0..PROCESSES {
            let mut image = Image::load(library, host_function())?;
            world.current = number;
            // SAFETY: a function of the image.
            let code = unsafe { (image.api.register)(i32::from(mode.is_ours())) };
            if code != 0 {
                return Err(std::io::Error::other(format!("cannot register: {code}")));
            }
            image.find_areas();
            let fresh = image.snapshot();
            world.processes.push(Process {
                connection: Connection::closed(image.api, number),
                image,
                fresh,
                state: State::Ended,
                woken: false,
                is_in_memory: false,
                thread: None,
                stack: Some(DefaultStack::new(512 << 10)?),
                yielder: ptr::null(),
                was_killed: false,
                is_dead: false,
            });
        }
        Ok(world)
    }

    /// Bytes of memory that are restored for each order.
    pub fn memory(&self) -> usize {
        self.processes
            .iter()
            .map(|process| process.image.size())
            .sum()
    }

    pub fn sqlite_version(&self) -> String {
        // SAFETY: a function of the image, which returns a C string.
        unsafe {
            let version = (self.processes[0].image.api.version)();
            std::ffi::CStr::from_ptr(version)
                .to_string_lossy()
                .into_owned()
        }
    }

    // ---- Calls of images ----

    unsafe fn call(this: *mut World, nr: i64, a: &Arguments) -> i64 {
        // SAFETY: by `host`.
        unsafe {
            if (*this).is_scheduling && steps::is_shared(&(*this).kernel, (*this).current, nr, a) {
                World::make_step(this, nr, a);
            }
            if nr == MEMORY {
                return 0;
            }
            loop {
                let world = &mut *this;
                let process = world.current;
                match world.kernel.call(process, nr, a) {
                    Outcome::Done(result) => {
                        world.after(nr);
                        if let Some(trace) = &mut world.trace
                            && world.is_scheduling
                            && result < 0
                        {
                            trace.push(format!("        = {result}"));
                        }
                        return result;
                    }
                    Outcome::Wakes { word, most } => return world.wake(word, most),
                    Outcome::Blocked if !world.is_scheduling => return -i64::from(libc::EDEADLK),
                    Outcome::Blocked => {
                        world.processes[process].state = State::Blocked;
                        World::let_go(this);
                    }
                    Outcome::Asleep {
                        nanoseconds,
                        word,
                        result,
                    } => {
                        let until = world.kernel.tables.clock.saturating_add(nanoseconds);
                        if !world.is_scheduling {
                            world.kernel.tables.clock =
                                until.min(world.kernel.tables.clock + 1_000_000_000);
                            return result;
                        }
                        world.processes[process].woken = false;
                        world.processes[process].state = State::Asleep { until, word };
                        World::let_go(this);
                        return if (&(*this).processes)[process].woken {
                            0
                        } else {
                            result
                        };
                    }
                }
            }
        }
    }

    fn after(&mut self, nr: i64) {
        if matches!(nr, libc::SYS_fcntl | libc::SYS_close) {
            for process in &mut self.processes {
                if process.state == State::Blocked {
                    process.state = State::Ready;
                }
            }
        }
    }

    fn wake(&mut self, word: u64, most: u64) -> i64 {
        let mut woken = 0;
        for process in &mut self.processes {
            if let State::Asleep {
                word: Some(its), ..
            } = process.state
                && its == word
                && woken < most
            {
                (process.state, process.woken) = (State::Ready, true);
                woken += 1;
            }
        }
        woken as i64
    }

    // ---- Steps ----

    /// The processes that could continue now, as bits. They include sleeping ones, because other
    /// processes may be slow.
    fn runnable(&self) -> u8 {
        let can = |(number, process): (usize, &Process)| match process.state {
            State::Ready | State::Asleep { .. } => 1 << number,
            State::Blocked | State::Ended => 0,
        };
        self.processes.iter().enumerate().map(can).sum()
    }

    /// A step is about to happen; maybe other processes continue first.
    unsafe fn make_step(this: *mut World, nr: i64, a: &Arguments) {
        // SAFETY: by `host`.
        let world = unsafe { &mut *this };
        world.kernel.tables.clock += STEP_NANOSECONDS;
        let current = world.current;
        if let Some(trace) = &mut world.trace {
            let what = steps::describe(&world.kernel, current, nr, a);
            trace.push(format!("{:5} P{current} {what}", world.step + 1));
        }
        // The barrier stands between the two copies of a header. A process that finds only one of
        // them recovers.
        world.processes[current].is_in_memory = nr == MEMORY && a[0] != BARRIER;
        let mut must_switch = world.look_for_turn();
        if world.step > MOST_STEPS {
            world.fail("no progress: too many steps");
            must_switch = true;
        }
        if must_switch {
            // SAFETY: as above.
            unsafe { World::let_go(this) };
        }
    }

    /// Counts a step, and applies the turns that the order has for it. Returns whether the current
    /// process must stop here.
    pub fn look_for_turn(&mut self) -> bool {
        self.step += 1;
        let runnable = self.runnable();
        self.choices.push(Choice {
            current: self.current as u8,
            runnable,
            may_kill: self.may_kill(self.current),
        });
        let mut must_switch = false;
        while let Some(&(step, turn)) = self.order.get(self.next_turn)
            && step <= self.step
        {
            self.next_turn += 1;
            match turn {
                Turn::To(process) if runnable & 1 << process != 0 => {
                    self.wanted = Some(process.into());
                    must_switch |= usize::from(process) != self.current;
                }
                Turn::Kill(process) => must_switch |= self.kill(process.into()),
                Turn::To(_) => {}
            }
        }
        must_switch
    }

    fn may_kill(&self, number: usize) -> bool {
        self.processes.get(number).is_some_and(|process| {
            process.state != State::Ended
                && !process.was_killed
                && (self.kills_in_memory || !process.is_in_memory)
        })
    }

    /// Kills a process. Returns whether it is the current one.
    fn kill(&mut self, number: usize) -> bool {
        if !self.may_kill(number) {
            return false;
        }
        if let Some(trace) = &mut self.trace {
            trace.push(format!("      P{number} is killed"));
        }
        self.kernel.death(number);
        self.after(libc::SYS_close);
        self.history.borrow_mut().death(number);
        let process = &mut self.processes[number];
        process.was_killed = true;
        process.is_dead = true;
        // Its next life begins on its next turn.
        process.state = State::Ready;
        number == self.current
    }

    /// Switches to the scheduler.
    unsafe fn let_go(this: *mut World) {
        // SAFETY: by `host`. This code runs on the stack of the current process.
        unsafe {
            let world = &*this;
            let yielder = world.processes[world.current].yielder;
            (*yielder).suspend(());
        }
    }

    pub fn fail(&mut self, message: &str) {
        if self.failure.is_none() {
            if let Some(trace) = &mut self.trace {
                trace.push(format!("      {message}"));
            }
            self.failure = Some(message.to_owned());
        }
    }

    /// From now on images call this world, through this reference.
    pub fn enter(&mut self) -> *mut World {
        let this: *mut World = self;
        // SAFETY: there is one thread.
        unsafe { WORLD = this };
        this
    }

    // ---- The scheduler ----

    /// The process that continues next: the wanted one, or the next one that can.
    fn next(&mut self) -> Option<usize> {
        if let Some(wanted) = self.wanted.take() {
            return Some(wanted);
        }
        let count = self.processes.len();
        let in_turn = || (0..count).map(|by| (self.current + by) % count);
        let ready = in_turn().find(|number| self.processes[*number].state == State::Ready);
        let wakes = |number: &usize| match self.processes[*number].state {
            State::Asleep { until, .. } => until,
            _ => u64::MAX,
        };
        let asleep = in_turn().filter(|number| wakes(number) < u64::MAX);
        ready.or_else(|| asleep.min_by_key(wakes))
    }

    /// Runs the programs to their ends.
    pub fn run(&mut self) {
        let this = self.enter();
        // SAFETY: a world of this thread. Only this function switches to the threads of processes.
        unsafe {
            (*this).is_scheduling = true;
            while (*this).failure.is_none() {
                let Some(number) = (*this).next() else {
                    if (*this)
                        .processes
                        .iter()
                        .any(|process| process.state == State::Blocked)
                    {
                        (*this).fail("everybody waits for a lock");
                    }
                    break;
                };
                World::resume(this, number);
            }
            (*this).is_scheduling = false;
        }
    }

    unsafe fn resume(this: *mut World, number: usize) {
        // SAFETY: by `run`.
        unsafe {
            let world = &mut *this;
            if let State::Asleep { until, .. } = world.processes[number].state {
                world.kernel.tables.clock = world.kernel.tables.clock.max(until);
            }
            world.current = number;
            world.processes[number].state = State::Ready;
            if std::mem::take(&mut world.processes[number].is_dead) {
                world.bury(number);
            }
            if world.processes[number].thread.is_none() {
                world.start(number);
            }
            let Some(thread) = &mut (&mut (*this).processes)[number].thread else {
                return;
            };
            if let CoroutineResult::Return(()) = thread.resume(()) {
                let process = &mut (&mut (*this).processes)[number];
                process.state = State::Ended;
                process.stack = process.thread.take().map(Coroutine::into_stack);
                return;
            }
            // The process waits, or another one's turn has come. Waiting counts as a step, too.
            let world = &mut *this;
            let waits = !matches!(world.processes[number].state, State::Ready | State::Ended);
            if waits {
                if let Some(trace) = &mut world.trace {
                    trace.push(format!("      P{number} waits"));
                }
                world.look_for_turn();
            }
        }
    }

    /// Drops the rest of a killed process and gives it fresh memory.
    pub fn bury(&mut self, number: usize) {
        let process = &mut self.processes[number];
        if let Some(mut thread) = process.thread.take() {
            // SAFETY: nothing of the thread is used again. Its memory is restored; values of the
            // host on its stack leak.
            unsafe { thread.force_reset() };
            process.stack = Some(thread.into_stack());
        }
        process.image.restore(&process.fresh);
        process.connection = Connection::closed(process.image.api, number);
    }

    fn start(&mut self, number: usize) {
        let (mode, script) = (self.mode, self.script.expect("a script"));
        let process = &mut self.processes[number];
        let program = match process.was_killed {
            true => NEXT_LIFE,
            false => script.programs[number],
        };
        let stack = process.stack.take().expect("a stack");
        process.thread = Some(Coroutine::with_stack(stack, move |yielder, ()| {
            // SAFETY: the world outlives every thread of it.
            unsafe {
                let this = WORLD;
                (&mut (*this).processes)[number].yielder = yielder;
                World::live(this, number, program, mode, script.setting);
            }
        }));
    }

    unsafe fn live(
        this: *mut World,
        number: usize,
        program: &'static [Op],
        mode: Mode,
        setting: Setting,
    ) {
        for op in program {
            // SAFETY: by `start`. Only this process borrows its connection. The history is borrowed
            // for moments only.
            unsafe {
                if let Some(trace) = &mut (*this).trace {
                    trace.push(format!("      P{number}: {op:?}"));
                }
                let history = &raw const (*this).history;
                let connection = &raw mut (&mut (*this).processes)[number].connection;
                let done = (*connection).perform(*op, mode, setting, &*history);
                if let Err(Stop::Wrong(message)) = done {
                    (*this).fail(&message);
                    return;
                }
            }
        }
    }
}
