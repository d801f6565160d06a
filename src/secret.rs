//! A password or key that no log, error or `Debug` can show.

use std::fmt;

use percent_encoding::percent_decode_str;

/// A secret. Only [`Secret::reveal`] shows it, at the one place that hands it to the other side.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(secret: String) -> Self {
        Self(secret)
    }

    /// The secret itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// What the name of a value in an address holds when that may be a password.
pub const NAMES: [&str; 8] = ["pass", "pwd", "psw", "token", "key", "secret", "auth", "cred"];

/// Where in the path of an address a password begins: behind the `=` of such a name, as in
/// `/user=admin_password=…_channel=1.sdp`. Nobody can tell where it ends, so all that follows belongs to it.
#[must_use]
pub fn in_path(path: &str) -> Option<usize> {
    let is_name = |at: usize| {
        let name = path[..at].rsplit(['/', '&', ';', '=']).next().unwrap_or_default();
        let name = percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
        NAMES.iter().any(|secret| name.contains(secret))
    };
    let at = path.match_indices('=').map(|(at, _)| at).find(|at| is_name(*at))? + 1;
    (at < path.len()).then_some(at)
}

/// What may be a password in an address without user name: a part of its path, its query, its fragment.
#[must_use]
pub fn parts(url: &url::Url) -> Vec<&str> {
    let path = url.path();
    let parts = [in_path(path).map(|at| &path[at..]), url.query(), url.fragment()];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect()
}

/// `text` with `…` wherever `secret` stands in it, also with backslashes among its letters, as GStreamer writes text into
/// other text.
#[must_use]
pub fn hide(text: &str, secret: &str) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some((begin, end)) = find(rest, secret) {
        shown.push_str(&rest[..begin]);
        shown.push('…');
        rest = &rest[end..];
    }
    shown + rest
}

/// Where `secret` stands in `text`.
fn find(text: &str, secret: &str) -> Option<(usize, usize)> {
    let first = secret.chars().next()?;
    text.match_indices(first).find_map(|(begin, _)| {
        let mut letters = text[begin..].char_indices();
        for wanted in secret.chars() {
            letters
                .find(|(_, letter)| *letter == wanted || *letter != '\\')
                .filter(|(_, it)| *it == wanted)?;
        }
        Some((begin, letters.next().map_or(text.len(), |(at, _)| begin + at)))
    })
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_it() {
        let shown = format!("{:?}", Some(Secret::new("p@ss".into())));
        assert_eq!(shown, "Some(Secret(…))");
    }

    #[test]
    fn a_secret_is_hidden_in_every_spelling() {
        for (text, shown) in [
            ("a user=b&password=é! c", "a … c"),
            (r"a user\=b\&password\=é\! c", "a … c"),
            (r"a user\\\=b\\\&password\\\=é\\\!", "a …"),
            ("user=b&password=é!user=b&password=é!", "……"),
            ("user=user=b&password=é!", "user=…"),
            ("user=b&password=é", "user=b&password=é"),
        ] {
            assert_eq!(hide(text, "user=b&password=é!"), shown);
        }
        assert_eq!(hide(r"a\b", r"\b"), "a…");
        assert_eq!(hide("a", ""), "a");
    }

    #[test]
    fn a_password_in_a_path_begins_behind_its_name() {
        for (path, shown) in [
            ("/user=admin_password=hunter2_channel=1_stream=0.sdp", "/user=admin_password="),
            ("/user=admin&passwd=hunter2", "/user=admin&passwd="),
            ("/live/P%41SSWORD=hunter2/1", "/live/P%41SSWORD="),
            ("/token=a=b", "/token="),
        ] {
            assert_eq!(in_path(path).map(|at| &path[..at]), Some(shown));
        }
        for path in ["/password/1", "/channel=1", "/password=", "/bypass/id=1", ""] {
            assert_eq!(in_path(path), None, "{path}");
        }
    }
}
