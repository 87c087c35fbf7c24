//! The processes of the races, seen from the orchestrator: scripts go in, replies come out.

use super::scripts::{OURS, Part, SHELL, STOCK};
use crate::actor::{Outcome, Reply, Step};
use crate::database::{Database, Engine};
use crate::failure::{Failure, Promise};
use crate::model::WriterId;
use crate::processes::this_program;
use crate::random::Random;
use crate::session::shell;
use crate::setup::{Place, Setup, SetupArguments};
use crate::workers::WorkerArguments;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The time limit of a script. SQLite waits for a lock for 5 ms in these processes, so a longer
/// script counts as hung.
const SCRIPT_LIMIT: Duration = Duration::from_secs(60);

/// One process.
struct Player {
    child: Child,
    input: ChildStdin,
    replies: Receiver<String>,
}

impl Player {
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

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a script.
#[derive(Debug)]
pub enum Played {
    /// The process lives and replies.
    Reply(Reply),
    /// The process has died, as the script demanded.
    Died,
}

/// All processes of a run on one database.
pub struct Cast<'a> {
    setup: &'a Setup,
    arguments: &'a SetupArguments,
    place: Place,
    seeds: Random,
    players: Vec<Option<Player>>,
}

impl<'a> Cast<'a> {
    /// The processes that will play at `place`. Each starts when it is first needed.
    pub fn new(
        setup: &'a Setup,
        arguments: &'a SetupArguments,
        place: Place,
        seeds: Random,
    ) -> Self {
        let count = if shell::is_installed() {
            SHELL + 1
        } else {
            SHELL
        };
        let players = std::iter::repeat_with(|| None).take(count).collect();
        Self {
            setup,
            arguments,
            place,
            seeds,
            players,
        }
    }

    /// The number of processes.
    pub fn len(&self) -> usize {
        self.players.len()
    }

    /// Whether there are no processes.
    pub fn is_empty(&self) -> bool {
        self.players.is_empty()
    }

    /// The place of the database.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The stock processes.
    pub fn stock(&self) -> impl Iterator<Item = usize> {
        STOCK
            .into_iter()
            .chain((self.players.len() > SHELL).then_some(SHELL))
    }

    /// The SQLite of process `actor`.
    pub fn engine(&self, actor: usize) -> Engine {
        match actor {
            SHELL => Engine::Shell,
            actor if OURS.contains(&actor) => self.arguments.engine,
            _ => Engine::Stock,
        }
    }

    /// A name for messages.
    pub fn name(&self, actor: usize) -> String {
        let side = if OURS.contains(&actor) {
            "ours"
        } else {
            "stock"
        };
        format!("process {actor} ({side}, {:?})", self.engine(actor))
    }

    fn start(&mut self, actor: usize) -> Result<Player, Failure> {
        let worker = WorkerArguments {
            database: Database {
                engine: self.engine(actor),
                mode: None,
                group_synch: None,
                checkpoint: None,
                busy_timeout: 5,
                ..self.place.connection(self.arguments)
            },
            ledgers: self.place.ledgers.clone(),
            seed: self.seeds.next(),
        };
        Player::start(&worker.actor_arguments(WriterId(actor as u32)), self.setup)
    }

    /// Sends a script.
    ///
    /// # Errors
    /// Errors of the harness.
    pub fn send(&mut self, part: &Part) -> Result<(), Failure> {
        let mut player = match self.players[part.actor].take() {
            Some(player) => player,
            None => self.start(part.actor)?,
        };
        let line = format!("{}\n", serde_json::json!(part.steps));
        player.input.write_all(line.as_bytes()).map_err(|error| {
            Failure::Harness(format!(
                "{} takes no script: {error}",
                self.name(part.actor)
            ))
        })?;
        self.players[part.actor] = Some(player);
        Ok(())
    }

    /// Waits for the result of the script sent to `actor`.
    ///
    /// # Errors
    /// The failure that the process has found, or that it hangs.
    pub fn receive(&mut self, actor: usize) -> Result<Played, Failure> {
        let Some(player) = &mut self.players[actor] else {
            return Err(Failure::Harness(format!(
                "process {actor} was sent no script"
            )));
        };
        match player.replies.recv_timeout(SCRIPT_LIMIT) {
            Ok(line) => serde_json::from_str(&line)
                .map(Played::Reply)
                .map_err(|error| {
                    Failure::Harness(format!("{} said {line:?}: {error}", self.name(actor)))
                }),
            Err(RecvTimeoutError::Timeout) => {
                let detail = format!("{} hangs: no reply for {SCRIPT_LIMIT:?}", self.name(actor));
                Err(Failure::broken(Promise::Progress, detail))
            }
            Err(RecvTimeoutError::Disconnected) => {
                // The pipe closes a moment before the process is gone, with all of its locks.
                let status = player.child.wait()?;
                self.players[actor] = None;
                expect_killed(&self.name(actor), status)
            }
        }
    }

    /// Plays scripts at once.
    ///
    /// # Errors
    /// The failure that is found.
    pub fn at_once(&mut self, parts: &[Part]) -> Result<Vec<(usize, Played)>, Failure> {
        parts.iter().try_for_each(|part| self.send(part))?;
        parts
            .iter()
            .map(|part| Ok((part.actor, self.receive(part.actor)?)))
            .collect()
    }

    /// Plays one script by itself.
    ///
    /// # Errors
    /// The failure that is found.
    pub fn play(&mut self, actor: usize, steps: &[Step]) -> Result<Played, Failure> {
        self.send(&Part {
            actor,
            steps: steps.to_vec(),
        })?;
        self.receive(actor)
    }

    /// Closes every connection that is open.
    ///
    /// # Errors
    /// The failure that is found.
    pub fn close_all(&mut self, actors: impl Iterator<Item = usize>) -> Result<(), Failure> {
        for actor in actors {
            if self.players[actor].is_none() {
                continue;
            }
            if let Played::Reply(reply) = self.play(actor, &[Step::Close])? {
                expect_all_done(&self.name(actor), &reply)?;
            }
        }
        Ok(())
    }
}

fn expect_killed(name: &str, status: std::process::ExitStatus) -> Result<Played, Failure> {
    use std::os::unix::process::ExitStatusExt;
    if status.signal() == Some(rustix::process::Signal::KILL.as_raw()) {
        return Ok(Played::Died);
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
