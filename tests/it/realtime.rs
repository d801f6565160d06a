//! What keeps Gantry on time, seen from outside: where its threads are, how they are scheduled, what of it is locked in RAM,
//! and what it says where the system refuses.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Running, SOON, eventually, root};

/// A file that takes some time, for a device that takes its time.
#[cfg(feature = "gstreamer")]
const BELT: &str = "
node: line-7
models: {dir: $ROOT/models}
devices: [{id: fake0, backend: fake, fake: {run_time: 100ms}}]
cameras: [{id: belt, source: '$ROOT/tests/data/belt.mp4', detect: [{model: line-parts}]}]
publish: {detections: every_frame, stdout: true}
";

/// A camera that Gantry makes itself.
const PATTERN: &str = "
node: line-7
models: {dir: $ROOT/models}
devices: [{id: fake0, backend: fake, fake: {run_time: 2ms}}]
cameras: [{id: press-1, source: 'test://pattern?size=320x240&rate=50', detect: [{model: line-parts}]}]
publish: {detections: every_frame, stdout: true}
";

/// A thread of another process.
#[derive(Clone, Debug)]
struct Thread {
    name: String,
    /// As `0-3`.
    cpus: String,
    /// Its policy, as the kernel numbers them: 0 is ordinary, 1 is FIFO, 2 is RR.
    policy: u32,
    priority: u32,
    nice: i32,
}

fn threads(running: &Running) -> Vec<Thread> {
    let tasks = format!("/proc/{}/task", running.pid().as_raw_nonzero());
    let read = |task: &Path, file: &str| std::fs::read_to_string(task.join(file)).ok();
    let thread = |task: &Path| {
        let status = read(task, "status")?;
        let stat = read(task, "stat")?;
        // The fields after the name, which may hold anything; the third of the file is the first of them.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(Thread {
            name: read(task, "comm")?.trim_end().to_owned(),
            cpus: cpus.trim().to_owned(),
            nice: fields[19 - 3].parse().ok()?,
            priority: fields[40 - 3].parse().ok()?,
            policy: fields[41 - 3].parse().ok()?,
        })
    };
    // One that ends meanwhile is none.
    std::fs::read_dir(tasks).unwrap().filter_map(|task| thread(&task.unwrap().path())).collect()
}

/// A line of `/proc/<pid>/status`, in KiB.
fn status_kib(running: &Running, field: &str) -> u64 {
    let file = format!("/proc/{}/status", running.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(file).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The first and the last CPU that this test may use; the same where there is one.
fn two_cpus() -> (String, String) {
    let mine = gantry::threads::cpus::Cpus::of_this_thread().unwrap();
    let (first, last) = (mine.iter().next().unwrap(), mine.iter().last().unwrap());
    (first.to_string(), last.to_string())
}

#[cfg(feature = "gstreamer")]
#[test]
fn every_thread_has_a_known_name_and_runs_where_the_config_says() {
    let (one, other) = two_cpus();
    let config = BELT
        .replace("run_time: 100ms}}]", "run_time: 100ms}}, {id: cpu0, backend: embedded, cpus: [$ONE]}]")
        .replace(
            "{model: line-parts}",
            "{model: line-parts, devices: [cpu0]}, {model: line-parts, devices: [fake0]}",
        )
        .replace("stdout: true", "stdout: true, mqtt: {broker: 'mqtt://127.0.0.1:9'}");
    let config = format!("{config}realtime: {{cpus: {{source: [$ONE], infer: [$OTHER], io: [$OTHER]}}}}\n");
    let config = config.replace("$ONE", &one).replace("$OTHER", &other);
    let gantry = Running::start(&config);
    eventually("events come", SOON, || gantry.lines().len() > 4);
    let places = [
        ("gantry", &other),
        ("signals", &other),
        ("io", &other),
        ("io/dns", &other),
        ("out/stdout", &other),
        ("src/belt", &one),
        // libav's own threads, and GLib's, which a camera's thread or the first one has started.
        ("av:h264", &one),
        ("pool-", &one),
        ("dev/fake0", &other),
        ("dev/cpu0", &one),
        ("gmain", &other),
        ("gdbus", &other),
    ]
    .map(|(name, cpus): (&str, &String)| (name, cpus.as_str()));
    let all = threads(&gantry);
    for thread in &all {
        let is_known = |name: &str| match name {
            "av:h264" | "pool-" => thread.name.starts_with(name),
            _ => thread.name == name,
        };
        let place = places.iter().find(|(name, _)| is_known(name));
        let (_, cpus) = place.unwrap_or_else(|| panic!("nobody knows {thread:?} of {all:#?}"));
        assert_eq!(thread.cpus, *cpus, "{thread:?} of {all:#?}");
    }
    for name in ["gantry", "signals", "io", "out/stdout", "src/belt", "dev/fake0", "dev/cpu0"] {
        assert!(all.iter().any(|thread| thread.name == name), "{name} is missing in {all:#?}");
    }
    let streaming = all.iter().filter(|thread| thread.name == "src/belt").count();
    assert!(streaming >= 3, "its own thread and some of GStreamer's: {all:#?}");
}

#[test]
fn threads_of_onnx_runtime_stay_on_the_cpus_of_their_device() {
    let (one, other) = two_cpus();
    if one == other {
        eprintln!("SKIP threads_of_onnx_runtime_stay_on_the_cpus_of_their_device: there is one CPU");
        return;
    }
    let config = PATTERN.replace(
        "{id: fake0, backend: fake, fake: {run_time: 2ms}}",
        &format!("{{id: cpu0, backend: onnxruntime, threads: 2, cpus: [{one}, {other}]}}"),
    );
    let mut gantry =
        Running::start(&format!("{config}realtime: {{cpus: {{infer: [{other}], io: [{other}]}}}}\n"));
    let mut ended = None;
    eventually("events come", SOON, || {
        ended = gantry.ended();
        ended.is_some() || gantry.lines().len() > 4
    });
    if ended.is_some() {
        assert!(gantry.log().contains("onnxruntime is not on this machine"), "{}", gantry.log());
        eprintln!("SKIP threads_of_onnx_runtime_stay_on_the_cpus_of_their_device: onnxruntime is not here");
        return;
    }
    let all = threads(&gantry);
    // The runtime's threads (one of the pool, one of its environment) keep the name of the one that started them.
    let device: Vec<_> = all.iter().filter(|thread| thread.name == "dev/cpu0").collect();
    assert!((2..=3).contains(&device.len()), "{all:#?}");
    let both =
        [one.parse().unwrap(), other.parse().unwrap()].into_iter().collect::<gantry::threads::cpus::Cpus>();
    assert!(device.iter().all(|thread| thread.cpus == both.to_string()), "{all:#?}");
}

/// Whether this process may give priorities.
fn may_give_priorities() -> bool {
    let probe: Value = serde_json::from_slice(&crate::support::gantry(&["probe", "--json"]).stdout).unwrap();
    probe["threads"]["real_time_cure"].is_null()
}

#[test]
fn threads_are_scheduled_as_the_config_says() {
    if !may_give_priorities() {
        eprintln!("SKIP threads_are_scheduled_as_the_config_says: this user may give no priorities");
        return;
    }
    let scheduling = "realtime: {scheduling: {source: fifo 20, infer: rr 10, io: nice 5, grant: require}}\n";
    let gantry = Running::start(&format!("{PATTERN}{scheduling}"));
    eventually("events come", SOON, || gantry.lines().len() > 4);
    let all = threads(&gantry);
    for thread in &all {
        let (policy, priority, nice) = match thread.name.as_str() {
            "src/press-1" => (1, 20, 0),
            "dev/fake0" => (2, 10, 0),
            // The first thread starts the others, and keeps its weight for them.
            "gantry" => (0, 0, 0),
            _ => (0, 0, 5),
        };
        assert_eq!(
            (thread.policy, thread.priority, thread.nice),
            (policy, priority, nice),
            "{thread:?} of {all:#?}"
        );
    }
    assert!(
        all.iter().any(|thread| thread.policy == 1) && all.iter().any(|thread| thread.policy == 2),
        "{all:#?}"
    );
}

/// `gantry` as somebody else, or none where this test may not be that.
fn restricted(how: &[&str], config: Option<&str>, args: &[&str]) -> Option<Output> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gantry.yaml");
    if let Some(config) = config {
        std::fs::write(&file, config.replace("$ROOT", root().to_str().unwrap())).unwrap();
    }
    let mut command = Command::new(how[0]);
    command.args(&how[1..]).arg(env!("CARGO_BIN_EXE_gantry")).args(args);
    if config.is_some() {
        command.arg("-c").arg(&file);
    }
    let output = command.current_dir(root()).stdin(Stdio::null()).output().ok()?;
    // What is not there, or may not do it, ends like this.
    let refused = matches!(output.status.code(), Some(1 | 126 | 127));
    if refused {
        eprintln!("{how:?} cannot be used here: {}", String::from_utf8_lossy(&output.stderr));
    }
    (!refused).then_some(output)
}

/// Ways to have less than root: what to put before the program's name.
const NO_CAPABILITY: &[&str] = &["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"];
const SMALL_LIMIT: &[&str] =
    &["prlimit", "--memlock=65536", "setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"];

/// A camera whose pictures come to an end.
fn short(realtime: &str) -> String {
    format!("{}realtime: {realtime}\n", PATTERN.replace("rate=50", "rate=50&frames=5"))
}

#[test]
fn what_the_kernel_refuses_is_told_with_the_cure_and_ends_the_start_only_where_it_is_required() {
    let refused = "{lock_memory: off, scheduling: {source: fifo 20, grant: $GRANT}}";
    let test =
        |grant: &str| restricted(NO_CAPABILITY, Some(&short(&refused.replace("$GRANT", grant))), &["run"]);
    let (Some(auto), Some(require)) = (test("auto"), test("require")) else {
        eprintln!("SKIP what_the_kernel_refuses_…: setpriv cannot be used here");
        return;
    };
    let log = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let told = "the kernel refuses `fifo 20`; write LimitRTPRIO=20 into the unit, or give the capability CAP_SYS_NICE";
    assert_eq!(auto.status.code(), Some(0), "{}", log(&auto));
    assert_eq!(log(&auto).matches(told).count(), 1, "once, and it goes on: {}", log(&auto));
    assert!(!auto.stdout.is_empty(), "events come");
    assert_eq!(require.status.code(), Some(78), "{}", log(&require));
    assert!(
        log(&require).contains(&format!("realtime.scheduling.grant is require: {told}")),
        "{}",
        log(&require)
    );
}

#[test]
fn memory_is_locked_where_it_may_be_and_is_not_where_nobody_wants_it() {
    let probe: Value = serde_json::from_slice(&crate::support::gantry(&["probe", "--json"]).stdout).unwrap();
    for (wish, wanted) in [("require", true), ("auto", true), ("off", false)] {
        if wanted && !probe["memory"]["lock_cure"].is_null() {
            eprintln!("SKIP memory_is_locked_where_it_may_be: this user may lock none");
            continue;
        }
        let gantry = Running::start(&format!("{PATTERN}realtime: {{lock_memory: {wish}}}\n"));
        eventually("events come", SOON, || gantry.lines().len() > 4);
        assert_eq!(status_kib(&gantry, "VmLck") > 0, wanted, "{wish}");
        // Only what is used is in RAM: a thread's 8 MiB of addresses are not.
        assert!(gantry.resident() < 300 << 20, "{wish}: {} bytes are in RAM", gantry.resident());
    }
}

#[test]
fn under_a_small_limit_gantry_goes_on_unlocked_or_does_not_start_as_the_config_says() {
    let test =
        |wish: &str| restricted(SMALL_LIMIT, Some(&short(&format!("{{lock_memory: {wish}}}"))), &["run"]);
    let (Some(auto), Some(require)) = (test("auto"), test("require")) else {
        eprintln!("SKIP under_a_small_limit_…: prlimit and setpriv cannot be used here");
        return;
    };
    let log = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let told = "memory cannot be locked in RAM, because the limit is 64 KiB; write LimitMEMLOCK=infinity into the unit";
    assert_eq!(auto.status.code(), Some(0), "{}", log(&auto));
    assert_eq!(log(&auto).matches(told).count(), 1, "{}", log(&auto));
    assert!(!auto.stdout.is_empty(), "events come");
    assert_eq!(require.status.code(), Some(78), "{}", log(&require));
    assert!(log(&require).contains(&format!("realtime.lock_memory is require: {told}")), "{}", log(&require));
    // And `check` refuses what `run` refuses.
    let wanted = short("{lock_memory: require, scheduling: {io: fifo 3, grant: require}}");
    let check = restricted(SMALL_LIMIT, Some(&wanted), &["check"]).unwrap();
    let text = String::from_utf8_lossy(&check.stdout);
    assert_eq!(check.status.code(), Some(78), "{text}");
    assert!(
        text.contains(told) && text.contains("LimitRTPRIO=3") && text.ends_with("2 mistakes\n"),
        "{text}"
    );
}

#[test]
fn probe_tells_whoever_asks_what_they_may_and_how_to_get_the_rest() {
    let json = |output: &Output| serde_json::from_slice::<Value>(&output.stdout).unwrap();
    let cures = |report: &Value| {
        report["advice"].as_array().unwrap().iter().map(|a| a["cure"].to_string()).collect::<String>()
    };
    let here = json(&crate::support::gantry(&["probe", "--json"]));
    assert!(here["memory"]["total_bytes"].as_u64().unwrap() > 1 << 20, "{here}");
    // A control group may give less time than it gives CPUs.
    let cpus = here["threads"]["cpus"].as_array().unwrap().len();
    assert!((1..=cpus as u64).contains(&here["processors"].as_u64().unwrap()), "{here}");
    let Some(small) = restricted(SMALL_LIMIT, None, &["probe", "--json"]) else {
        eprintln!("SKIP probe_tells_whoever_asks: prlimit and setpriv cannot be used here");
        return;
    };
    let small = json(&small);
    assert_eq!(small["memory"]["lock_limit_bytes"], 65536);
    assert_eq!(small["memory"]["cap_ipc_lock"], false);
    assert!(
        cures(&small).contains("LimitMEMLOCK=infinity") && cures(&small).contains("LimitRTPRIO"),
        "{small}"
    );
    // With the capability the limit does not matter, and without advice nothing is said of it.
    if here["memory"]["cap_ipc_lock"] == true {
        let capable = json(&restricted(&["prlimit", "--memlock=65536"], None, &["probe", "--json"]).unwrap());
        assert_eq!(capable["memory"]["lock_limit_bytes"], 65536);
        assert!(capable["memory"]["lock_cure"].is_null(), "{capable}");
        assert!(!cures(&capable).contains("LimitMEMLOCK"), "{capable}");
    }
    let text = restricted(SMALL_LIMIT, None, &["probe"]).unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in ["locked in RAM: refused, limit 64 KiB and no CAP_IPC_LOCK", "fifo and rr: refused, limit 0"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn probe_works_for_an_ordinary_user() {
    // A copy where everybody may run it: the build may lie in root's own home.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("gantry");
    std::fs::copy(env!("CARGO_BIN_EXE_gantry"), &copy).unwrap();
    let open = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(dir.path());
    open(&copy);
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&copy);
        command
    } else {
        Command::new(&copy)
    };
    let output =
        command.args(["probe", "--json"]).current_dir("/").env("HOME", "/nonexistent").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["memory"]["cap_ipc_lock"], false);
    assert_eq!(report["threads"]["cap_sys_nice"], false);
    for advice in report["advice"].as_array().unwrap() {
        let (what, cure) = (advice["what"].as_str().unwrap(), advice["cure"].as_str().unwrap());
        assert!(!what.is_empty() && !cure.is_empty() && !cure.contains('\n'), "{advice}");
    }
}
