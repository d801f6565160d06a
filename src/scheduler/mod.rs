//! Which frames run next, on which device, and when. Pure: deciders take `now`.

pub mod batcher;

use std::time::Duration;

/// One entry of a camera's `detect` list: a model that looks at the camera.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectConfig {
    /// The model's name, or `name@version`.
    pub model: String,
    /// Ids of the devices that may run it; the first is used. Empty: the first device of the config.
    pub devices: Vec<String>,
    /// At most so many frames a second, evenly spaced.
    pub rate_max: Option<f64>,
    /// A result that would come later than this after the frame's arrival is not made.
    pub deadline: Option<Duration>,
    /// Detections below this score are not reported; the model's own threshold, when none.
    pub score_min: Option<f32>,
}

/// The `batching` section of a config.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchingConfig {
    /// The most frames in a batch.
    pub size_max: usize,
    /// The longest that the first frame of a batch waits for others.
    pub queue_delay_max: Duration,
}

/// Whose turn it is: of the cameras that have a frame waiting, the one that was served longest ago.
#[derive(Clone, Debug)]
pub struct Turns {
    served: Vec<u64>,
    turn: u64,
}

impl Turns {
    /// Turns for `cameras` cameras, none served yet.
    #[must_use]
    pub fn new(cameras: usize) -> Self {
        Self { served: vec![0; cameras], turn: 0 }
    }

    /// The camera whose turn it is among those that are `waiting`; it counts as served.
    pub fn next(&mut self, waiting: impl Fn(usize) -> bool) -> Option<usize> {
        let next = (0..self.served.len())
            .filter(|&camera| waiting(camera))
            .min_by_key(|&camera| self.served[camera])?;
        self.turn += 1;
        self.served[next] = self.turn;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_waiting_gets_a_turn_before_anybody_gets_a_second() {
        let mut turns = Turns::new(3);
        let order: Vec<_> = (0..6).filter_map(|_| turns.next(|_| true)).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
        assert_eq!(turns.next(|camera| camera == 2), Some(2));
        assert_eq!(turns.next(|camera| camera != 0), Some(1), "2 was just served");
        assert_eq!(turns.next(|_| false), None);
    }
}
