//! Words for people, in logs and messages.

/// A reason, and that whatever failed is tried again; a reason may end with a question.
#[must_use]
pub fn is_tried_again(reason: &str) -> String {
    let link = if reason.ends_with('?') { " It" } else { "; it" };
    format!("{reason}{link} is tried again until it comes back")
}

/// An error with its causes, in one line. A chain is told once, where it is decided.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Text that somebody else wrote, such as a file's name, without what would command a terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut printable, c| {
        if c.is_control() {
            printable.extend(c.escape_debug());
        } else {
            printable.push(c);
        }
        printable
    })
}
