//! Why a config file is refused: every mistake in it.

use std::path::PathBuf;

use serde::Serialize;

use crate::yaml::Problem;

/// Every mistake of a config file, in the order of the file. Shown, each is a line `gantry.yaml:12:5: cameras[0].transport: …`.
#[derive(Debug, thiserror::Error, Serialize)]
#[error("{}", self.lines())]
pub struct ConfigErrors {
    /// The file.
    pub file: PathBuf,
    /// Its mistakes; at least one.
    pub problems: Vec<Problem>,
}

impl ConfigErrors {
    fn lines(&self) -> String {
        let file = self.file.display();
        let line = |problem: &Problem| match problem.place {
            Some(_) => format!("{file}:{problem}"),
            None => format!("{file}: {problem}"),
        };
        self.problems.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
