//! The processes of the races, seen from the orchestrator: scripts go in, replies come out.

use super::scripts::{OURS, SHELL, STOCK, Script};
use crate::database::{Database, Engine};
use crate::failure::{Failure, Promise};
use crate::model::WriterId;
use crate::processes::this_program;
use crate::random::Random;
use crate::scripted::{Outcome, Reply, Step};
use crate::session::shell;
use crate::setup::{Setup, SetupArguments, TestDatabase};
use crate::workers::WorkerArguments;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The time limit of a script. SQLite waits for a lock for 5 ms in these processes, so a longer
/// script counts as hung.
const SCRIPT_LIMIT: Duration = Duration::from_secs(60);

/// One process.
struct Process {
    child: Child,
    input: ChildStdin,
    replies: Receiver<String>,
}

impl Process {
    fn start(arguments: &[String], setup: &Setup) -> Result<Self, Failure> {
        let mut child = this_program(arguments, &setup.log())?
            .stdin(std::process::Stdio::piped())
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::Harness("a worker without pipes".to_owned()));
        };
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            child,
            input,
            replies,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a script.
#[derive(Debug)]
pub enum Answer {
    /// The process lives and replies.
    Reply(Reply),
    /// The process has died, as the script demanded.
    Died,
}

/// All processes of a run on one database.
pub struct Processes<'a> {
    setup: &'a Setup,
    arguments: &'a SetupArguments,
    test: TestDatabase,
    seeds: Random,
    processes: Vec<Option<Process>>,
}

impl<'a> Processes<'a> {
    /// The processes that will use `test`. Each starts when it is first needed.
    pub fn new(
        setup: &'a Setup,
        arguments: &'a SetupArguments,
        test: TestDatabase,
        seeds: Random,
    ) -> Self {
        let count = if shell::is_installed() {
            SHELL + 1
        } else {
            SHELL
        };
        let processes = std::iter::repeat_with(|| None).take(count).collect();
        Self {
            setup,
            arguments,
            test,
            seeds,
            processes,
        }
    }

    /// The number of processes.
    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// Whether there are no processes.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// The database under test.
    pub fn test(&self) -> &TestDatabase {
        &self.test
    }

    /// The stock processes.
    pub fn stock(&self) -> impl Iterator<Item = usize> {
        STOCK
            .into_iter()
            .chain((self.processes.len() > SHELL).then_some(SHELL))
    }

    /// The SQLite of process `process`.
    pub fn engine(&self, process: usize) -> Engine {
        match process {
            SHELL => Engine::Shell,
            process if OURS.contains(&process) => self.arguments.engine,
            _ => Engine::Stock,
        }
    }

    /// A name for messages.
    pub fn name(&self, process: usize) -> String {
        let side = if OURS.contains(&process) {
            "ours"
        } else {
            "stock"
        };
        format!("process {process} ({side}, {:?})", self.engine(process))
    }

    fn start(&mut self, process: usize) -> Result<Process, Failure> {
        let worker = WorkerArguments {
            database: Database {
                engine: self.engine(process),
                mode: None,
                group_synch: None,
                checkpoint: None,
                busy_timeout: 5,
                ..self.test.connection(self.arguments)
            },
            ledgers: self.test.ledgers.clone(),
            seed: self.seeds.next(),
        };
        Process::start(
            &worker.scripted_arguments(WriterId(process as u32)),
            self.setup,
        )
    }

    /// Sends a script.
    ///
    /// # Errors
    /// Errors of the harness.
    pub fn send(&mut self, script: &Script) -> Result<(), Failure> {
        let mut running = match self.processes[script.process].take() {
            Some(running) => running,
            None => self.start(script.process)?,
        };
        let line = format!("{}\n", serde_json::json!(script.steps));
        running.input.write_all(line.as_bytes()).map_err(|error| {
            Failure::Harness(format!(
                "{} takes no script: {error}",
                self.name(script.process)
            ))
        })?;
        self.processes[script.process] = Some(running);
        Ok(())
    }

    /// Waits for the result of the script sent to `process`.
    ///
    /// # Errors
    /// The failure that the process has found, or that it hangs.
    pub fn receive(&mut self, process: usize) -> Result<Answer, Failure> {
        let Some(running) = &mut self.processes[process] else {
            return Err(Failure::Harness(format!(
                "process {process} was sent no script"
            )));
        };
        match running.replies.recv_timeout(SCRIPT_LIMIT) {
            Ok(line) => serde_json::from_str(&line)
                .map(Answer::Reply)
                .map_err(|error| {
                    Failure::Harness(format!("{} said {line:?}: {error}", self.name(process)))
                }),
            Err(RecvTimeoutError::Timeout) => {
                let detail = format!(
                    "{} hangs: no reply for {SCRIPT_LIMIT:?}",
                    self.name(process)
                );
                Err(Failure::broken(Promise::Progress, detail))
            }
            Err(RecvTimeoutError::Disconnected) => {
                // The pipe closes a moment before the process is gone, with all of its locks.
                let status = running.child.wait()?;
                self.processes[process] = None;
                expect_killed(&self.name(process), status)
            }
        }
    }

    /// Plays scripts at once.
    ///
    /// # Errors
    /// The failure that is found.
    pub fn at_once(&mut self, scripts: &[Script]) -> Result<Vec<(usize, Answer)>, Failure> {
        scripts.iter().try_for_each(|script| self.send(script))?;
        scripts
            .iter()
            .map(|script| Ok((script.process, self.receive(script.process)?)))
            .collect()
    }

    /// Plays one script by itself.
    ///
    /// # Errors
    /// The failure that is found.
    pub fn run(&mut self, process: usize, steps: &[Step]) -> Result<Answer, Failure> {
        self.send(&Script {
            process,
            steps: steps.to_vec(),
        })?;
        self.receive(process)
    }

    /// Closes every connection that is open.
    ///
    /// # Errors
    /// The failure that is found.
    pub fn close_all(&mut self, processes: impl Iterator<Item = usize>) -> Result<(), Failure> {
        for process in processes {
            if self.processes[process].is_none() {
                continue;
            }
            if let Answer::Reply(reply) = self.run(process, &[Step::Close])? {
                expect_all_done(&self.name(process), &reply)?;
            }
        }
        Ok(())
    }
}

fn expect_killed(name: &str, status: std::process::ExitStatus) -> Result<Answer, Failure> {
    use std::os::unix::process::ExitStatusExt;
    if status.signal() == Some(rustix::process::Signal::KILL.as_raw()) {
        return Ok(Answer::Died);
    }
    let detail = format!("{name} ended with {status}; its words are in the workers' log");
    Err(Failure::broken(Promise::NoOtherErrors, detail))
}

/// Requires that every step of a script was done.
///
/// # Errors
/// The first step that was not done.
pub fn expect_all_done(name: &str, reply: &Reply) -> Result<(), Failure> {
    for outcome in &reply.outcomes {
        match outcome {
            Outcome::Done => {}
            Outcome::Failed(failure) => return Err(failure.clone().at(name)),
            other => {
                let detail = format!("{name}: {other:?}, with nobody in the way");
                return Err(Failure::broken(Promise::NoOtherErrors, detail));
            }
        }
    }
    Ok(())
}
