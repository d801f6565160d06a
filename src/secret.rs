//! A password or key that no log, error or `Debug` can show.

use std::fmt;

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
}
