//! `gantry config print` and `gantry config schema`.

use std::path::Path;

use clap::Subcommand;

use super::{ConfigFile, Exit, print_line, print_problem};
use crate::config::print::print_with_secrets;
use crate::config::{ConfigErrors, check_file, json_schema};

/// Commands of `gantry config`.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the effective config, every default filled in. Passwords are not printed.
    #[command(after_help = "Example:\n  gantry config print -c gantry.yaml")]
    Print(ConfigFile),
    /// Print the JSON Schema of the config file, for editors and tools.
    #[command(after_help = "Example:\n  gantry config schema > gantry.schema.json")]
    Schema,
}

/// Does what a command of `gantry config` asks.
#[must_use]
pub fn main(command: &ConfigCommand) -> Exit {
    match command {
        ConfigCommand::Print(config) => match print(&config.file) {
            Ok(text) => {
                print_line(&text.trim_end());
                Exit::Ok
            }
            Err(errors) => {
                print_problem(&errors);
                Exit::Config
            }
        },
        ConfigCommand::Schema => {
            print_line(&schema().trim_end());
            Exit::Ok
        }
    }
}

/// The effective config of a file, every default filled in, as YAML that loads again, wherever it is put.
/// Passwords are not read: where each one is kept is printed.
///
/// # Errors
/// Every mistake of the file.
pub fn print(path: &Path) -> Result<String, ConfigErrors> {
    let (config, secrets) = check_file(path)?;
    Ok(print_with_secrets(&config, &secrets))
}

/// The JSON Schema of the config file, with a line end.
#[must_use]
pub fn schema() -> String {
    format!("{:#}\n", json_schema::json_schema())
}
