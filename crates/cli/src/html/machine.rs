//! A page's facts about the machine, and the command that made the page.

use std::fs;

use crate::place::kernel_release;

/// See the module.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The command line, in a shell's syntax.
    pub command: String,
    /// Names and values.
    pub facts: Vec<(String, String)>,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let processor = field(&cpuinfo, "model name").unwrap_or(std::env::consts::ARCH);
        let facts = [
            ("processor", format!("{processor}, {cores} cores")),
            ("memory", memory(&read("/proc/meminfo")).unwrap_or_default()),
            ("kernel", format!("Linux {}", kernel_release())),
            (
                "system",
                system(&read("/etc/os-release")).unwrap_or_default(),
            ),
            (
                "SQLite",
                format!(
                    "{}, {}",
                    rusqlite::version(),
                    onewrite_workload::connection::SYNC_CALL
                ),
            ),
            ("onewrite", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        let said = facts.into_iter().filter(|(_, what)| !what.is_empty());
        Self {
            command: command(std::env::args()),
            facts: said.map(|(name, what)| (name.to_owned(), what)).collect(),
        }
    }
}

/// The value of the first `name` in a file of the kernel.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let named = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = named.filter(|(key, _)| key.trim() == name);
    values.next().map(|(_, value)| value.trim())
}

fn memory(meminfo: &str) -> Option<String> {
    let kib: f64 = field(meminfo, "MemTotal")?
        .split(' ')
        .next()?
        .parse()
        .ok()?;
    Some(format!("{:.1} GiB", kib / 1_048_576.0))
}

fn system(os_release: &str) -> Option<String> {
    let name = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// A command line that a shell reads as these arguments. The program's path is shortened to its
/// name.
fn command(args: impl Iterator<Item = String>) -> String {
    let quoted = |word: String| match word.is_empty() || word.contains(needs_quotes) {
        true => format!("'{}'", word.replace('\'', "'\\''")),
        false => word,
    };
    let named = args.enumerate().map(|(place, word)| match place {
        0 => word.rsplit('/').next().unwrap_or_default().to_owned(),
        _ => quoted(word),
    });
    named.collect::<Vec<_>>().join(" ")
}

fn needs_quotes(character: char) -> bool {
    !(character.is_alphanumeric() || "-_./,:=@%+".contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_read_back_as_its_arguments() {
        let words = [
            "/usr/bin/onewrite",
            "run",
            "it's",
            "a b",
            "",
            "--x=1,2:y",
            "$HOME",
        ];
        let line = command(words.map(str::to_owned).into_iter());
        assert_eq!(line, "onewrite run 'it'\\''s' 'a b' '' --x=1,2:y '$HOME'");
    }

    #[test]
    fn the_kernel_s_files_are_understood() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A: B @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(field(cpuinfo, "model name"), Some("A: B @ 2 GHz"));
        assert_eq!(
            memory("MemTotal:       25165824 kB\n"),
            Some("24.0 GiB".to_owned())
        );
        assert_eq!(memory(""), None);
        assert_eq!(
            system("NAME=x\nPRETTY_NAME=\"Debian 12\"\n"),
            Some("Debian 12".to_owned())
        );
    }
}
