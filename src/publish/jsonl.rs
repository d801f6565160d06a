//! Standard output: one JSON object a line.
//!
//! Lines that wait are written together, and nothing is held back once the queue is empty, so a reader sees an event as
//! soon as a person would.

use std::io::{ErrorKind, Write};
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam_channel::TryRecvError;
use tracing::{error, info};

use super::{Made, SinkEnd, SinkInbox};
use crate::threads::Heartbeat;

/// So many bytes are written even if more lines wait.
const BATCH: usize = 64 * 1024;

/// Writes every message of `inbox` as a line until all its producers are gone, or the reader is. It blocks where the
/// writer does. Call it on a thread of its own.
///
/// An event counts as delivered once it is written and flushed. When writing fails, the lines that were written
/// together with the failing one are counted as dropped, though a reader may have seen some of them.
pub fn run(inbox: &SinkInbox, mut writer: impl Write, heartbeat: &Heartbeat) -> SinkEnd {
    let telemetry = &inbox.shared.telemetry;
    telemetry.connects.add(1);
    inbox.shared.delivering.store(true, Ordering::Release);
    let mut batch = Batch { lines: Vec::with_capacity(BATCH), made: Vec::new() };
    let end = loop {
        let message = match inbox.queue.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => break batch.write(&mut writer, inbox, heartbeat),
            Err(TryRecvError::Empty) => {
                if let Err(error) = batch.write(&mut writer, inbox, heartbeat) {
                    break Err(error);
                }
                heartbeat.idle();
                match inbox.wait() {
                    Some(message) => message,
                    None => break Ok(()),
                }
            }
        };
        heartbeat.beat();
        batch.lines.extend_from_slice(&message.payload);
        batch.lines.push(b'\n');
        batch.made.push(message.made);
        if batch.lines.len() >= BATCH
            && let Err(error) = batch.write(&mut writer, inbox, heartbeat)
        {
            break Err(error);
        }
    };
    heartbeat.idle();
    let left = batch.count() + inbox.end();
    match end {
        Ok(()) => SinkEnd::Drained,
        Err(error) => {
            telemetry.failures.add(1);
            telemetry.dropped.add(batch.count());
            closed(&error, left)
        }
    }
}

#[derive(Debug)]
struct Batch {
    lines: Vec<u8>,
    /// When the event of each line was made.
    made: Vec<Made>,
}

impl Batch {
    fn count(&self) -> u64 {
        self.made.len() as u64
    }

    fn write(
        &mut self,
        writer: &mut impl Write,
        inbox: &SinkInbox,
        heartbeat: &Heartbeat,
    ) -> std::io::Result<()> {
        if !self.made.is_empty() {
            // A reader that does not read is no fault of ours, and a restart would not make it read.
            heartbeat.idle();
            writer.write_all(&self.lines)?;
            writer.flush()?;
            inbox.shared.telemetry.delivered.add(self.count());
            let now = Instant::now();
            self.made.drain(..).for_each(|made| made.handed_over(now));
            self.lines.clear();
        }
        Ok(())
    }
}

fn closed(error: &std::io::Error, left: u64) -> SinkEnd {
    let reason = if error.kind() == ErrorKind::BrokenPipe {
        let reason = "the reader of standard output has closed it".to_owned();
        info!(left, "{reason}; no more events are written there");
        reason
    } else {
        let reason = format!("standard output cannot be written: {error}");
        error!(left, "{reason}; no more events are written there");
        reason
    };
    SinkEnd::Closed(reason)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::publish::{Message, Outbox, WhenFull, sink_queue};
    use crate::telemetry::SinkTelemetry;
    use crate::threads::{Stuck, ThreadKind, ThreadSpec, Threads};

    /// Takes so many bytes and then says what a pipe without a reader says.
    struct Pipe<'a> {
        taken: &'a mut Vec<u8>,
        room: usize,
    }

    impl Write for Pipe<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.taken.len() + bytes.len() > self.room {
                return Err(ErrorKind::BrokenPipe.into());
            }
            self.taken.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn message(text: &str) -> Message {
        let made = Made { at: Instant::now(), publish: Arc::default() };
        Message { topic: "t".into(), payload: Bytes::copy_from_slice(text.as_bytes()), made }
    }

    /// Looks who is stuck while it is being written to.
    struct Onlooker(Threads, crossbeam_channel::Sender<Vec<Stuck>>);

    impl Write for Onlooker {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let later = Instant::now() + Duration::from_secs(3600);
            self.1.send(self.0.stuck(later)).expect("the test takes it");
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_makes_nobody_stuck() {
        let (producer, inbox) =
            sink_queue(crossbeam_channel::bounded(8), Arc::new(SinkTelemetry::new("stdout")));
        let outbox = Outbox::new(vec![producer]);
        outbox.push(&message("1"), WhenFull::DropOldest, || ());
        drop(outbox);
        let (threads, (seen, stuck)) = (Threads::new(), crossbeam_channel::bounded(8));
        let onlooker = Onlooker(threads.clone(), seen);
        let spec = ThreadSpec { name: "out/stdout".into(), kind: ThreadKind::Output, limit: Duration::ZERO };
        let body = move |heartbeat: Heartbeat| drop(run(&inbox, onlooker, &heartbeat));
        let thread = threads.spawn(spec, body, |_| {}).unwrap();
        assert_eq!(stuck.recv().unwrap(), []);
        thread.join_timeout(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn every_message_becomes_a_line_and_the_end_comes_with_the_last_producer() {
        let telemetry = Arc::new(SinkTelemetry::new("stdout"));
        let (producer, inbox) = sink_queue(crossbeam_channel::bounded(8), Arc::clone(&telemetry));
        let outbox = Outbox::new(vec![producer]);
        for text in ["{\"a\":1}", "{\"a\":2}"] {
            outbox.push(&message(text), WhenFull::Wait, || ());
        }
        drop(outbox);
        let mut taken = Vec::new();
        let end = run(&inbox, &mut taken, &Heartbeat::unwatched());
        assert_eq!(end, SinkEnd::Drained);
        assert_eq!(String::from_utf8(taken).unwrap(), "{\"a\":1}\n{\"a\":2}\n");
        assert_eq!((telemetry.delivered.get(), telemetry.dropped.get()), (2, 0));
    }

    #[test]
    fn a_closed_pipe_ends_the_sink_and_everything_is_counted() {
        let telemetry = Arc::new(SinkTelemetry::new("stdout"));
        let (producer, inbox) = sink_queue(crossbeam_channel::bounded(8), Arc::clone(&telemetry));
        let outbox = Outbox::new(vec![producer]);
        for text in ["1", "2", "3"] {
            outbox.push(&message(text), WhenFull::Wait, || ());
        }
        let mut taken = Vec::new();
        let end = run(&inbox, Pipe { taken: &mut taken, room: 3 }, &Heartbeat::unwatched());
        assert_eq!(end, SinkEnd::Closed("the reader of standard output has closed it".into()));
        assert!(!inbox.shared.delivering.load(Ordering::Acquire));
        outbox.push(&message("4"), WhenFull::Wait, || panic!("a closed pipe is not waited for"));
        assert_eq!((telemetry.queued.get(), telemetry.delivered.get(), telemetry.dropped.get()), (4, 0, 4));
    }
}
