//! The workers: one place each, with one process after the other.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use onewrite_torture::random::Random;
use rustix::process::{Pid, Signal, kill_process};

use super::clocks::Clocks;
use super::job::Job;
use super::programs::Program;

/// A place of the fleet.
struct Place {
    program: Program,
    child: Option<Child>,
    /// When it gets SIGCONT.
    stopped_until: Option<Instant>,
    /// When it is killed, if SIGTERM does not end it.
    terminated_until: Option<Instant>,
}

/// See the module.
pub struct Fleet {
    places: Vec<Place>,
    /// The job of every worker, but for its number and seed.
    job: Job,
    /// The library of another release, and SQLite's `synchronous` of workers with it.
    other: Option<(PathBuf, String)>,
    clocks: Option<Clocks>,
    directory: PathBuf,
    /// The place of each process, by its number less 1.
    lives: Vec<usize>,
    /// Processes with the other library.
    with_other: u64,
    /// Workers that ended although nobody had ended them.
    pub ended: Vec<String>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A file to which a process appends its errors.
pub fn log(directory: &Path) -> Result<File, String> {
    let log = directory.join("stderr.log");
    let mut options = OpenOptions::new();
    options.create(true).append(true).open(log).map_err(text)
}

fn send(child: &Child, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // It may have ended.
        let _ = kill_process(pid, signal);
    }
}

impl Fleet {
    pub fn new(programs: &[Program], count: usize, job: Job, directory: &Path) -> Self {
        let place = |number: usize| Place {
            program: programs[number % programs.len()].clone(),
            child: None,
            stopped_until: None,
            terminated_until: None,
        };
        Self {
            places: (0..count).map(place).collect(),
            job,
            other: None,
            clocks: None,
            directory: directory.to_owned(),
            lives: Vec::new(),
            with_other: 0,
            ended: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// How many processes have been started.
    pub fn lives(&self) -> u64 {
        self.lives.len() as u64
    }

    /// How many of them had the other library.
    pub fn with_other(&self) -> u64 {
        self.with_other
    }

    /// The language of a process.
    pub fn language(&self, process: u64) -> Option<&'static str> {
        let place = *self.lives.get(process.checked_sub(1)? as usize)?;
        Some(self.places[place].program.language)
    }

    /// Every new worker loads this library with a chance of one half.
    pub fn mix(&mut self, library: &Path, synchronous: &str) {
        self.other = Some((library.to_owned(), synchronous.to_owned()));
    }

    /// Workers that start from now on have these clocks.
    pub fn set_clocks(&mut self, clocks: Clocks) {
        self.clocks = Some(clocks);
    }

    /// Lets the wall clock of a worker jump.
    pub fn jump(&mut self, number: usize, random: &mut Random) -> Result<(), String> {
        match &self.clocks {
            Some(clocks) => clocks.jump(number, random),
            None => Ok(()),
        }
    }

    /// The languages, by place.
    pub fn languages(&self) -> Vec<&'static str> {
        let languages = self.places.iter().map(|place| place.program.language);
        languages.collect()
    }

    /// Workers that start from now on load this library.
    pub fn upgrade(&mut self, library: &Path) {
        self.job.library = Some(library.to_owned());
    }

    pub fn library(&self) -> Option<&Path> {
        self.job.library.as_deref()
    }

    /// Fills every empty place, continues stopped processes whose time has come, and notes those
    /// that ended by themselves.
    pub fn tend(&mut self, random: &mut Random) -> Result<(), String> {
        for number in 0..self.places.len() {
            let now = Instant::now();
            let place = &mut self.places[number];
            if place.stopped_until.is_some_and(|until| until <= now) {
                self.resume(number);
            }
            let place = &mut self.places[number];
            if place.terminated_until.is_some_and(|until| until <= now) {
                self.kill(number)?;
            }
            let place = &mut self.places[number];
            if let Some(child) = &mut place.child {
                let Some(status) = child.try_wait().map_err(text)? else {
                    continue;
                };
                if place.terminated_until.take().is_none() {
                    let language = place.program.language;
                    self.ended
                        .push(format!("worker {number} ({language}): {status}"));
                }
                place.child = None;
                place.stopped_until = None;
            }
            self.start(number, random)?;
        }
        Ok(())
    }

    fn start(&mut self, number: usize, random: &mut Random) -> Result<(), String> {
        self.lives.push(number);
        let mut job = self.job.clone();
        job.process = self.lives();
        if let Some((library, synchronous)) = &self.other
            && random.one_in(2)
        {
            job.library = Some(library.clone());
            job.synchronous.clone_from(synchronous);
            self.with_other += 1;
        }
        // Small enough for the random numbers of every language.
        job.seed = random.between(1, 1 << 31);
        job.history = self.directory.join(format!("worker-{number}.edn"));
        job.notes = self.directory.join(format!("notes-{number}"));
        end_line(&job.history)?;
        end_line(&job.notes)?;
        let json = serde_json::to_string(&job).map_err(text)?;
        let place = &mut self.places[number];
        let mut command = place.program.start();
        command
            .arg(json)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log(&self.directory)?)
            // Ctrl-C is for the orchestrator.
            .process_group(0);
        if let Some(clocks) = &self.clocks {
            clocks.give(number, &mut command);
        }
        place.child = Some(command.spawn().map_err(text)?);
        Ok(())
    }

    /// Kills a worker.
    pub fn kill(&mut self, number: usize) -> Result<(), String> {
        let place = &mut self.places[number];
        place.stopped_until = None;
        place.terminated_until = None;
        let Some(mut child) = place.child.take() else {
            return Ok(());
        };
        child.kill().map_err(text)?;
        child.wait().map_err(text)?;
        Ok(())
    }

    /// Kills all, first all and then waits.
    pub fn kill_all(&mut self) -> Result<(), String> {
        for place in &self.places {
            if let Some(child) = &place.child {
                send(child, Signal::KILL);
            }
        }
        (0..self.places.len()).try_for_each(|number| self.kill(number))
    }

    /// Stops a worker for a while.
    pub fn stop(&mut self, number: usize, time: Duration) {
        let place = &mut self.places[number];
        if let Some(child) = &place.child {
            send(child, Signal::STOP);
            place.stopped_until = Some(Instant::now() + time);
        }
    }

    fn resume(&mut self, number: usize) {
        let place = &mut self.places[number];
        place.stopped_until = None;
        if let Some(child) = &place.child {
            send(child, Signal::CONT);
        }
    }

    /// Asks a worker to end. It is killed if it does not within a while.
    pub fn terminate(&mut self, number: usize, patience: Duration) {
        self.resume(number);
        let place = &mut self.places[number];
        if let Some(child) = &place.child {
            send(child, Signal::TERM);
            place.terminated_until = Some(Instant::now() + patience);
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Nothing is left to do with the error.
        let _ = self.kill_all();
    }
}

/// Ends a line that a kill has cut, so that the next process begins a new one.
fn end_line(path: &Path) -> Result<(), String> {
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;
    let mut options = OpenOptions::new();
    options.create(true).append(true).read(true);
    let mut file = options.open(path).map_err(text)?;
    let length = file.metadata().map_err(text)?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1).map_err(text)?;
    }
    match last {
        [b'\n'] => Ok(()),
        _ => file.write_all(b"\n").map_err(text),
    }
}
