//! Every example config is run. Addresses of the factory become addresses of this machine, where nobody answers: then
//! the daemon must say so, and end well when it is asked to.

use rustix::process::Signal;

use crate::support::{Running, SOON, eventually, path};

/// The example as it would run on this machine.
fn example(name: &str, secrets: &std::path::Path) -> String {
    let text = std::fs::read_to_string(path("config/examples").join(name)).unwrap();
    let here = path("config/examples");
    text.replace("10.0.0.", "127.0.0.")
        .replace("broker.factory.example", "127.0.0.1")
        .replace("/run/credentials/gantry.service", secrets.to_str().unwrap())
        .replace("/etc/gantry", secrets.to_str().unwrap())
        .replace("../../", &format!("{}/../../", here.display()))
}

/// What the log says once every camera has been tried, in each example.
fn tried(name: &str) -> &'static [&'static str] {
    match name {
        "file.yaml" | "pattern.yaml" => &["stopping: all files have ended"],
        "rtsp.yaml" => &["nothing listens on 127.0.0.7:554"],
        "multi.yaml" => &["127.0.0.7:554", "127.0.0.8:554", "127.0.0.9:554", "127.0.0.10:554"],
        "usb.yaml" => &["/dev/video0"],
        other => panic!("{other} is new: say what its log must hold"),
    }
}

#[test]
fn every_example_runs() {
    let secrets = tempfile::tempdir().unwrap();
    for name in ["press-1", "mqtt", "ca.pem"] {
        std::fs::write(secrets.path().join(name), "hunter2\n").unwrap();
    }
    for entry in std::fs::read_dir(path("config/examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if cfg!(not(feature = "gstreamer")) && name != "pattern.yaml" {
            continue;
        }
        let mut gantry = Running::start(&example(&name, secrets.path()));
        eventually(&format!("{name} has been tried"), SOON, || {
            let log = gantry.log();
            tried(&name).iter().all(|words| log.contains(words))
        });
        if !matches!(name.as_str(), "file.yaml" | "pattern.yaml") {
            gantry.signal(Signal::TERM);
        }
        assert_eq!(gantry.wait(SOON).code(), Some(0), "{name}: {}", gantry.log());
        assert!(!gantry.log().contains("hunter2"), "{name} shows a password: {}", gantry.log());
    }
}
