//! The known word that was probably meant.

/// The known word nearest to `written`: equal but for case and dashes, a few typing slips away, or the only one that begins
/// with it. None when nothing is near.
#[must_use]
pub fn nearest<'k>(written: &str, known: impl Iterator<Item = &'k str> + Clone) -> Option<&'k str> {
    let written = plain(written);
    if written.is_empty() || written.len() > 64 {
        return None;
    }
    let distance = |word: &str| strsim::osa_distance(&written, &plain(word));
    let slips = |word: &str| match word.chars().count().max(written.chars().count()) {
        0..=1 => 0,
        2..=5 => 1,
        6..=9 => 2,
        _ => 3,
    };
    let by_distance =
        known.clone().filter(|word| distance(word) <= slips(word)).min_by_key(|word| distance(word));
    by_distance.or_else(|| {
        let mut longer = known.filter(|word| written.len() >= 3 && plain(word).starts_with(&written));
        longer.next().filter(|_| longer.next().is_none())
    })
}

fn plain(word: &str) -> String {
    word.trim().to_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 6] = ["id", "source", "stale_after", "password_file", "password_env", "score_min"];

    #[test]
    fn a_typing_slip_finds_its_word_and_another_word_finds_none() {
        for (written, found) in [
            ("sorce", Some("source")),
            ("Stale-After", Some("stale_after")),
            ("stale_aftr", Some("stale_after")),
            ("score", Some("score_min")),
            ("scoremin", Some("score_min")),
            ("password", None),
            ("colour", None),
            ("di", Some("id")),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, KEYS.into_iter()), found, "{written}");
        }
    }
}
