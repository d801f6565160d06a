//! What there is to see, in pictures that are made here, by a clock that is made here.

use std::time::{Duration, Instant};

use gantry::frame::clock::{CaptureClock, Captured};
use gantry::frame::{
    CameraId, ColorMatrix, ColorRange, Frame, FrameTimes, Geometry, LentMemory, Memory, PixelFormat,
};
use gantry::source::picture::{Encoded, PictureConfig, PictureWatch, Sight, Watching};
use gantry::source::thinning::Picture;
use gantry::source::{Address, CameraConfig, Rate, Replay, TestPattern};

const WIDTH: usize = 320;
const HEIGHT: usize = 240;
const FPS: u32 = 10;

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap()
}

/// A picture of which each pixel is what `pixel` says of its place.
fn picture(format: PixelFormat, range: ColorRange, pixel: impl Fn(usize, usize) -> u8) -> Frame {
    let (width, height) = (small(WIDTH), small(HEIGHT));
    let geometry = Geometry::packed(format, width, height, ColorMatrix::Bt601, range);
    let mut memory = vec![128; geometry.len()];
    let (step, channels): (usize, &[usize]) = match format {
        PixelFormat::Nv12 | PixelFormat::I420 | PixelFormat::Gray8 => (1, &[0]),
        PixelFormat::Yuy2 => (2, &[0]),
        PixelFormat::Uyvy => (2, &[1]),
        PixelFormat::Rgb | PixelFormat::Bgr => (3, &[0, 1, 2]),
        PixelFormat::Rgba | PixelFormat::Bgra => (4, &[0, 1, 2]),
    };
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            for channel in channels {
                memory[y * geometry.planes[0].stride + x * step + channel] = pixel(x, y);
            }
        }
    }
    let now = Instant::now();
    let captured = Captured::new(CaptureClock::Test, now);
    let times = FrameTimes { pts: None, captured, received: now, ready: now };
    Frame::new(CameraId::new("a"), 1, times, geometry, Memory::Lent(LentMemory::new(memory))).unwrap()
}

fn grey(pixel: impl Fn(usize, usize) -> u8) -> Frame {
    picture(PixelFormat::Gray8, ColorRange::Full, pixel)
}

/// A watch and its clock.
struct Watch {
    watch: PictureWatch,
    now: Instant,
}

impl Watch {
    fn new(config: &PictureConfig) -> Self {
        Self { watch: PictureWatch::new(config), now: Instant::now() }
    }

    fn see(&mut self, frame: &Frame) -> Sight {
        self.see_encoded(frame, None)
    }

    fn see_encoded(&mut self, frame: &Frame, encoded: Option<Encoded>) -> Sight {
        self.now += Duration::from_secs(1) / FPS;
        self.watch.see(self.now, frame, encoded)
    }

    /// Sees such pictures for so long, and says what was told and after how many seconds it changed.
    fn see_for(&mut self, seconds: u32, next: impl Fn(u32) -> Frame) -> Vec<(f64, Sight)> {
        let (begin, mut told) = (self.now, Vec::new());
        for number in 0..seconds * FPS {
            let sight = self.see(&next(number));
            if told.last().is_none_or(|(_, last)| *last != sight) {
                told.push(((self.now - begin).as_secs_f64(), sight));
            }
        }
        told
    }
}

/// A scene with something in it.
fn scene(x: usize, y: usize) -> u8 {
    if (x / 40 + y / 30).is_multiple_of(2) { 90 } else { 150 }
}

/// The same with noise of one level in one of so many pixels, another in each picture.
fn noisy(number: u32, one_in: u32) -> Frame {
    grey(move |x, y| {
        let place = small(x) * 7919 + small(y) * 104_729 + number * 1_299_709;
        let chance = place.wrapping_mul(2_654_435_761);
        scene(x, y) + u8::from((chance >> 16).is_multiple_of(one_in))
    })
}

fn told_after(told: &[(f64, Sight)], sight: Sight) -> f64 {
    let found = told.iter().find(|(_, other)| *other == sight);
    found.unwrap_or_else(|| panic!("{sight:?} was not told: {told:?}")).0
}

#[test]
fn raw_pictures_that_stay_the_same_are_frozen_and_the_faintest_noise_is_not() {
    let mut watch = Watch::new(&PictureConfig::default());
    assert_eq!(watch.see_for(60, |number| noisy(number, 50)).len(), 1, "noise is a change");
    let told = watch.see_for(20, |_| noisy(7, 50));
    let after = told_after(&told, Sight::Frozen);
    assert!((3.9..=5.0).contains(&after) && told.len() == 2, "{told:?}");
    assert_eq!(watch.see_for(20, |number| noisy(number, 50)).last().unwrap().1, Sight::Good);
}

#[test]
fn a_single_pixel_that_changes_anywhere_is_a_change_of_raw_pictures() {
    let mut watch = Watch::new(&PictureConfig::default());
    let blink =
        |number: u32| grey(move |x, y| scene(x, y) + u8::from((x, y) == (201, 133) && number % 20 < 10));
    assert_eq!(watch.see_for(30, blink), [(0.1, Sight::Good)]);
}

#[test]
fn pictures_that_are_the_same_and_differ_in_size_as_jpegs_are_not_frozen() {
    for (noise, expected) in [(0, Sight::Frozen), (40, Sight::Good)] {
        let mut watch = Watch::new(&PictureConfig::default());
        let frame = grey(scene);
        let mut last = Sight::Good;
        for number in 0..100 {
            let bytes = 20_000 + number % 7 * noise;
            last = watch.see_encoded(&frame, Some(Encoded { bytes, kind: Picture::Key }));
        }
        assert_eq!(last, expected);
    }
}

#[test]
fn frozen_pictures_are_not_told_where_that_is_off() {
    let config = PictureConfig { frozen_after: None, ..PictureConfig::default() };
    assert_eq!(Watch::new(&config).see_for(60, |_| grey(scene)), [(0.1, Sight::Good)]);
}

#[test]
fn black_is_dark_in_every_format_and_range_and_white_is_washed_out() {
    for format in PixelFormat::ALL {
        for range in [ColorRange::Limited, ColorRange::Full] {
            let is_rgb = format.name().contains("RGB") || format.name().contains("BGR");
            let (black, white) = if range == ColorRange::Full || is_rgb { (0, 255) } else { (16, 235) };
            for (level, sight) in [(black, Sight::Dark), (white, Sight::WashedOut), (128, Sight::Uniform)] {
                // A name and a clock are burnt in at the top.
                let pixel = move |x, y| if y < 12 && x % 8 < 4 { 255 - level } else { level };
                let told =
                    Watch::new(&PictureConfig::default()).see_for(5, |_| picture(format, range, pixel));
                let after = told_after(&told, sight);
                assert!((2.0..3.0).contains(&after), "{format:?} {range:?} {level}: {told:?}");
            }
            let told = Watch::new(&PictureConfig::default()).see_for(3, |_| picture(format, range, scene));
            assert_eq!(told, [(0.1, Sight::Good)], "{format:?} {range:?}");
        }
    }
}

#[test]
fn a_few_lamps_at_night_are_something_to_see() {
    let lamps = |x: usize, y: usize| {
        let is_lamp = [(50, 60), (170, 90), (280, 200)]
            .iter()
            .any(|(at, down)| x.abs_diff(*at) < 2 && y.abs_diff(*down) < 2);
        if is_lamp { 220 } else { 4 }
    };
    let config = PictureConfig { frozen_after: None, ..PictureConfig::default() };
    assert_eq!(Watch::new(&config).see_for(10, |_| grey(lamps)), [(0.1, Sight::Good)]);
}

#[test]
fn a_covered_lens_is_uniform_and_one_small_part_on_a_bare_table_is_not() {
    let config = PictureConfig { frozen_after: None, ..PictureConfig::default() };
    // A little more light on the left, and the noise of a sensor.
    let covered = |number: u32| {
        grey(move |x, y| {
            let place = small(x) * 7919 + small(y) * 104_729 + number;
            let chance = place.wrapping_mul(2_654_435_761) >> 24;
            u8::try_from(70 - small(x) / 20 + chance % 12).unwrap()
        })
    };
    told_after(&Watch::new(&config).see_for(5, covered), Sight::Uniform);
    let screw = |x: usize, y: usize| if x.abs_diff(100) < 4 && y.abs_diff(120) < 4 { 40 } else { 140 };
    assert_eq!(Watch::new(&config).see_for(10, |_| grey(screw)), [(0.1, Sight::Good)]);
}

#[test]
fn a_picture_at_the_limit_does_not_flap() {
    let config = PictureConfig { frozen_after: None, ..PictureConfig::default() };
    let mut watch = Watch::new(&config);
    // The limit is 31. Noise takes a part of the picture beyond it, more and less of it.
    let dusk = |number: u32| grey(move |x, y| if x == 160 && y > 100 { 29 + (number % 5) as u8 } else { 10 });
    let told = watch.see_for(120, dusk);
    assert!(told.len() <= 2, "{told:?}");
    // Neither does light that comes for a moment, nor dark.
    watch.see_for(5, |_| grey(|_, _| 3));
    let flash = |number: u32| grey(move |x, y| if number.is_multiple_of(20) { scene(x, y) } else { 3 });
    assert_eq!(watch.see_for(60, flash), [(0.1, Sight::Dark)]);
    watch.see_for(5, |_| grey(scene));
    let blink = |number: u32| grey(move |x, y| if number.is_multiple_of(20) { 3 } else { scene(x, y) });
    assert_eq!(watch.see_for(60, blink), [(0.1, Sight::Good)]);
}

#[test]
fn light_that_comes_back_is_told_soon() {
    let mut watch = Watch::new(&PictureConfig::default());
    watch.see_for(10, |number| grey(move |_, _| 3 + (number % 3) as u8));
    let told = watch.see_for(5, |number| noisy(number, 9));
    assert_eq!(told[0].1, Sight::Dark, "not at once");
    assert!(told_after(&told, Sight::Good) <= 2.0, "{told:?}");
}

#[test]
fn whole_pictures_are_looked_at_a_few_times_a_second() {
    let (mut watch, frame) = (Watch::new(&PictureConfig::default()), grey(scene));
    let mut looks = 0;
    for _ in 0..10 * FPS {
        looks += u32::from(watch.watch.is_due(watch.now + Duration::from_secs(1) / FPS));
        watch.see(&frame);
    }
    assert!((20..=50).contains(&looks), "{looks} looks in 10 s");
}

#[test]
fn pictures_of_another_size_and_another_connection_begin_anew() {
    let mut watch = Watch::new(&PictureConfig::default());
    told_after(&watch.see_for(6, |_| grey(scene)), Sight::Frozen);
    watch.watch.restart();
    assert_eq!(watch.see(&grey(scene)), Sight::Good);
    told_after(&watch.see_for(6, |_| grey(scene)), Sight::Frozen);
    assert_eq!(watch.see(&picture(PixelFormat::Rgb, ColorRange::Full, scene)), Sight::Good);
}

#[test]
fn pictures_of_cameras_are_watched_and_those_of_patterns_and_files_only_if_they_are_played_as_cameras() {
    let config = |address| CameraConfig::new(CameraId::new("a"), address);
    let file = |name: &str, replay| CameraConfig { replay, ..config(Address::File(name.into())) };
    let pattern = TestPattern {
        width: 8,
        height: 8,
        rate: Rate::PerSecond(5.0),
        frames: None,
        format: PixelFormat::Gray8,
    };
    let at_a_pace = Some(Replay::OwnPace);
    for (config, is_watched) in [
        (config(Address::Rtsp("rtsp://cam/1".parse().unwrap())), true),
        (config(Address::V4l2("/dev/video0".into())), true),
        (config(Address::Test(pattern)), false),
        (file("a.mp4", None), false),
        (file("a.mp4", Some(Replay::Rate(Rate::Max))), false),
        (file("a.mp4", at_a_pace), true),
        (file("a.png", at_a_pace), false),
    ] {
        assert_eq!(config.is_watched(), is_watched, "{config:?}");
        for (watch, told) in [(Watching::On, true), (Watching::Off, false)] {
            let picture = PictureConfig { watch, ..config.picture };
            assert_eq!(CameraConfig { picture, ..config.clone() }.is_watched(), told);
        }
    }
}
