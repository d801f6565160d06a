//! The log: sentences on standard error, for a person at a terminal, a file, or systemd's journal.

use std::fmt;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Sends log sentences to standard error, from `level` on unless `GANTRY_LOG` says otherwise (`GANTRY_LOG=debug`). In
/// systemd's journal, which has its own clock, they carry no time, and each line has its priority: `journalctl -p warning`
/// shows warnings and errors.
pub fn init_logging(level: LevelFilter) {
    let asked = std::env::var("GANTRY_LOG").unwrap_or_default();
    let (filter, complaint) = filter(&asked, level);
    let format = Format::default().with_target(false);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second call, as in a test, keeps the first subscriber.
    if is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref(), "/proc/self/fd/2") {
        drop(builder.event_format(WithPriority(format.without_time())).try_init());
    } else {
        drop(builder.event_format(format).try_init());
    }
    if let Some(complaint) = complaint {
        warn!("{complaint}");
    }
}

/// What is logged, and what is wrong with what was asked for. A misspelt level would be the name of a part of the program,
/// and hide everything else, errors too.
fn filter(asked: &str, level: LevelFilter) -> (EnvFilter, Option<String>) {
    let otherwise = || EnvFilter::new(level.to_string());
    let is_level = |word: &str| word.contains(['=', '[']) || word.parse::<LevelFilter>().is_ok();
    if asked.trim().is_empty() {
        return (otherwise(), None);
    }
    match EnvFilter::try_new(asked) {
        Ok(filter) if asked.split(',').all(|word| is_level(word.trim())) => (filter, None),
        _ => {
            let complaint = format!(
                "GANTRY_LOG={asked} is no level and is ignored; write off, error, warn, info, debug or trace"
            );
            (otherwise(), Some(complaint))
        }
    }
}

/// Whether what is written to the open file that `link` leads to goes to the journal. The variable alone does not tell: it
/// is inherited by whatever a unit starts, a terminal too.
fn is_journal(journal_stream: Option<&str>, link: &str) -> bool {
    let Some(stream) = journal_stream else { return false };
    std::fs::metadata(link).is_ok_and(|file| format!("{}:{}", file.dev(), file.ino()) == stream)
}

/// Begins each line with `<N>`, a syslog priority, as `sd-daemon(3)` says.
struct WithPriority<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithPriority<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        let priority = priority(*event.metadata().level());
        text.lines().try_for_each(|line| writeln!(writer, "<{priority}>{line}"))
    }
}

/// The syslog priority: err, warning, info or debug.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_told_and_hides_nothing() {
        for wrong in ["debgu", "verbose", "info,rumqttc", "=", "gantry=loud"] {
            let (filter, complaint) = filter(wrong, LevelFilter::INFO);
            assert_eq!(filter.to_string(), "info", "{wrong}");
            assert!(complaint.unwrap().starts_with(&format!("GANTRY_LOG={wrong} is no level")), "{wrong}");
        }
        for right in ["debug", "gantry=debug", "warn,gantry=trace", "OFF"] {
            let (_, complaint) = filter(right, LevelFilter::INFO);
            assert_eq!(complaint, None, "{right}");
        }
        assert_eq!(filter(" ", LevelFilter::WARN).0.to_string(), "warn");
    }

    #[test]
    fn the_journal_is_known_by_its_stream_and_not_by_the_variable_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("stream"), dir.path().join("fd"));
        std::fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let found = std::fs::metadata(&file).unwrap();
        let (stream, link) = (format!("{}:{}", found.dev(), found.ino()), link.to_str().unwrap());
        assert!(is_journal(Some(&stream), link));
        assert!(!is_journal(Some("9:9"), link), "another stream");
        assert!(!is_journal(None, link));
    }

    #[test]
    fn priorities_are_those_of_syslog() {
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        assert_eq!(levels.map(priority), [3, 4, 6, 7, 7]);
    }
}
