//! What is known of each picture from its packets, and of each packet that is missing.

use std::time::{Duration, Instant};

use super::clock::Clock;
use super::{Packet, Payload, SenderReport};
use crate::frame::clock::Captured;
use crate::source::integrity::Missing;

/// As many pictures may be on their way from the network to the video decoder.
const REMEMBERED: usize = 128;

/// A gap of more packets is another beginning, such as a camera's that has started anew.
const GAP_MAX: u16 = 3000;

/// Sees every packet of one stream, in order, as they come out of the jitter buffer.
#[derive(Debug)]
pub struct Receiver {
    payload: Payload,
    clock_rate: u32,
    origin: Instant,
    clock: Clock,
    ssrc: Option<u32>,
    last: Option<Last>,
    ring: [Option<(Option<u64>, Received)>; REMEMBERED],
    newest: usize,
}

/// The packet before.
#[derive(Clone, Copy, Debug)]
struct Last {
    sequence: u16,
    timestamp: u32,
    marker: bool,
}

/// What is known of a picture.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// What is missing; none where it is not known which picture it is.
    pub missing: Option<Missing>,
    /// How much later than the fastest its last packet came.
    pub lateness: Duration,
    /// When it was taken.
    pub captured: Captured,
}

impl Receiver {
    /// Nothing has come yet. The stream's clock has so many ticks a second.
    #[must_use]
    pub fn new(payload: Payload, clock_rate: u32, origin: Instant) -> Self {
        Self {
            payload,
            clock_rate,
            origin,
            clock: Clock::new(clock_rate, origin),
            ssrc: None,
            last: None,
            ring: [None; REMEMBERED],
            newest: 0,
        }
    }

    /// A packet comes at `at`, of the picture with this presentation time. Returns how many were lost right before it.
    pub fn packet(&mut self, packet: &Packet<'_>, pts: Option<u64>, at: Instant) -> u64 {
        if self.ssrc.replace(packet.ssrc).is_some_and(|before| before != packet.ssrc) {
            // Another sender: neither its numbers nor its times go on.
            (self.clock, self.last) = (Clock::new(self.clock_rate, self.origin), None);
        }
        let Packet { marker, sequence, timestamp, .. } = *packet;
        let before = self.last.replace(Last { marker, sequence, timestamp });
        let time = self.clock.packet(timestamp, at);
        let (lateness, captured) = (self.clock.lateness(time, at), self.clock.captured(time, at));
        let lost = before.map_or(0, |before| sequence.wrapping_sub(before.sequence).wrapping_sub(1));
        let same_picture = before.is_some_and(|before| before.timestamp == timestamp);
        let begins = || self.payload.begins_picture(packet.payload);
        let missing = match before {
            Some(_) if lost == 0 => Missing::Nothing,
            Some(_) if same_picture => Missing::Within,
            Some(_) if begins() => Missing::Before,
            // Where no beginning is known, the first one is taken for whole; else nothing ever were.
            None if begins() || self.payload == Payload::Other => Missing::Before,
            _ => Missing::Within,
        };
        if lost > 0
            && let Some(before) = before
            && !before.marker
            && let Some((_, picture)) = &mut self.ring[self.newest]
        {
            picture.missing = Some(Missing::Within);
        }
        match &mut self.ring[self.newest] {
            Some((_, picture)) if same_picture => {
                *picture = Received { missing: picture.missing.max(Some(missing)), lateness, captured };
            }
            _ => {
                self.newest = (self.newest + 1) % REMEMBERED;
                self.ring[self.newest] = Some((pts, Received { missing: Some(missing), lateness, captured }));
            }
        }
        if lost < GAP_MAX { u64::from(lost) } else { 0 }
    }

    /// A sender report comes at `at`, when our wall clock showed `wall_ns`.
    pub fn report(&mut self, report: &SenderReport, at: Instant, wall_ns: i64) {
        if self.ssrc == Some(report.ssrc) {
            self.clock.report(report, at, wall_ns);
        }
    }

    /// The picture with this presentation time. Where no packet of such a one is known, it came about when the newest did.
    #[must_use]
    pub fn picture(&self, pts: Option<u64>) -> Option<Received> {
        let newest_first =
            (0..REMEMBERED).map(|back| self.ring[(self.newest + REMEMBERED - back) % REMEMBERED]);
        let known = newest_first.flatten().find(|(known, _)| pts.is_some() && *known == pts);
        let newest = || self.ring[self.newest].map(|(_, newest)| Received { missing: None, ..newest });
        known.map(|(_, picture)| picture).or_else(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P_SLICE: &[u8] = &[0x41, 0x9a, 1, 2, 3];
    const SECOND_SLICE: &[u8] = &[0x41, 0x4a, 1, 2, 3];

    /// A camera that sends pictures of three packets.
    struct Camera {
        receiver: Receiver,
        now: Instant,
        sequence: u16,
        ssrc: u32,
        lost: u64,
    }

    impl Camera {
        fn new() -> Self {
            let now = Instant::now();
            // The numbers wrap soon.
            let receiver = Receiver::new(Payload::H264, 90_000, now);
            Self { receiver, now, sequence: 65_530, ssrc: 7, lost: 0 }
        }

        /// Sends picture `n`, of which these packets do not arrive; what is told of it then.
        fn send(&mut self, n: u32, dropped: &[usize]) -> Option<Missing> {
            self.now += Duration::from_millis(40);
            for (index, payload) in [P_SLICE, SECOND_SLICE, SECOND_SLICE].into_iter().enumerate() {
                self.sequence = self.sequence.wrapping_add(1);
                if !dropped.contains(&index) {
                    let (marker, timestamp) = (index == 2, n.wrapping_mul(3600));
                    let (sequence, ssrc) = (self.sequence, self.ssrc);
                    let packet = Packet { marker, sequence, timestamp, ssrc, payload };
                    self.lost += self.receiver.packet(&packet, Some(u64::from(n)), self.now);
                }
            }
            self.missing(n)
        }

        fn missing(&self, n: u32) -> Option<Missing> {
            self.receiver.picture(Some(u64::from(n))).and_then(|picture| picture.missing)
        }
    }

    #[test]
    fn a_loss_is_within_the_pictures_that_lack_a_packet_and_before_the_next_one() {
        use Missing::{Before, Nothing, Within};
        let mut camera = Camera::new();
        assert_eq!(camera.send(1, &[]), Some(Before), "nobody knows what came before the first");
        assert_eq!(camera.send(2, &[]), Some(Nothing));
        assert_eq!(camera.send(3, &[1]), Some(Within));
        assert_eq!(camera.send(4, &[]), Some(Nothing));
        assert_eq!(camera.send(5, &[0]), Some(Within), "it does not begin with a first slice");
        assert_eq!(camera.missing(4), Some(Nothing), "its last packet said that it is the last");
        assert_eq!(camera.send(6, &[2]), Some(Nothing), "nobody knows yet");
        assert_eq!(camera.send(7, &[]), Some(Before));
        assert_eq!(camera.missing(6), Some(Within));
        assert_eq!(camera.send(8, &[0, 1, 2]), None);
        assert_eq!(camera.send(9, &[]), Some(Before));
        assert_eq!(camera.lost, 6);
    }

    #[test]
    fn a_connection_that_begins_within_a_picture_says_so() {
        assert_eq!(Camera::new().send(1, &[0]), Some(Missing::Within));
    }

    #[test]
    fn numbers_that_jump_far_are_no_lost_packets() {
        let mut camera = Camera::new();
        camera.send(1, &[]);
        camera.sequence = camera.sequence.wrapping_add(5000);
        assert_eq!(camera.send(2, &[]), Some(Missing::Before));
        assert_eq!(camera.lost, 0);
    }

    #[test]
    fn another_sender_begins_anew() {
        let mut camera = Camera::new();
        for n in 1..50 {
            camera.send(n, &[]);
        }
        (camera.ssrc, camera.sequence) = (8, 20_000);
        assert_eq!(camera.send(5_000_000, &[]), Some(Missing::Before));
        assert_eq!(camera.lost, 0);
        let picture = camera.receiver.picture(Some(5_000_000)).unwrap();
        assert_eq!(picture.lateness, Duration::ZERO);
    }

    #[test]
    fn a_picture_that_no_packet_is_known_of_came_with_the_newest() {
        let mut camera = Camera::new();
        assert!(camera.receiver.picture(Some(1)).is_none());
        camera.send(1, &[]);
        assert_eq!(camera.missing(2), None);
        let unknown = camera.receiver.picture(None).unwrap();
        assert_eq!((unknown.missing, unknown.captured.at), (None, camera.now), "as the newest");
        for n in 2..200 {
            camera.send(n, &[]);
        }
        assert_eq!(camera.missing(1), None, "forgotten");
        assert_eq!(camera.missing(190), Some(Missing::Nothing));
    }
}
