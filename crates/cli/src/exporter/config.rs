//! The file that configures the exporter.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;

use serde::Deserialize;

/// The default of `--listen`.
pub const LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9871));

/// See the module.
#[derive(Deserialize, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The address.
    pub listen: Option<SocketAddr>,
    /// Databases, or patterns of their names.
    #[serde(default)]
    pub databases: Vec<String>,
}

impl Config {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<Config, String> {
        let text = std::fs::read_to_string(file).map_err(|e| {
            format!(
                "cannot read {}: {e}: give --config a TOML file",
                file.display()
            )
        })?;
        Config::parse(&text).map_err(|e| {
            let help = "`onewrite exporter --help` shows an example";
            format!("{}: {}\n{help}", file.display(), e.trim_end())
        })
    }

    fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_databases_and_an_address() {
        let config = Config::parse("listen = '127.0.0.1:1'\ndatabases = ['a', 'b*']");
        let config = config.expect("right");
        assert_eq!(config.databases, ["a", "b*"]);
        assert_eq!(config.listen.map(|listen| listen.port()), Some(1));
        for (wrong, what) in [("database = ['a']", "database"), ("listen = 7", "line 1")] {
            let error = Config::parse(wrong).expect_err("wrong");
            assert!(error.contains(what), "{error}");
        }
    }
}
