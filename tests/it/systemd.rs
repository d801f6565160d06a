//! The unit in a systemd that is really booted: started, ready, watched, stopped, and not restarted when its config is wrong.
//!
//! `tests/rig/sdboot.sh` boots it in a container over this machine's own root, so that the program that was just built
//! finds its libraries. It needs root.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What happened inside.
#[derive(Debug)]
struct Booted {
    /// What the commands printed.
    output: String,
    /// What the unit's processes, and systemd about them, wrote to the journal.
    journal: String,
}

impl Booted {
    /// The rest of the line of `output` that begins with `key=`.
    fn value(&self, key: &str) -> &str {
        let line = self.output.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("{key} was not printed: {self:#?}"))
    }
}

/// Boots a systemd with `systemd/gantry.service` as it is, the built program, the shipped models and this config; runs
/// `script` in it. None, and SKIP, where this machine cannot boot one.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn boot(test: &str, config: &str, script: &str) -> Option<Booted> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = tempfile::tempdir().unwrap();
    let config_file = scratch.path().join("gantry.yaml");
    std::fs::write(&config_file, config).unwrap();
    let copy = |from: PathBuf, to: &str| format!("{}:{to}", from.display());
    let output = Command::new(root.join("tests/rig/sdboot.sh"))
        .args(["-t", "90", "-u"])
        .arg(root.join("systemd/gantry.service"))
        .args(["-f", &copy(env!("CARGO_BIN_EXE_gantry").into(), "/usr/bin/gantry")])
        .args(["-f", &copy(root.join("models"), "/usr/share/gantry/models")])
        .args(["-f", &copy(config_file, "/etc/gantry/gantry.yaml")])
        .arg(format!("set -u\n{script}"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) {
        eprintln!("SKIP {test}: {}", errors.trim());
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let (output_text, journal) = text.split_once("---- journal\n").unwrap_or((text.as_ref(), ""));
    assert!(output.status.success(), "the commands inside failed: {}\n{errors}\n{text}", output.status);
    Some(Booted { output: output_text.to_owned(), journal: journal.to_owned() })
}

/// A config with a camera that needs no hardware, and a device that does what `fake` says.
fn config(fake: &str) -> String {
    format!(
        "node: rig\n\
         devices: [{{id: cpu0, backend: fake, fake: {fake}}}]\n\
         models: {{dir: /usr/share/gantry/models}}\n\
         cameras:\n  \
           - id: belt\n    \
             source: test://pattern?size=320x240&rate=10\n    \
             detect: [{{model: line-parts}}]\n\
         publish: {{stdout: true}}\n"
    )
}

#[test]
fn the_unit_gets_ready_tells_its_status_and_stops_cleanly() {
    let test = "the_unit_gets_ready_tells_its_status_and_stops_cleanly";
    // `systemctl start` of a unit of Type=notify returns once it is ready, and fails if it never is.
    let script = "
        systemctl start gantry; echo start=$?
        systemctl show gantry -p ActiveState,SubState,StatusText,User,NRestarts
        pid=$(systemctl show -P MainPID gantry)
        echo uid=$(stat -c %u /proc/$pid)
        exec 3<>/dev/tcp/127.0.0.1/9464; printf 'GET /ready HTTP/1.0\\r\\n\\r\\n' >&3; echo http=$(head -1 <&3)
        systemctl stop gantry; echo stop=$?
        systemctl show gantry -p Result,ExecMainCode,ExecMainStatus | sed s/^/stopped/
        systemctl show gantry -p ActiveState | sed s/^/stopped/";
    let Some(booted) = boot(test, &config("{run_time: 1ms}"), script) else { return };
    assert_eq!(booted.value("start"), "0", "{booted:#?}");
    assert_eq!((booted.value("ActiveState"), booted.value("SubState")), ("active", "running"), "{booted:#?}");
    assert!(
        booted.value("StatusText").contains("camera"),
        "its status says nothing of its camera: {booted:#?}"
    );
    assert_ne!(booted.value("uid"), "0", "it runs as root");
    assert!(
        booted.value("http").starts_with("HTTP/1.0 200 OK"),
        "its HTTP server cannot be reached: {booted:#?}"
    );
    assert_eq!(booted.value("stop"), "0", "{booted:#?}");
    assert_eq!(booted.value("stoppedResult"), "success", "{booted:#?}");
    assert_eq!(booted.value("stoppedExecMainStatus"), "0", "{booted:#?}");
    assert_eq!(booted.value("stoppedActiveState"), "inactive", "{booted:#?}");
    assert_eq!(booted.value("NRestarts"), "0", "{booted:#?}");
}

#[test]
fn the_unit_lets_all_memory_be_locked() {
    let test = "the_unit_lets_all_memory_be_locked";
    // Where this machine's own limit is lower than the unit's, and may not be raised, systemd gives no more than that; the
    // capability then stands in for the limit, as far as the unit's other settings let the kernel be asked at all.
    let script = r"
        echo asked=$(systemctl show -P LimitMEMLOCK gantry)
        if ! grep -q 'Max locked memory *unlimited *unlimited' /proc/1/limits; then
            mkdir -p /etc/systemd/system/gantry.service.d
            printf '[Service]\nAmbientCapabilities=CAP_IPC_LOCK\n' >/etc/systemd/system/gantry.service.d/lock.conf
            systemctl daemon-reload
        fi
        systemctl start gantry; echo start=$?
        pid=$(systemctl show -P MainPID gantry)
        echo locked=$(awk '/^VmLck/ { print $2 }' /proc/$pid/status)
        echo uid=$(stat -c %u /proc/$pid)
        systemctl stop gantry; echo stop=$?";
    let required = format!("{}realtime: {{lock_memory: require}}\n", config("{run_time: 1ms}"));
    let Some(booted) = boot(test, &required, script) else { return };
    assert_eq!(booted.value("asked"), "infinity", "{booted:#?}");
    assert_eq!(booted.value("start"), "0", "{booted:#?}");
    assert!(booted.value("locked").parse::<u64>().unwrap() > 10_000, "KiB: {booted:#?}");
    assert_ne!(booted.value("uid"), "0", "it runs as root");
    assert_eq!(booted.value("stop"), "0", "{booted:#?}");
}

#[test]
fn a_device_that_hangs_is_noticed_by_the_watchdog_and_the_unit_is_restarted() {
    let test = "a_device_that_hangs_is_noticed_by_the_watchdog_and_the_unit_is_restarted";
    // What ends the waiting is the restart, or sdboot's limit.
    let script = "
        systemctl start gantry; echo start=$?
        until [ $(systemctl show -P NRestarts gantry) -ge 1 ]; do sleep 0.1; done
        until [ $(systemctl is-active gantry) = active ]; do sleep 0.1; done
        systemctl show gantry -p NRestarts,ActiveState
        systemctl stop gantry";
    let Some(booted) = boot(test, &config("{hang_after: 20}"), script) else { return };
    assert_eq!(booted.value("start"), "0", "{booted:#?}");
    assert_eq!(booted.value("NRestarts"), "1", "{booted:#?}");
    assert_eq!(booted.value("ActiveState"), "active", "it did not get ready again: {booted:#?}");
    assert!(booted.journal.contains("Watchdog timeout"), "{booted:#?}");
    assert!(booted.journal.contains("Failed with result 'watchdog'"), "{booted:#?}");
}

#[test]
fn a_wrong_config_is_told_with_its_place_and_the_unit_is_not_restarted() {
    let test = "a_wrong_config_is_told_with_its_place_and_the_unit_is_not_restarted";
    // A unit that will be restarted is `activating` from the moment it failed on, one that will not be is `failed`.
    let script = "
        systemctl start gantry; echo start=$?
        systemctl show gantry -p ActiveState,Result,ExecMainStatus,NRestarts";
    // `cameras` is on line 4, its first key on line 5.
    let wrong = config("{}").replace("- id: belt", "- idd: belt");
    let Some(booted) = boot(test, &wrong, script) else { return };
    assert_ne!(booted.value("start"), "0", "{booted:#?}");
    assert_eq!(booted.value("ExecMainStatus"), "78", "{booted:#?}");
    assert_eq!((booted.value("ActiveState"), booted.value("Result")), ("failed", "exit-code"), "{booted:#?}");
    assert_eq!(booted.value("NRestarts"), "0", "{booted:#?}");
    assert!(booted.journal.contains(":5:5: "), "the place of the mistake is not in the journal: {booted:#?}");
    assert!(booted.journal.contains("idd"), "{booted:#?}");
}

#[test]
fn what_went_wrong_can_be_found_in_the_journal_by_its_priority() {
    let test = "what_went_wrong_can_be_found_in_the_journal_by_its_priority";
    let script = "
        systemctl start gantry; echo start=$?
        systemctl stop gantry
        journalctl --sync
        journalctl -u gantry -p err -o cat | sed s/^/err=/";
    let camera = "  - {id: lost, source: 'file:///lost.png', detect: [{model: line-parts}]}\npublish";
    let Some(booted) = boot(test, &config("{}").replace("publish", camera), script) else { return };
    assert_eq!(booted.value("start"), "0", "{booted:#?}");
    let errors: Vec<_> = booted.output.lines().filter(|line| line.starts_with("err=")).collect();
    assert_eq!(errors.len(), 1, "{booted:#?}");
    assert!(errors[0].contains("file:///lost.png cannot be opened: there is no such file"), "{booted:#?}");
    assert!(booted.journal.contains("INFO stopping") && !booted.journal.contains("<6>"), "{booted:#?}");
}
