//! Encoded pictures that come twice: some cameras send each one again, with the same timestamp. Pure but for what it holds.
//!
//! A video decoder makes a second frame of such a one, with a time of its own making. Of two pictures in a row that are the
//! same to the byte only the first is decoded, if the second has no time or the same one. (The parser gives a time only to
//! the first picture of a timestamp. A still scene makes pictures that differ: each has its own number.)

/// Knows the picture before.
#[derive(Debug, Default)]
pub(super) struct Repeats(Option<gst::Buffer>);

impl Repeats {
    /// Whether this picture is the one before once more.
    pub(super) fn is_repeated(&mut self, buffer: &gst::Buffer) -> bool {
        let is_repeated = self.0.as_ref().is_some_and(|before| is_same(before, buffer));
        if !is_repeated {
            self.0 = Some(buffer.clone());
        }
        is_repeated
    }
}

fn is_same(before: &gst::Buffer, this: &gst::Buffer) -> bool {
    let at_once = this.pts().is_none() || this.pts() == before.pts();
    // Seldom are they of one size and not the same, so seldom are they looked into.
    at_once
        && this.size() == before.size()
        && match (before.map_readable(), this.map_readable()) {
            (Ok(before), Ok(this)) => *before == *this,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(pts: Option<u64>, bytes: &'static [u8]) -> gst::Buffer {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::from_slice(bytes);
        buffer.get_mut().unwrap().set_pts(pts.map(gst::ClockTime::from_nseconds));
        buffer
    }

    #[test]
    fn only_the_same_picture_at_the_same_time_is_a_repeated_one() {
        let mut repeats = Repeats::default();
        let mut seen = |pts, bytes| repeats.is_repeated(&buffer(pts, bytes));
        assert!(!seen(Some(1), b"one"));
        assert!(seen(None, b"one"));
        assert!(seen(Some(1), b"one"));
        assert!(!seen(None, b"two"), "a second field has no time either");
        assert!(!seen(Some(2), b"two"), "a still scene");
        assert!(!seen(None, b"three"));
    }
}
