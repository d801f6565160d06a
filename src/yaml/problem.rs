//! What is wrong with a file, and where.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

use crate::secret;

/// The most characters of the file's own text that an error shows at once.
const SHOWN_MAX: usize = 80;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where it is; none when it is about the file as a whole.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// The key, such as `cameras[1].stale_after`; empty for the file as a whole.
    pub path: String,
    /// What is wrong and what to write instead. It never holds a password.
    pub message: String,
}

/// Mistakes as they are found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    found: Vec<Problem>,
    /// Place, last key and message of each.
    told: HashSet<(Option<Place>, String, String)>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column }) = self.place {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl Problems {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds a mistake. One in a value that aliases repeat is told once: it is one text to be put right.
    pub fn tell(&mut self, place: Place, path: &str, message: impl Into<String>) {
        self.add(Problem { place: Some(place), path: path.to_owned(), message: message.into() });
    }

    /// Adds a mistake of the file as a whole.
    pub fn tell_file(&mut self, message: impl Into<String>) {
        self.add(Problem { place: None, path: String::new(), message: message.into() });
    }

    /// All of them in the order of the file.
    #[must_use]
    pub fn into_sorted(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|problem| problem.place);
        self.found
    }

    fn add(&mut self, problem: Problem) {
        let key = problem.path.rsplit('.').next().unwrap_or_default().to_owned();
        if self.told.insert((problem.place, key, problem.message.clone())) {
            self.found.push(problem);
        }
    }
}

/// Text of the file as an error may show it: cut where it is long, on one line, and without what may be a user name and a
/// password in an address or in an address's query, wherever that was written.
#[must_use]
pub fn shown(text: &str) -> String {
    let (hidden, rest) = match text.rsplit_once('@') {
        _ if text.contains("://") => ("", concealed(text)),
        Some((before, rest)) if before.contains(':') => ("…@", rest.to_owned()),
        _ => ("", text.to_owned()),
    };
    let cut = if rest.chars().count() > SHOWN_MAX { "…" } else { "" };
    let rest: String = rest.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    format!("{hidden}{rest}{cut}")
}

/// An address, perhaps a mistyped one, without user name, password, query, and what may be a password in its path.
#[must_use]
pub fn concealed(address: &str) -> String {
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), address),
    };
    let (user, rest) = match rest.split_once('?') {
        // The ? may be a part of a password as well as the @ may be one of a query's.
        Some((before, after)) if after.contains('@') && !before.contains('@') => return format!("{scheme}…"),
        _ => rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("…@", rest)),
    };
    let (path, query) = rest.split_once('?').map_or((rest, ""), |(path, _)| (path, "?…"));
    match secret::in_path(path) {
        Some(at) => format!("{scheme}{user}{}…", &path[..at]),
        None => format!("{scheme}{user}{path}{query}"),
    }
}

/// The path of `key` inside the section at `path`.
#[must_use]
pub fn join(path: &str, key: &str) -> String {
    let key = shown(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_file_holds_no_password_of_an_address() {
        for (text, expected) in [
            ("rtsp://u:p@h/a", "rtsp://…@h/a"),
            ("rtsp://u:p@ss/w?rd@h/a", "rtsp://…@h/a"),
            ("rtsp://h/a?user=u&password=p", "rtsp://h/a?…"),
            ("rtsp://u:p@h/a?password=p", "rtsp://…@h/a?…"),
            ("rtsp://h/a?password=p@q", "rtsp://…"),
            ("rtsp://h/user=u_password=p?q", "rtsp://h/user=u_password=…"),
            ("u:p@h", "…@h"),
            ("u:p://q@h", "…@h"),
            ("who? me@home", "who? me@home"),
            ("line-parts@1.0.0", "line-parts@1.0.0"),
            ("a\tb", "a\\tb"),
        ] {
            assert_eq!(shown(text), expected);
        }
        assert_eq!(shown(&"x".repeat(81)), format!("{}…", "x".repeat(80)));
    }
}
