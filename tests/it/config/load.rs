//! `load` on real files: what is read besides the file, and what `config print` makes of it.

use std::fs;
use std::path::{Path, PathBuf};

use gantry::backend::{BackendChoice, BackendKind};
use gantry::cli;
use gantry::config::{Listen, load, print};
use gantry::frame::CameraId;
use gantry::source::{Address, CameraConfig};
use gantry::yaml::{self, Problem};
use tempfile::TempDir;

use super::support::{check, good};

/// `models/line-parts/1.0.0` and `config/`, in a scratch folder.
fn plant() -> (TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let bundle = scratch.path().join("models/line-parts/1.0.0");
    fs::create_dir_all(&bundle).unwrap();
    fs::write(bundle.join("model.yaml"), "").unwrap();
    // Neither is a model: a version without a manifest, and a file.
    fs::create_dir_all(scratch.path().join("models/half/1.0.0")).unwrap();
    fs::write(scratch.path().join("models/README.md"), "").unwrap();
    fs::create_dir(scratch.path().join("config")).unwrap();
    let file = scratch.path().join("config/gantry.yaml");
    (scratch, file)
}

fn problems(file: &Path) -> Vec<Problem> {
    load(file).unwrap_err().problems
}

const SECRETS: &str = "\
cameras:
  - id: press-1
    source: rtsp://10.0.0.7/stream1
    username: viewer
    password_file: press-1.password
    detect: [{model: line-parts}]
  - id: press-2
    source: rtsp://view%65r:hunt%40er3@10.0.0.8/stream1
    detect: [{model: line-parts}]
publish:
  mqtt: {broker: \"mqtt://broker\", username: line-7, password_env: CARGO_MANIFEST_DIR}
";

#[test]
fn passwords_come_from_files_the_environment_and_addresses_and_are_never_shown() {
    let (scratch, file) = plant();
    fs::write(&file, SECRETS).unwrap();
    fs::write(scratch.path().join("config/press-1.password"), "hunter2\n").unwrap();
    let config = load(&file).unwrap();
    let reveal = |index: usize| config.cameras[index].source.password.as_ref().unwrap().reveal().to_owned();
    assert_eq!((reveal(0), reveal(1)), ("hunter2".to_owned(), "hunt@er3".to_owned()));
    assert_eq!(config.cameras[1].source.username.as_deref(), Some("viewer"));
    assert_eq!(config.cameras[1].source.address.to_string(), "rtsp://10.0.0.8/stream1");
    let mqtt = config.publish.mqtt.as_ref().unwrap();
    assert_eq!(mqtt.password.as_ref().unwrap().reveal(), env!("CARGO_MANIFEST_DIR"));
    let printed = cli::config::print(&file).unwrap();
    for shown in [format!("{config:?}"), print(&config), printed.clone()] {
        assert!(!shown.contains("hunter2") && !shown.contains("er3"), "{shown}");
        assert!(!shown.contains(&format!("\"{}\"", env!("CARGO_MANIFEST_DIR"))), "{shown}");
    }
    assert!(
        printed.contains(&format!("password_file: {}/config/press-1.password\n", scratch.path().display()))
    );
    assert!(printed.contains("password_env: CARGO_MANIFEST_DIR\n"), "{printed}");
    assert_eq!(print(&config).matches("# a password is set and not shown").count(), 3);
}

#[test]
fn a_password_in_the_query_of_an_address_is_not_printed_and_the_rest_loads_again() {
    let (scratch, file) = plant();
    let camera = |id: &str, source: &str| {
        format!("  - {{id: {id}, source: '{source}', detect: [{{model: line-parts}}]}}\n")
    };
    let text = [
        "cameras:\n".to_owned(),
        camera("a", "rtsp://10.0.0.7/live?user=u&password=hunter2&channel=1"),
        camera("b", "rtsp://10.0.0.8/live?Token=hunter2#hunter2"),
        camera("c", "rtsp://10.0.0.9/live?channel=1&subtype=0"),
        "publish: {stdout: true}\n".to_owned(),
    ];
    fs::write(&file, text.concat()).unwrap();
    let config = load(&file).unwrap();
    let Address::Rtsp(url) = &config.cameras[0].source.address else { panic!() };
    assert_eq!(url.query(), Some("user=u&password=hunter2&channel=1"), "the camera gets it");
    let printed = cli::config::print(&file).unwrap();
    for shown in [&format!("{config:?}"), &print(&config), &printed] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(printed.contains("rtsp://10.0.0.7/live?user=u&password=…&channel=1"), "{printed}");
    assert!(printed.contains("rtsp://10.0.0.9/live?channel=1&subtype=0"), "{printed}");
    assert_eq!(printed.matches("# what may be a password is left out of this address").count(), 2);
    let elsewhere = scratch.path().join("elsewhere.yaml");
    fs::write(&elsewhere, &printed).unwrap();
    let mut again = load(&elsewhere).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
    for index in 0..2 {
        assert_ne!(again.cameras[index], config.cameras[index], "the password is missing");
        again.cameras[index].source.address = config.cameras[index].source.address.clone();
    }
    assert_eq!(again, config);
    assert_eq!(cli::config::print(&elsewhere).unwrap(), printed, "printing is stable");
}

#[test]
fn what_is_printed_loads_again_to_the_same_config_from_anywhere() {
    let (scratch, file) = plant();
    let elsewhere = scratch.path().join("elsewhere.yaml");
    fs::write(scratch.path().join("config/press-1.password"), "hunter2").unwrap();
    let odd = "node: 'no'\n\
               devices:\n  - {id: 0x1F, backend: fake, fake: {run_time: 1.5ms, fail_after: 7, hang_after: 0, outputs: o.f32}}\n\
               cameras:\n  - {id: 'a b: {c}', source: 'file://a%20%25 b.mp4', detect: [{model: line-parts@1.0.0, rate_max: 0.1, score_min: 0.3}]}\n  \
               - {id: t, source: 'test://pattern?size=1x1&rate=2.5&frames=3&format=RGB', stale_after: 90s, picture: {watch: on, frozen_after: off, dark_below: 0.5}, region: {x: 3, height: 40}, detect: [{model: line-parts, deadline: 2ms}]}\n  \
               - {id: u, cpus: [0], source: 'v4l2:///dev/v4l/by-id/usb-A%25', detect: [{model: line-parts, deadline: 1ms}]}\n\
               realtime: {lock_memory: 'off', huge_pages: require, cpus: {infer: [0]}, scheduling: {source: rr 9, infer: fifo 98, io: nice -20, force_infer: true, grant: require}}\n\
               publish: {stdout: true, detections: every_frame, mqtt: {broker: 'mqtt://[::1]:2883', username: \"\\\"#\", prefix: a/b c}}\n";
    for text in [SECRETS, odd] {
        fs::write(&file, text).unwrap();
        let config = load(&file).unwrap();
        let printed = cli::config::print(&file).unwrap();
        fs::write(&elsewhere, &printed).unwrap();
        let mut again = load(&elsewhere).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
        // What stood in an address is told by a comment only.
        if let (Some(camera), Some(same)) = (again.cameras.get_mut(1), config.cameras.get(1)) {
            camera.source.password.clone_from(&same.source.password);
        }
        assert_eq!(config, again, "{printed}");
        let lines = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.trim().starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(lines(&cli::config::print(&elsewhere).unwrap()), lines(&printed), "printing is stable");
    }
}

#[test]
fn a_password_that_cannot_be_read_is_told_with_its_place_beside_every_other_mistake() {
    let (scratch, file) = plant();
    fs::write(
        &file,
        SECRETS.replace("CARGO_MANIFEST_DIR", "GANTRY_NO_SUCH_VARIABLE").replace("press-2", "press/2"),
    )
    .unwrap();
    let told: Vec<_> =
        problems(&file).into_iter().map(|problem| (problem.place.unwrap().line, problem.path)).collect();
    let expected = [(5, "cameras[0].password_file"), (7, "cameras[1].id"), (11, "publish.mqtt.password_env")];
    assert_eq!(told, expected.map(|(line, path)| (line, path.to_owned())));

    fs::write(&file, SECRETS).unwrap();
    let secret = scratch.path().join("config/press-1.password");
    for (content, word) in [
        (&b""[..], "is empty"),
        (b"\n", "is empty"),
        (b"a\nb\n", "more than one line"),
        (b"caf\xe9", "is not UTF-8"),
        (&[b'x'; 5000], "more than 4096 bytes"),
    ] {
        fs::write(&secret, content).unwrap();
        let told = problems(&file);
        assert!(told.len() == 1 && told[0].message.contains(word), "{told:?}");
    }
}

#[test]
fn a_file_that_is_none_is_told_without_a_place() {
    let (scratch, file) = plant();
    let missing = load(&file).unwrap_err();
    assert_eq!(missing.problems.len(), 1);
    assert!(
        missing
            .to_string()
            .starts_with(&format!("{}: the file cannot be read: No such file", file.display()))
    );
    let folder = load(scratch.path()).unwrap_err();
    assert!(folder.to_string().contains("cannot be read: Is a directory"), "{folder}");
    fs::write(&file, "# \n".repeat(yaml::SIZE_MAX / 3 + 1)).unwrap();
    assert!(problems(&file)[0].message.contains("more than 1048576 bytes"));
    fs::write(&file, "").unwrap();
    assert!(problems(&file)[0].message.contains("the file is empty"));
}

#[test]
fn errors_are_lines_for_people_and_objects_for_machines() {
    let (_scratch, file) = plant();
    fs::write(
        &file,
        "cameras:\n  - {id: a, source: 'test://pattern', stale_after: 3, detect: [{model: line-part}]}\n\
                      publish: {stdout: true}\n",
    )
    .unwrap();
    let errors = load(&file).unwrap_err();
    let name = file.display();
    let lines = format!(
        "{name}:2:52: cameras[0].stale_after: 3 has no unit; write 3s or 3000ms\n\
         {name}:2:72: cameras[0].detect[0].model: there is no model line-part in ../models; did you mean line-parts? There is line-parts"
    );
    assert_eq!(errors.to_string(), lines);
    let json = serde_json::to_value(&errors).unwrap();
    let message = "3 has no unit; write 3s or 3000ms";
    let expected =
        serde_json::json!({"line": 2, "column": 52, "path": "cameras[0].stale_after", "message": message});
    assert_eq!(json["problems"][0], expected);
    assert_eq!(json["file"], serde_json::json!(file));
}

#[test]
fn a_models_directory_that_is_not_there_is_one_mistake_and_no_model_is_looked_for() {
    let (scratch, file) = plant();
    let text = "cameras: [{id: a, source: 'test://pattern', detect: [{model: b}, {model: c}]}]\npublish: {stdout: true}\n";
    fs::write(&file, format!("models: {{dir: nowhere}}\n{text}")).unwrap();
    let told = problems(&file);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].path.as_str(), told[0].place.unwrap().line), ("models.dir", 1));
    fs::remove_dir_all(scratch.path().join("models")).unwrap();
    fs::write(&file, text).unwrap();
    assert_eq!(problems(&file).len(), 1, "the default too");
}

#[test]
fn where_to_listen_is_an_address_off_or_the_usual_one_if_it_is_free() {
    let with = |admin: &str| {
        format!(
            "cameras: [{{id: a, source: 'file:///v.mkv', detect: [{{model: seals}}]}}]\npublish: {{stdout: true}}\n{admin}\n"
        )
    };
    let listen = |admin: &str| {
        let config = good(&with(admin));
        assert_eq!(good(&print(&config)).admin, config.admin, "it is printed as it is");
        config.admin.listen
    };
    assert_eq!(listen(""), Listen::IfFree);
    assert_eq!(listen("admin:"), Listen::IfFree);
    assert_eq!(listen("admin: {listen: off}"), Listen::Off);
    assert_eq!(listen("admin: {listen: 0.0.0.0:80}"), Listen::At("0.0.0.0:80".parse().unwrap()));
    assert_eq!(listen("admin: {listen: '[::1]:0'}"), Listen::At("[::1]:0".parse().unwrap()));
    for (wrong, cure) in [
        ("localhost:9464", "write 127.0.0.1:9464, or off"),
        ("9464", "write 127.0.0.1:9464 for this machine only, 0.0.0.0:9464 for all, or off"),
        ("':9464'", "write 127.0.0.1:9464 for this machine only, 0.0.0.0:9464 for all, or off"),
        ("127.0.0.1", "write 127.0.0.1:9464, or off"),
        ("http://10.0.0.7:80/", "write 10.0.0.7:80, or off"),
        ("'::1:9464'", "write '[::1]:9464', or off"),
        (
            "gantry.local:80",
            "write an IP address of this machine in place of the name, as 127.0.0.1:80, or off",
        ),
        ("127.0.0.1:99999", "write 127.0.0.1:9464, or off"),
        ("disabled", "write 127.0.0.1:9464, or off"),
    ] {
        let (validated, problems) = check(with(&format!("admin: {{listen: {wrong}}}")).as_bytes());
        assert!(validated.is_none_or(|validated| validated.config.is_none()), "{wrong}");
        let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert!(told.len() == 1 && told[0].ends_with(cure), "{wrong}: {told:?}");
    }
}

#[test]
fn every_default_is_filled_in() {
    let config = good(
        "cameras: [{id: 7, source: belt.mp4, detect: [{model: line-parts}]}]\npublish: {mqtt: {broker: 'mqtts://b'}}\n",
    );
    assert_eq!(config.node, "edge-7", "the host name, as a topic segment");
    assert_eq!(
        (config.devices.len(), config.devices[0].id.as_str(), config.devices[0].threads),
        (1, "cpu0", 2)
    );
    assert_eq!(config.devices[0].backend, BackendChoice::Auto);
    assert_eq!(config.models_dir, Path::new("/etc/gantry/../models"));
    let belt = CameraConfig::new(CameraId::new("7"), Address::File("/etc/gantry/belt.mp4".into()));
    assert_eq!(config.cameras[0].source, belt, "its defaults are those of the config");
    assert_eq!(config.cameras[0].detect[0].devices, ["cpu0"]);
    let mqtt = config.publish.mqtt.unwrap();
    assert_eq!((mqtt.host.as_str(), mqtt.port, mqtt.tls), ("b", 8883, true));
    assert_eq!(
        (mqtt.client_id.as_str(), mqtt.qos, mqtt.prefix.as_str(), mqtt.queue),
        ("gantry-edge-7", 1, "gantry", 1000)
    );
    let fake = good(
        "devices: [{id: f, backend: fake}]\ncameras: [{id: a, source: 'file:///v.mkv', detect: [{model: seals}]}]\n\
         publish: {stdout: true}\n",
    );
    assert_eq!(fake.devices[0].backend, BackendChoice::Named(BackendKind::Fake));
    assert_eq!(fake.devices[0].threads, 1);
    assert_eq!(fake.cameras[0].source.address, Address::File("/v.mkv".into()));
}
