//! What was handed to the MQTT client and is not settled yet. Pure.
//!
//! Messages are handed over, written and acknowledged; each kept until then, so that it can be sent again. The window
//! spans from the oldest unsettled message to the newest, settled or not: packet ids go round within it, so two messages
//! never share one, however the broker orders its acknowledgements.

use std::collections::VecDeque;

/// Messages in the order in which they were handed over.
#[derive(Debug)]
pub(super) struct Flight<T> {
    slots: VecDeque<Slot<T>>,
    window: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// None once settled.
    message: Option<T>,
    /// None until written.
    packet_id: Option<u16>,
}

impl<T> Flight<T> {
    /// At most `window` messages at a time, and at least one.
    pub(super) fn new(window: usize) -> Self {
        let window = window.max(1);
        Self { slots: VecDeque::with_capacity(window), window }
    }

    /// Changes how many messages there may be at a time; those that are there stay.
    pub(super) fn set_window(&mut self, window: usize) {
        self.window = window.max(1);
    }

    /// Whether one more message may be handed over.
    pub(super) fn has_room(&self) -> bool {
        self.slots.len() < self.window
    }

    /// Whether everything is settled.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Notes a message that was handed over.
    pub(super) fn hand_over(&mut self, message: T) {
        debug_assert!(self.has_room());
        self.slots.push_back(Slot { message: Some(message), packet_id: None });
    }

    /// Notes that the oldest message not yet written was written with this packet id. Id 0 is one that nobody
    /// acknowledges: it is settled and given back.
    pub(super) fn written(&mut self, packet_id: u16) -> Option<T> {
        let slot = self.slots.iter_mut().find(|slot| slot.packet_id.is_none())?;
        slot.packet_id = Some(packet_id);
        let settled = if packet_id == 0 { slot.message.take() } else { None };
        self.forget_settled();
        settled
    }

    /// Notes an acknowledgement: the message is settled and given back. None for an id that waits for none.
    pub(super) fn acknowledged(&mut self, packet_id: u16) -> Option<T> {
        let waits = |slot: &&mut Slot<T>| slot.packet_id == Some(packet_id) && slot.message.is_some();
        let settled = self.slots.iter_mut().find(waits)?.message.take();
        self.forget_settled();
        settled
    }

    /// The oldest message that is not settled, if it was written.
    pub(super) fn oldest_written(&self) -> Option<&T> {
        self.slots.front().filter(|slot| slot.packet_id.is_some())?.message.as_ref()
    }

    /// Everything that is not settled, oldest first.
    pub(super) fn into_unsettled(self) -> impl DoubleEndedIterator<Item = T> {
        self.slots.into_iter().filter_map(|slot| slot.message)
    }

    fn forget_settled(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.message.is_none()) {
            self.slots.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_settled_by_their_packet_id_and_the_rest_comes_back_in_order() {
        let mut flight = Flight::new(4);
        for message in ["a", "b", "c", "d"] {
            flight.hand_over(message);
        }
        assert!(!flight.has_room());
        assert_eq!(flight.oldest_written(), None);
        assert_eq!(flight.written(1), None);
        assert_eq!(flight.oldest_written(), Some(&"a"));
        assert_eq!(flight.written(2), None);
        assert_eq!(flight.written(3), None);
        assert_eq!(flight.acknowledged(2), Some("b"));
        assert_eq!(flight.acknowledged(2), None, "a second acknowledgement settles nothing");
        assert_eq!(flight.acknowledged(9), None);
        let rest: Vec<_> = flight.into_unsettled().collect();
        assert_eq!(rest, ["a", "c", "d"]);
    }

    #[test]
    fn the_window_spans_from_the_oldest_unsettled_message() {
        let mut flight = Flight::new(3);
        for (id, message) in [(1, "a"), (2, "b"), (3, "c")] {
            flight.hand_over(message);
            flight.written(id);
        }
        flight.acknowledged(2);
        flight.acknowledged(3);
        assert!(!flight.has_room(), "packet id 1 is next and still in use");
        flight.acknowledged(1);
        assert!(flight.is_empty() && flight.has_room());
    }

    #[test]
    fn a_message_without_acknowledgement_is_settled_when_written() {
        let mut flight = Flight::new(2);
        flight.hand_over("event");
        flight.hand_over("health");
        assert_eq!(flight.written(1), None);
        assert_eq!(flight.written(0), Some("health"));
        assert_eq!(flight.written(0), None, "nothing more was handed over");
        assert_eq!(flight.acknowledged(0), None);
        assert_eq!(flight.acknowledged(1), Some("event"));
        assert!(flight.is_empty());
    }
}
