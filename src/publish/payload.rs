//! Memory for payloads: made once, handed out in pieces, used again.
//!
//! A payload is a piece of a chunk. Every sink shares it without a copy, and the chunk is written anew from its beginning
//! once all its pieces are dropped: in the order in which they were made, so the chunk that was filled first is free first.
//! Nothing is allocated while there is a free one. Where a sink falls behind, the ring of chunks grows to what the sinks'
//! queues hold, which is bounded, and stays so: then an outage of the broker allocates no more than that, and the next one
//! nothing.

use bytes::{Bytes, BytesMut};

/// Bytes of a chunk: a hundred messages with a few detections each.
const CHUNK: usize = 64 * 1024;

/// Chunks at first. Together they hold what 8 cameras at 30 frames a second say in a second and a half.
const CHUNKS: usize = 4;

/// Makes payloads without allocating.
#[derive(Debug)]
pub struct Payloads {
    /// In the order in which they are filled.
    chunks: Vec<BytesMut>,
    /// The one being filled.
    current: usize,
}

impl Default for Payloads {
    fn default() -> Self {
        Self { chunks: (0..CHUNKS).map(|_| chunk(CHUNK)).collect(), current: 0 }
    }
}

impl Payloads {
    /// Chunks whose every page is touched now.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The payload that `write` appends. One of more than `bytes_max` bytes is as good, but may be copied and allocated.
    pub fn make(&mut self, bytes_max: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
        let chunk = self.chunk_with_room(bytes_max);
        debug_assert!(chunk.is_empty(), "what was written before was split off");
        write(chunk);
        chunk.split().freeze()
    }

    fn chunk_with_room(&mut self, bytes: usize) -> &mut BytesMut {
        if !self.chunks[self.current].try_reclaim(bytes) {
            self.current = (self.current + 1) % self.chunks.len();
            let oldest = &mut self.chunks[self.current];
            // It is free if it can be had whole. If the oldest one is in use, so are all.
            if !oldest.try_reclaim(CHUNK) {
                self.chunks.insert(self.current, chunk(CHUNK.max(bytes)));
            } else if !oldest.try_reclaim(bytes) {
                *oldest = chunk(bytes);
            }
        }
        &mut self.chunks[self.current]
    }
}

fn chunk(len: usize) -> BytesMut {
    let mut chunk = BytesMut::with_capacity(len);
    // A fill touches every page, and splitting makes what the pieces share.
    chunk.resize(len, 0x5a);
    drop(chunk.split());
    chunk
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::allocations::during;

    fn text(payloads: &mut Payloads, text: &[u8]) -> Bytes {
        payloads.make(text.len(), |chunk| chunk.extend_from_slice(text))
    }

    #[test]
    fn payloads_that_are_dropped_in_time_cost_no_allocation_ever() {
        let mut payloads = Payloads::new();
        let mut waiting = std::collections::VecDeque::with_capacity(100);
        let ((), allocated) = during(|| {
            for number in 0..10_000_u32 {
                let payload = payloads.make(700, |chunk| chunk.resize(700, (number % 251) as u8));
                waiting.push_back((number, payload));
                if waiting.len() == 100 {
                    let (number, payload) = waiting.pop_front().unwrap();
                    assert!(
                        payload.len() == 700 && payload.iter().all(|&byte| u32::from(byte) == number % 251)
                    );
                }
            }
        });
        assert_eq!(allocated, 0);
    }

    #[test]
    fn payloads_that_wait_are_never_written_over_and_make_the_ring_grow_once() {
        let mut payloads = Payloads::new();
        let texts: Vec<_> = (0..2000_u32).map(|number| number.to_string().repeat(200)).collect();
        let mut waiting = Vec::with_capacity(texts.len());
        for outage in 0..3 {
            let ((), allocated) =
                during(|| waiting.extend(texts.iter().map(|made| text(&mut payloads, made.as_bytes()))));
            assert!(waiting.iter().zip(&texts).all(|(payload, text)| payload == text));
            waiting.clear();
            waiting.clear();
            assert_eq!(allocated > 0, outage == 0, "{allocated} in outage {outage}");
        }
        let bytes: usize = texts.iter().map(String::len).sum();
        assert!(payloads.chunks.len() < CHUNKS + bytes.div_ceil(CHUNK) + 1, "{}", payloads.chunks.len());
    }

    #[test]
    fn many_that_are_larger_than_a_chunk_make_the_ring_no_longer() {
        let mut payloads = Payloads::new();
        let large = vec![7; CHUNK + CHUNK / 2];
        for _ in 0..3 * CHUNKS {
            drop([text(&mut payloads, &large), text(&mut payloads, &large[..CHUNK])]);
        }
        assert_eq!(payloads.chunks.len(), CHUNKS);
    }

    #[test]
    fn one_that_is_larger_than_a_chunk_or_than_promised_is_whole() {
        let mut payloads = Payloads::new();
        let large = vec![7; 3 * CHUNK];
        let (kept, small) = (text(&mut payloads, &large), text(&mut payloads, b"small"));
        let surprise = payloads.make(1, |chunk| chunk.extend_from_slice(&large));
        assert_eq!((kept.as_ref(), small.as_ref()), (&large[..], &b"small"[..]));
        assert_eq!(surprise, large);
    }
}
