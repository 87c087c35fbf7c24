//! The files of a trace. blktrace has one for each processor: `sda.blktrace.0`, `sda.blktrace.1`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Between a trace's name and the number of the processor.
const INFIX: &str = ".blktrace.";

/// An open file, or standard input.
pub struct Input {
    /// For messages.
    pub name: String,
    pub reader: Box<dyn BufRead>,
}

/// Opens the files that the user named. A name without a file stands for those of all processors.
///
/// # Errors
/// If there is no such file, or one is named twice.
pub fn open(traces: &[PathBuf]) -> Result<Vec<Input>, String> {
    let mut inputs = Vec::new();
    let mut opened = BTreeSet::new();
    for trace in traces {
        for path in files(trace)? {
            let name = path.display().to_string();
            if !opened.insert(path.clone()) {
                return Err(format!("{name} is named twice"));
            }
            let reader = reader(&path).map_err(|error| format!("cannot read {name}: {error}"))?;
            inputs.push(Input { name, reader });
        }
    }
    for path in left_out(&opened) {
        eprintln!(
            "onewrite: {} belongs to the same trace, and is not played; the name without {INFIX}N names all",
            path.display()
        );
    }
    Ok(inputs)
}

fn reader(path: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(match path.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(path)?)),
    })
}

/// The file itself, or those of all processors, by their numbers.
fn files(trace: &Path) -> Result<Vec<PathBuf>, String> {
    if trace.as_os_str() == "-" || trace.exists() {
        return Ok(vec![trace.to_owned()]);
    }
    let found = of_all_processors(trace);
    match found.is_empty() {
        true => Err(format!(
            "cannot read {0}: there is no such file, and no {0}{INFIX}0",
            trace.display()
        )),
        false => Ok(found),
    }
}

/// `TRACE.blktrace.N`.
fn of_all_processors(trace: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(directory)) = (trace.file_name(), trace.parent()) else {
        return Vec::new();
    };
    let listed = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    let names = std::fs::read_dir(listed).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = names
        .filter_map(|entry| {
            let (file, wanted) = (entry.file_name(), name.to_str()?);
            let number = file.to_str()?.strip_prefix(wanted)?.strip_prefix(INFIX)?;
            Some((number.parse().ok()?, directory.join(&file)))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Files of the same traces that were not opened.
fn left_out(opened: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let traces = opened.iter().filter_map(|path| {
        let (trace, number) = path.to_str()?.rsplit_once(INFIX)?;
        number.parse::<u32>().ok().map(|_| PathBuf::from(trace))
    });
    let all = traces.flat_map(|trace| of_all_processors(&trace));
    all.filter(|path| !opened.contains(path)).collect()
}
