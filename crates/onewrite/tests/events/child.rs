//! Another process: this program again, with its own environment. It runs one scene.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

const SCENE: &str = "ONEWRITE_EVENTS_SCENE";
const PATH: &str = "ONEWRITE_EVENTS_PATH";
/// A child that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(240);

/// As a separate test it does nothing.
#[test]
fn child() {
    if let (Ok(scene), Some(path)) = (env::var(SCENE), env::var_os(PATH)) {
        super::scenes::play(&scene, Path::new(&path));
    }
}

/// Starts a child.
pub fn start(scene: &str, path: &Path, variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(env::current_exe().expect("this program"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("ONEWRITE_") {
            command.env_remove(name);
        }
    }
    command
        .args(["child::child", "--exact", "--nocapture"])
        .env(SCENE, scene)
        .env(PATH, path)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// Waits for a child. Returns whether it succeeded, and its standard error.
pub fn end(mut child: Child) -> (bool, String) {
    let begun = Instant::now();
    while child.try_wait().expect("a state").is_none() {
        if begun.elapsed() > LONGEST {
            child.kill().expect("killed");
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().expect("its output");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), errors)
}

/// Runs a scene to its end, which must be good.
pub fn play(scene: &str, path: &Path, variables: &[(&str, &str)]) -> String {
    let (is_good, errors) = end(start(scene, path, variables));
    assert!(is_good, "{scene}: {errors}");
    errors
}
