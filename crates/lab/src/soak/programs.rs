//! The programs that work on the database: one for each language that is available.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;

use super::Args;

const PYTHON: &str = include_str!("workers/worker.py");
const NODE: &str = include_str!("workers/worker.js");

/// A program that takes a job as its last argument.
#[derive(Clone, Debug, Serialize)]
pub struct Program {
    pub language: &'static str,
    /// The version of its SQLite.
    pub sqlite: String,
    #[serde(skip)]
    command: Vec<OsString>,
}

/// A language without a program, and the reason.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    pub language: &'static str,
    pub why: String,
}

/// The programs that answer, and those that do not.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    pub found: Vec<Program>,
    pub missing: Vec<Missing>,
}

impl Program {
    /// A command of this program. Its process dies with this one.
    pub fn start(&self) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .args(&self.command);
        command
    }
}

impl Programs {
    /// Writes the scripts into `directory` and asks each program for its SQLite.
    pub fn find(args: &Args, directory: &Path) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let (python, node) = (directory.join("worker.py"), directory.join("worker.js"));
        fs::write(&python, PYTHON).map_err(text)?;
        fs::write(&node, NODE).map_err(text)?;
        let this = std::env::current_exe().map_err(text)?;
        let mut programs = Self::default();
        programs.add("rust", vec![this.into(), "soak-worker".into()]);
        let python = [args.python.clone().into(), python.into()];
        if args.mode.is_of_extension() {
            programs.add("python", python.into());
            programs.add("node", vec![args.node.clone().into(), node.into()]);
            match &args.go {
                Some(go) => programs.add("go", vec![go.clone().into()]),
                None => programs.lack("go", "--go names no program"),
            }
        } else {
            match &args.libsqlite3 {
                Some(place) => programs.add("python", with_library(place, python)),
                None => programs.lack("python", "--libsqlite3 names no library with the mode"),
            }
            for language in ["node", "go"] {
                programs.lack(language, "its SQLite is compiled in, without the mode");
            }
        }
        programs.expect(&args.require)?;
        Ok(programs)
    }

    fn lack(&mut self, language: &'static str, why: &str) {
        let why = why.to_owned();
        self.missing.push(Missing { language, why });
    }

    fn add(&mut self, language: &'static str, command: Vec<OsString>) {
        match probe(&command) {
            Ok(sqlite) => self.found.push(Program {
                language,
                sqlite,
                command,
            }),
            Err(why) => self.lack(language, &why),
        }
    }

    fn expect(&self, required: &[String]) -> Result<(), String> {
        for language in required {
            if let Some(missing) = self.missing.iter().find(|one| one.language == language) {
                return Err(format!("no program in {language}: {}", missing.why));
            }
            if !self.found.iter().any(|one| one.language == language) {
                return Err(format!("--require: unknown language {language}"));
            }
        }
        Ok(())
    }

    pub fn of(&self, language: &str) -> Option<&Program> {
        self.found.iter().find(|one| one.language == language)
    }
}

/// A command that takes the SQLite of a directory of scripts/libsqlite3.
fn with_library(place: &Path, command: [OsString; 2]) -> Vec<OsString> {
    let mut path = OsString::from("LD_LIBRARY_PATH=");
    path.push(place.join("lib"));
    let env = [OsString::from("env"), path];
    env.into_iter().chain(command).collect()
}

/// Asks a program for the version of its SQLite.
fn probe(command: &[OsString]) -> Result<String, String> {
    let (program, arguments) = command.split_first().ok_or("no program")?;
    let output = Command::new(program)
        .args(arguments)
        .arg("--probe")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", program.to_string_lossy()))?;
    let answer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match output.status.success() && !answer.is_empty() {
        true => Ok(answer),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let line = errors.lines().find(|line| line.contains("Error"));
            let line = line.or_else(|| errors.lines().last());
            Err(line.unwrap_or("it does not answer").trim().to_owned())
        }
    }
}
