//! The beginning of a run, and the checks at its end.

use crate::connection::{Connection, Stop};
use crate::history::History;
use crate::image::Memory;
use crate::kernel::Kernel;
use crate::order::Order;
use crate::script::{Checkpoint, EPILOGUE, Op, Script, Setting, Start};
use crate::world::{State, World};

/// A state in which runs begin.
pub struct Beginning {
    kernel: crate::kernel::Snapshot,
    memories: Vec<Memory>,
    connections: Vec<Connection>,
    history: History,
    script: Script,
}

impl World {
    /// Runs operations of a program while no other process runs.
    fn alone(&mut self, number: usize, ops: &[Op], setting: Setting) -> Result<(), Stop> {
        self.enter();
        self.current = number;
        for op in ops {
            let connection = &mut self.processes[number].connection;
            connection.perform(*op, self.mode, setting, &self.history)?;
        }
        Ok(())
    }

    /// Makes the state in which a script begins.
    ///
    /// # Errors
    /// The state cannot be made.
    pub fn prepare(&mut self, script: Script) -> Result<Beginning, Stop> {
        self.enter();
        self.kernel = Kernel {
            files: std::mem::take(&mut self.kernel.files),
            mutant: self.kernel.mutant,
            ..Kernel::default()
        };
        self.kernel.files.restore(&Default::default(), true);
        self.history.take();
        let mutant = self.kernel.mutant.take();
        for number in 0..self.processes.len() {
            self.bury(number);
        }
        self.current = 0;
        let count = script.programs.len();
        let setting = Setting {
            autocheckpoint: 0,
            ..script.setting
        };
        self.processes[0].connection.make(self.mode, setting)?;
        for number in 0..count {
            self.current = number;
            let connection = &mut self.processes[number].connection;
            if number > 0 {
                connection.open(self.mode, script.setting)?;
            } else {
                connection.set_autocheckpoint(script.setting.autocheckpoint);
            }
            connection.make_ready()?;
            self.alone(number, &[Op::Read(1)], setting)?;
        }
        let write = |rows| Op::Write(crate::history::Change { rows, inserts: 1 });
        let copy = Op::Checkpoint(Checkpoint::Passive);
        let (one, two) = (write(0b0011_0000), write(0b1100_0000));
        self.processes[0].connection.set_autocheckpoint(0);
        self.processes[1].connection.set_autocheckpoint(0);
        let ops: &[(usize, Op)] = match script.start {
            Start::Empty => &[],
            Start::Written => &[(0, one), (1, two)],
            Start::Copied => &[(0, one), (1, two), (0, copy)],
            Start::Half => &[(0, one), (0, copy), (1, two)],
        };
        if script.start == Start::Half {
            // A reader keeps the log from starting again.
            let reader = self.processes[1].connection;
            self.alone(0, &[one], setting)?;
            self.current = 1;
            reader.hold()?;
            self.alone(0, &[copy, two], setting)?;
            self.current = 1;
            reader.let_go()?;
        } else {
            for (number, op) in ops {
                self.alone(*number, &[*op], setting)?;
            }
        }
        for number in 0..count {
            self.alone(number, &[Op::Read(1)], setting)?;
            self.processes[number]
                .connection
                .set_autocheckpoint(script.setting.autocheckpoint);
        }
        self.kernel.mutant = mutant;
        Ok(Beginning {
            kernel: self.kernel.snapshot(),
            memories: self
                .processes
                .iter()
                .map(|process| process.image.snapshot())
                .collect(),
            connections: self
                .processes
                .iter()
                .map(|process| process.connection)
                .collect(),
            history: self.history.borrow().clone(),
            script,
        })
    }

    /// Runs a script in an order, and checks the files afterwards. `failure` holds the failure, if
    /// there was one.
    pub fn try_order(&mut self, beginning: &Beginning, order: &Order) {
        self.kernel.restore(&beginning.kernel, false);
        self.history.replace(beginning.history.clone());
        self.script = Some(beginning.script);
        // The other processes do not run.
        let count = beginning.script.programs.len();
        let parts = beginning.memories[..count]
            .iter()
            .zip(&beginning.connections);
        for (process, (memory, connection)) in self.processes.iter_mut().zip(parts) {
            process.image.restore(memory);
            process.connection = *connection;
            process.state = State::Ended;
            (process.was_killed, process.is_dead) = (false, false);
            process.is_in_memory = false;
        }
        for process in &mut self.processes[..beginning.script.programs.len()] {
            process.state = State::Ready;
        }
        self.order.clone_from(&order.0);
        (self.next_turn, self.wanted, self.step, self.current) = (0, None, 0, 0);
        self.choices.clear();
        self.failure = None;
        self.look_for_turn();
        self.run();
        if self.failure.is_none()
            && let Err(stop) = self.end(beginning.script.programs.len())
        {
            let message = match stop {
                Stop::Busy => "in the end the database is busy".to_owned(),
                Stop::Wrong(message) => format!("in the end: {message}"),
            };
            self.fail(&message);
        }
        for number in 0..self.processes.len() {
            let process = &mut self.processes[number];
            if let Some(mut thread) = process.thread.take() {
                // SAFETY: as in `bury`.
                unsafe { thread.force_reset() };
                process.stack = Some(thread.into_stack());
            }
        }
    }

    /// All programs have ended. The open connections read, and write once more. Then all processes
    /// die, and a new one reads the files.
    fn end(&mut self, count: usize) -> Result<(), Stop> {
        if !self.kernel.unknown.is_empty() {
            return Err(Stop::Wrong(format!(
                "unknown system calls: {:?}",
                self.kernel.unknown
            )));
        }
        self.enter();
        let setting = Setting::default();
        for number in 0..count {
            self.alone(number, &[Op::Read(1)], setting)?;
        }
        let writer = (0..count).find(|number| self.processes[*number].connection.is_open());
        if let Some(writer) = writer {
            self.alone(writer, EPILOGUE, setting)?;
        }
        for number in 0..count {
            self.alone(number, &[Op::Read(1)], setting)?;
        }
        for number in 0..count {
            self.kernel.death(number);
            self.history.borrow_mut().death(number);
        }
        self.current = 0;
        let process = &mut self.processes[0];
        process.image.restore(&process.fresh);
        let mut found = Connection::closed(process.image.api, 0);
        found.open(self.mode, setting)?;
        found.check_all(&self.history)
    }
}
