//! `gantry detect` as a person meets it: what it prints, in which order, and what it does with files that are none.

use std::io::{BufRead, BufReader};
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Running, SOON, gantry, pause, raw_frames};

const GOLDEN: &str = "models/line-parts/1.0.0/golden";

fn detect(args: &[&str]) -> (Option<i32>, String, String) {
    let output = gantry(&[&["detect", "--model", "line-parts", "--backend", "embedded"], args].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn results_come_in_the_order_of_the_files_and_of_their_frames() {
    let dir = tempfile::tempdir().unwrap();
    let video = raw_frames(dir.path(), 30);
    let pictures = ["640x480.png", "640x360.jpg"].map(|name| format!("{GOLDEN}/{name}"));
    let (code, out, log) = detect(&["--json", &pictures[0], &video, &pictures[1]]);
    assert_eq!(code, Some(0), "{log}");
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let seen: Vec<_> = lines
        .map(|event| (event["camera"].as_str().unwrap().to_owned(), event["frame"]["id"].as_u64().unwrap()))
        .collect();
    let mut expected = vec![("640x480.png".to_owned(), 1)];
    expected.extend((1..=30).map(|frame| ("frames.y4m".to_owned(), frame)));
    expected.push(("640x360.jpg".to_owned(), 1));
    assert_eq!(seen, expected);
}

#[test]
fn a_file_that_is_none_is_told_and_the_others_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (empty, page) = (file("empty.png", ""), file("page.jpg", "<html>"));
    let picture = format!("{GOLDEN}/640x480.png");
    let mut files = vec!["no-such.png", &empty, &page, &picture];
    if cfg!(feature = "gstreamer") {
        // A folder has no name of a picture, so it is for GStreamer to say what it is.
        files.push(GOLDEN);
    }
    let (code, out, log) = detect(&files);
    assert_eq!(code, Some(75), "{log}");
    for (what, why) in [("no-such.png", "no such file"), ("empty.png", "empty"), ("page.jpg", "HTML")] {
        let told: Vec<_> = log.lines().filter(|line| line.contains(what) && line.contains(why)).collect();
        assert_eq!(told.len(), 1, "{what} is told once: {log}");
    }
    assert!(out.contains("640x480.png frame 1"), "{out}");
    assert!(out.lines().last().unwrap().starts_with("1 frame: "), "{out}");
}

#[test]
fn a_picture_of_one_pixel_is_a_picture() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("one.png");
    image::RgbImage::new(1, 1).save(&file).unwrap();
    let out = dir.path().join("out");
    let (code, text, log) = detect(&[file.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{log}");
    assert!(text.contains("1x1: nothing\n1 frame: nothing"), "{text}");
    assert_eq!(names(&out), ["one.jpg"]);
}

#[test]
fn every_nth_frame_is_annotated_and_files_of_one_name_do_not_overwrite_each_other() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let videos = [raw_frames(dirs[0].path(), 5), raw_frames(dirs[1].path(), 3)];
    let out = dirs[0].path().join("out");
    let out_text = out.to_str().unwrap();
    let (code, _, log) = detect(&[&videos[0], &videos[1], "--out", out_text, "--every", "2"]);
    assert_eq!(code, Some(0), "{log}");
    let expected = [
        "frames-000001.jpg",
        "frames-000003.jpg",
        "frames-000005.jpg",
        "frames-2-000001.jpg",
        "frames-2-000003.jpg",
    ];
    assert_eq!(names(&out), expected);
}

#[test]
fn an_annotated_picture_never_takes_the_place_of_the_one_that_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let picture = dir.path().join("640x360.jpg");
    std::fs::copy(crate::support::path(GOLDEN).join("640x360.jpg"), &picture).unwrap();
    let before = std::fs::read(&picture).unwrap();
    let (code, _, log) = detect(&[picture.to_str().unwrap(), "--out", dir.path().to_str().unwrap()]);
    assert_eq!(code, Some(64), "{log}");
    assert!(log.contains("another --out"), "{log}");
    assert_eq!(std::fs::read(&picture).unwrap(), before);
}

#[test]
fn pictures_that_cannot_be_written_are_told_and_are_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let picture = format!("{GOLDEN}/640x480.png");
    // Root may write anywhere, but not a picture where a directory is.
    std::fs::create_dir(dir.path().join("640x480.jpg")).unwrap();
    let (code, out, log) = detect(&[&picture, "--out", dir.path().to_str().unwrap()]);
    assert_eq!(code, Some(75), "{log}");
    assert!(log.contains("640x480.jpg cannot be written"), "{log}");
    assert!(out.contains("1 frame: "), "{out}");
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (code, _, log) = detect(&[&picture, "--out", file.to_str().unwrap()]);
    assert_eq!(code, Some(64), "{log}");
    assert!(log.contains("cannot be made"), "{log}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_run_early() {
    let dir = tempfile::tempdir().unwrap();
    let video = raw_frames(dir.path(), 20_000);
    let (mut gantry, reader) =
        Running::command_piped(&["detect", "--model", "line-parts", "--backend", "embedded", &video]);
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).unwrap();
    assert!(line.contains("frame 1 "), "{line}");
    assert_eq!(gantry.wait(SOON).code(), Some(0), "{}", gantry.log());
}

#[test]
fn a_reader_that_does_not_read_does_not_keep_it_from_being_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let video = raw_frames(dir.path(), 5000);
    let (mut gantry, reader) =
        Running::command_piped(&["detect", "--model", "line-parts", "--backend", "embedded", &video]);
    let mut before = None;
    crate::support::eventually("it is held back", SOON * 6, || {
        let used = gantry.cpu_time();
        let held = before == Some(used) && used > std::time::Duration::from_millis(100);
        before = Some(used);
        pause(std::time::Duration::from_secs(1));
        held
    });
    gantry.signal(Signal::TERM);
    assert_eq!(gantry.wait(SOON).code(), Some(75), "{}", gantry.log());
    drop(reader);
}
