//! What many tests need: the binary as a process, waiting for something to become true, ground truth.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A generous limit for things that happen at once on a machine that is not busy.
pub const SOON: Duration = Duration::from_secs(30);

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs `gantry` with these arguments to its end, in the repository's root.
pub fn gantry(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gantry")).args(args).current_dir(root()).output().unwrap()
}

/// Asks again and again until the answer is true; fails with `what` after `limit`.
pub fn eventually(what: &str, limit: Duration, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !is_true() {
        assert!(Instant::now() < end, "{what}: not within {} s", limit.as_secs());
        pause(Duration::from_millis(20));
    }
}

/// Lets time pass between two looks at something; never a proof by itself.
pub fn pause(time: Duration) {
    crossbeam_channel::after(time).recv().unwrap();
}

/// `gantry run` as a process of its own, with what it writes in files. Killed on drop.
pub struct Running {
    child: Child,
    dir: tempfile::TempDir,
}

impl Running {
    /// Starts `gantry run` on this config. Relative paths in it are relative to the repository's root.
    pub fn start(config: &str) -> Self {
        Self::start_with(config, &[])
    }

    /// The same, with these environment variables besides.
    pub fn start_with(config: &str, environment: &[(&str, &str)]) -> Self {
        let (dir, file) = Self::write(config);
        let stdout = std::fs::File::create(dir.path().join("stdout")).unwrap();
        Self::spawn_with(dir, &["run", "-c", file.to_str().unwrap()], stdout.into(), environment)
    }

    /// What `gantry config print` says of its config, in the same environment.
    pub fn config_print(&self, environment: &[(&str, &str)]) -> String {
        let file = self.dir.path().join("gantry.yaml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gantry"));
        command.args(["config", "print", "-c"]).arg(file).envs(environment.iter().copied());
        let output = command.current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// The same, with standard output in a pipe; who holds its other end is its reader.
    pub fn start_piped(config: &str) -> (Self, ChildStdout) {
        let (dir, file) = Self::write(config);
        let mut running = Self::spawn(dir, &["run", "-c", file.to_str().unwrap()], Stdio::piped());
        let reader = running.child.stdout.take().unwrap();
        (running, reader)
    }

    /// Starts any command, in the repository's root, with standard output in a pipe.
    pub fn command_piped(args: &[&str]) -> (Self, ChildStdout) {
        let mut running = Self::spawn(tempfile::tempdir().unwrap(), args, Stdio::piped());
        let reader = running.child.stdout.take().unwrap();
        (running, reader)
    }

    fn write(config: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("gantry.yaml");
        // Many daemons run at once here, and none shall have the usual port. A test that wants HTTP says so.
        let admin = if config.contains("\nadmin:") { "" } else { "\nadmin: {listen: 'off'}\n" };
        let config = config.replace("$ROOT", root().to_str().unwrap()) + admin;
        std::fs::write(&file, config).unwrap();
        (dir, file)
    }

    fn spawn(dir: tempfile::TempDir, args: &[&str], stdout: Stdio) -> Self {
        Self::spawn_with(dir, args, stdout, &[])
    }

    fn spawn_with(
        dir: tempfile::TempDir,
        args: &[&str],
        stdout: Stdio,
        environment: &[(&str, &str)],
    ) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_gantry"))
            .args(args)
            .envs(environment.iter().copied())
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(std::fs::File::create(dir.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        Self { child, dir }
    }

    /// The JSON lines written so far; a line that is not complete yet is left out.
    pub fn lines(&self) -> Vec<Value> {
        let text = self.read("stdout");
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// All that was written to standard output so far.
    pub fn output(&self) -> String {
        self.read("stdout")
    }

    /// The log written so far.
    pub fn log(&self) -> String {
        self.read("stderr")
    }

    /// The process id.
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let mut status = None;
        eventually("gantry ends", limit, || {
            status = self.ended();
            status.is_some()
        });
        status.unwrap()
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> u64 {
        let path = format!("/proc/{}/statm", self.child.id());
        let statm = std::fs::read_to_string(path).unwrap();
        statm.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
            * rustix::param::page_size() as u64
    }

    /// Processor time that it has used, all threads together.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The fields after the name, which may hold anything: the 12th and 13th are user and system time.
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap()
    }

    fn read(&self, name: &str) -> String {
        let mut bytes = Vec::new();
        std::fs::File::open(self.dir.path().join(name)).unwrap().read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("gantry's log:\n{}", self.log());
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Writes a `.y4m` of so many small frames into a directory and returns its path.
pub fn raw_frames(dir: &Path, frames: usize) -> String {
    let file = dir.join("frames.y4m");
    let mut bytes = b"YUV4MPEG2 W32 H32 F25:1 C420jpeg\n".to_vec();
    for _ in 0..frames {
        bytes.extend_from_slice(b"FRAME\n");
        bytes.extend_from_slice(&[128; 32 * 32 * 3 / 2]);
    }
    std::fs::write(&file, bytes).unwrap();
    file.to_str().unwrap().to_owned()
}

/// An object in a picture: ground truth or detection.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its class.
    pub label: String,
    /// x, y, w, h in pixels.
    pub bbox: [f64; 4],
    /// Its score; 1 for ground truth.
    pub score: f64,
}

/// Reads the objects of a ground-truth line, an event, or an expectation.
pub fn objects(list: &Value) -> Vec<Object> {
    let object = |value: &Value| {
        let side = |name: &str| value["box"][name].as_f64().unwrap();
        Object {
            label: value["label"].as_str().unwrap().to_owned(),
            bbox: [side("x"), side("y"), side("w"), side("h")],
            score: value["score"].as_f64().unwrap_or(1.0),
        }
    };
    list.as_array().unwrap().iter().map(object).collect()
}

/// Intersection over union.
pub fn iou(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let overlap = |i: usize| ((a[i] + a[i + 2]).min(b[i] + b[i + 2]) - a[i].max(b[i])).max(0.0);
    let both = overlap(0) * overlap(1);
    both / (a[2] * a[3] + b[2] * b[3] - both)
}

/// For one picture: how many detections are true, how many there are, how many objects there are, of one class.
pub fn matches(found: &[Object], truth: &[Object], label: &str, iou_min: f64) -> (usize, usize, usize) {
    let mut found: Vec<_> = found.iter().filter(|object| object.label == label).collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut left: Vec<_> = truth.iter().filter(|object| object.label == label).collect();
    let objects = left.len();
    let mut hits = 0;
    for detection in &found {
        let best = (0..left.len()).max_by(|&a, &b| {
            iou(&detection.bbox, &left[a].bbox).total_cmp(&iou(&detection.bbox, &left[b].bbox))
        });
        if let Some(best) = best.filter(|&best| iou(&detection.bbox, &left[best].bbox) >= iou_min) {
            left.swap_remove(best);
            hits += 1;
        }
    }
    (hits, found.len(), objects)
}

/// Ground truth of a video: the objects of each frame.
pub fn ground_truth(file: &str) -> Vec<Vec<Object>> {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    let frame = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        objects(&line["objects"])
    };
    text.lines().map(frame).collect()
}

/// A path in the repository.
pub fn path(relative: &str) -> PathBuf {
    root().join(relative)
}

/// Copies a folder with all that is in it.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
