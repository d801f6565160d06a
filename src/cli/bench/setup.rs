//! The config that `gantry bench` measures when it is not given one.

use std::time::Duration;

use super::BenchArgs;
use crate::backend::DeviceConfig;
use crate::backend::fake::FakeScript;
use crate::config::address::CameraAddress;
use crate::config::{AdminConfig, Camera, Config, Listen, Realtime};
use crate::daemon;
use crate::frame::CameraId;
use crate::preprocess::letterbox::RegionConfig;
use crate::publish::{Publish, PublishConfig};
use crate::scheduler::{BatchingConfig, DetectConfig, Late, Quality};
use crate::source::{Address, CameraConfig, Rate, Replay};

/// What the options say. Events are made of every frame and go as far as a thread that writes them to nowhere.
///
/// # Errors
/// What is wrong with them, and what to write instead.
pub(super) fn config(args: &BenchArgs) -> Result<Config, String> {
    let seen = source(args)?;
    let model = args.model.clone().ok_or("--model is missing")?;
    let camera = |number: u16| Camera {
        enabled: true,
        source: CameraConfig { id: CameraId::new(&format!("camera-{number}")), ..seen.clone() },
        detect: vec![DetectConfig {
            model: model.clone(),
            devices: Vec::new(),
            rate_max: None,
            deadline: None,
            late: Late::Drop,
            quality: Quality::Standard,
            weight: 1,
            score_min: None,
        }],
        region: RegionConfig::default(),
    };
    let device = DeviceConfig {
        id: "device-0".to_owned(),
        backend: args.device,
        threads: usize::from(args.device_threads),
        library: None,
        fake: FakeScript::default(),
    };
    Ok(Config {
        node: "bench".to_owned(),
        devices: vec![device],
        models_dir: args.models.clone().unwrap_or_else(daemon::default_models_dir),
        cameras: (1..=args.cameras).map(camera).collect(),
        batching: BatchingConfig {
            size_max: usize::from(args.batch),
            queue_delay_max: Duration::from_millis(5),
        },
        publish: PublishConfig { detections: Publish::EveryFrame, stdout: true, mqtt: None },
        realtime: Realtime::default(),
        admin: AdminConfig { listen: Listen::Off },
    })
}

/// What each camera sees.
fn source(args: &BenchArgs) -> Result<CameraConfig, String> {
    let CameraAddress { mut address, username, password } =
        CameraAddress::parse(&args.source).map_err(|wrong| format!("--source: {wrong}"))?;
    let mut replay = None;
    match (&mut address, args.rate) {
        (Address::Test(pattern), rate) => {
            if let Some((width, height)) = args.size {
                (pattern.width, pattern.height) = (width, height);
            }
            match rate {
                Some(Replay::Rate(rate)) => pattern.rate = rate,
                Some(Replay::OwnPace) => {
                    return Err("--rate own is for files; a test pattern has no times of its own".to_owned());
                }
                None => {}
            }
        }
        (Address::File(_), rate) => replay = Some(rate.unwrap_or(Replay::Rate(Rate::Max))),
        (Address::Rtsp(_) | Address::V4l2(_), None) => {}
        (Address::Rtsp(_) | Address::V4l2(_), Some(_)) => {
            return Err(
                "--rate is for test patterns and files; a camera sends as fast as it sends".to_owned()
            );
        }
    }
    if args.size.is_some() && !matches!(address, Address::Test(_)) {
        return Err("--size is for test patterns; anything else has a size of its own".to_owned());
    }
    // The id is each camera's own.
    let config = CameraConfig::new(CameraId::new("camera"), address);
    Ok(CameraConfig { username, password, replay, ..config })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Bench {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn made(options: &[&str]) -> Result<Config, String> {
        let line = ["bench", "--model", "line-parts"].iter().chain(options);
        config(&Bench::try_parse_from(line).map_err(|error| error.to_string())?.args)
    }

    fn address(options: &[&str]) -> String {
        made(options).unwrap().cameras[0].source.address.to_string()
    }

    #[test]
    fn each_camera_sees_what_the_options_say() {
        let config = made(&["--cameras", "3"]).unwrap();
        assert_eq!(config.cameras.len(), 3);
        assert_eq!(config.cameras[2].source.id.as_str(), "camera-3");
        assert_eq!(address(&[]), "test://pattern?size=1280x720&rate=max");
        assert_eq!(address(&["--size", "64x48", "--rate", "25"]), "test://pattern?size=64x48&rate=25");
        assert_eq!(address(&["--source", "test://pattern?rate=9"]), "test://pattern?size=640x480&rate=9");
    }

    #[test]
    fn a_file_is_played_again_and_again() {
        let replay = |options: &[&str]| {
            let config = made(&[&["--source", "belt.mp4"], options].concat()).unwrap();
            config.cameras[0].source.replay
        };
        assert_eq!(replay(&[]), Some(Replay::Rate(Rate::Max)));
        assert_eq!(replay(&["--rate", "own"]), Some(Replay::OwnPace));
        assert_eq!(replay(&["--rate", "12.5"]), Some(Replay::Rate(Rate::PerSecond(12.5))));
    }

    #[test]
    fn what_makes_no_sense_together_is_told() {
        for (options, word) in [
            (&["--source", "belt.mp4", "--size", "64x48"][..], "--size is for test patterns"),
            (&["--rate", "own"], "--rate own is for files"),
            (&["--source", "rtsp://camera/1", "--rate", "25"], "--rate is for test patterns and files"),
            (&["--source", "nonsense"], "--source: nonsense is no address"),
            (&["--rate", "0"], "from 0.01 to 1000"),
            (&["--size", "640"], "as in 640x480"),
            (&["--cameras", "0"], "1..=1024"),
            (&["--seconds", "0"], "seconds from 0.1"),
            (&["-c", "gantry.yaml"], "cannot be used with"),
        ] {
            let problem = made(options).unwrap_err();
            assert!(problem.contains(word), "{options:?}: {problem}");
        }
    }
}
