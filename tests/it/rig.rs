//! What simulates cameras and lines, `tests/rig`, as values: each starts by itself, on a free port, and is gone when dropped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

/// The system's Python, the one that has `gi`.
const PYTHON: &str = "/usr/bin/python3";

/// A running RTSP server with one or more simulated cameras.
#[derive(Debug)]
pub(crate) struct RtspServer {
    child: Child,
    control: PathBuf,
    /// The address of its first camera.
    first: url::Url,
    _scratch: TempDir,
}

impl RtspServer {
    /// Starts the simulator with these arguments (see `rtspcam.py --help`).
    ///
    /// # Errors
    /// The reason to skip the test, when what the simulator needs is not installed.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, String> {
        Self::start_on(0, arguments)
    }

    /// The same on this port; 0 for a free one.
    ///
    /// # Errors
    /// The reason to skip the test, when what the simulator needs is not installed.
    pub(crate) fn start_on(port: u16, arguments: &[&str]) -> Result<Self, String> {
        Self::start_in(None, "127.0.0.1", port, arguments)
    }

    /// The same on the camera's side of a line that fails.
    ///
    /// # Errors
    /// The reason to skip the test, when what the simulator needs is not installed.
    pub(crate) fn start_behind(line: &NetFault, arguments: &[&str]) -> Result<Self, String> {
        Self::start_in(Some(line), NetFault::CAMERA, 0, arguments)
    }

    fn start_in(line: Option<&NetFault>, host: &str, port: u16, arguments: &[&str]) -> Result<Self, String> {
        needs_gst_rtsp_server()?;
        let scratch = TempDir::new().unwrap();
        let control = scratch.path().join("control");
        let mut command = line.map_or_else(|| Command::new(PYTHON), |line| line.beside_the_camera(PYTHON));
        command
            .arg(script("rtspcam.py"))
            .args(["--address", host, "--port", &port.to_string(), "--control"])
            .arg(&control)
            .args(arguments);
        let (child, mut lines) = spawn(&mut command);
        let first = ready(&mut lines);
        assert!(lines.any(|line| line.unwrap() == "ready"), "the simulator ended before it was ready");
        Ok(Self { child, control, first, _scratch: scratch })
    }

    /// The port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.first.port().unwrap()
    }

    /// The address of a camera.
    pub(crate) fn url(&self, path: &str) -> url::Url {
        let mut url = self.first.clone();
        url.set_path(path);
        url
    }

    /// Sends a control line and returns its answer.
    pub(crate) fn tell(&self, line: &str) -> String {
        let mut socket = UnixStream::connect(&self.control).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        writeln!(socket, "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(socket).read_line(&mut answer).unwrap();
        assert!(!answer.starts_with("error"), "{line}: {answer}");
        answer.trim().to_owned()
    }

    /// How many pictures a camera has put into RTP, for all its clients together.
    pub(crate) fn frames_sent(&self, path: &str) -> u64 {
        let stats: serde_json::Value = serde_json::from_str(&self.tell("stats")).unwrap();
        stats[path]["frames_sent"].as_u64().unwrap()
    }

    /// Sends the simulator a signal: `STOP` is a camera that hangs, with its connections open.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for RtspServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A running `badcam.py`: an RTSP server that breaks the rules as it is told.
#[derive(Debug)]
pub(crate) struct BadCam {
    child: Child,
    url: url::Url,
}

impl BadCam {
    /// Starts it with these films and these arguments (see `badcam.py --help`).
    pub(crate) fn start(films: &[impl AsRef<OsStr>], arguments: &[&str]) -> Self {
        let mut command = Command::new(PYTHON);
        let (child, mut lines) =
            spawn(command.arg(script("badcam.py")).args(arguments).arg("--").args(films));
        Self { child, url: ready(&mut lines) }
    }

    /// The address of its camera.
    pub(crate) fn url(&self) -> url::Url {
        self.url.clone()
    }
}

impl Drop for BadCam {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Makes a film for [`BadCam`] with these arguments (see `film.py --help`).
///
/// # Errors
/// The reason to skip the test, when what that needs is not installed.
pub(crate) fn film(path: &Path, arguments: &[&str]) -> Result<(), String> {
    needs_gst_rtsp_server()?;
    let output = Command::new(PYTHON).arg(script("film.py")).arg(path).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A camera's and a client's machine with a cable between them that can fail: network namespaces, made by `netfault.sh`.
#[derive(Debug)]
pub(crate) struct NetFault {
    /// Keeps it apart from others at the same time.
    name: String,
}

impl NetFault {
    /// The camera's address.
    pub(crate) const CAMERA: &str = "10.77.0.1";

    /// Makes both.
    ///
    /// # Errors
    /// The reason to skip the test, where that is not allowed or a program is missing.
    pub(crate) fn up() -> Result<Self, String> {
        let line = Self { name: std::process::id().to_string() };
        let output = line.run(&["up"]);
        if output.status.success() {
            return Ok(line);
        }
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(format!("network namespaces need root, iproute2 and nftables: {why}"))
    }

    /// Makes a fault, or ends one: `loss 5`, `blackhole on`, `linkdown`, `clean`, …
    pub(crate) fn tell(&self, words: &[&str]) {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A program on the camera's machine.
    pub(crate) fn beside_the_camera(&self, program: &str) -> Command {
        self.on("cam", program)
    }

    /// A program on the client's machine.
    pub(crate) fn beside_the_client(&self, program: &str) -> Command {
        self.on("cli", program)
    }

    fn on(&self, side: &str, program: &str) -> Command {
        let mut command = self.command();
        command.args([side, program]);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command().args(words).output().unwrap()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(script("netfault.sh"));
        command.env("RIG", &self.name);
        command
    }
}

impl Drop for NetFault {
    fn drop(&mut self) {
        self.run(&["down"]);
    }
}

/// What a stamp says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The camera's frame number.
    pub number: u32,
    /// The low 32 bits of the wall clock in milliseconds when the picture was made.
    pub ms: u32,
}

impl Stamp {
    /// Reads the stamp of `readstamp.py` from a luma plane; none where there is no valid one.
    pub(crate) fn read(luma: &[u8], stride: usize, width: usize) -> Option<Self> {
        let edge = (width / 32).min(16);
        let bit = |row: usize, column: usize| {
            // The middle of the block: its rims are blurred by the encoder.
            let (from, to) = (edge / 4, edge - edge / 4);
            let values = (from..to).flat_map(|y| (from..to).map(move |x| (x, y)));
            let sum: u32 =
                values.map(|(x, y)| u32::from(luma[(row * edge + y) * stride + column * edge + x])).sum();
            u32::from(sum > 125 * u32::try_from((to - from).pow(2)).unwrap())
        };
        Self::of_rows([0, 1].map(|row| (0..32).fold(0, |word, column| word << 1 | bit(row, column))))
    }

    /// Of the classes that the model `stamp` found in a picture, each of which is a bit that is set.
    pub(crate) fn of_bits(set: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut rows = [0; 2];
        for bit in set {
            let row = rows.get_mut(usize::try_from(bit / 32).ok()?)?;
            *row |= 1_u32 << (31 - bit % 32);
        }
        Self::of_rows(rows)
    }

    /// Of the two rows, the first of which holds the check; none where that is wrong.
    fn of_rows([top, ms]: [u32; 2]) -> Option<Self> {
        let number = top >> 8;
        let bytes = [&number.to_be_bytes()[1..], &ms.to_be_bytes()].concat();
        let crc = bytes.iter().fold(0x5a_u8, |crc, byte| {
            (0..8).fold(crc ^ byte, |crc, _| if crc & 0x80 == 0 { crc << 1 } else { crc << 1 ^ 0x07 })
        });
        (top & 0xff == u32::from(crc)).then_some(Self { number, ms })
    }

    /// Milliseconds since the picture was made.
    pub(crate) fn age_ms(self) -> i32 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let low = u32::try_from(now & u128::from(u32::MAX)).unwrap();
        low.wrapping_sub(self.ms).cast_signed()
    }
}

/// The package's directory.
pub(crate) fn manifest_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of `tests/data`.
pub(crate) fn data(name: &str) -> PathBuf {
    manifest_dir().join("tests/data").join(name)
}

/// Says that a test is skipped, and why.
#[expect(clippy::print_stderr, reason = "whoever runs the tests reads it there")]
pub(crate) fn skip(test: &str, reason: &str) {
    eprintln!("SKIP {test}: {reason}");
}

/// Whether a program can be run, for tests that make their own material.
pub(crate) fn has_program(name: &str) -> bool {
    let quiet = Command::new(name).arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok()
}

/// A program of the rig.
fn script(name: &str) -> PathBuf {
    manifest_dir().join("tests/rig").join(name)
}

/// Starts a simulator, and reads what it says.
fn spawn(command: &mut Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// The address that a simulator is ready at.
fn ready(lines: &mut Lines<BufReader<ChildStdout>>) -> url::Url {
    let first = lines.next().expect("the simulator says that it is ready").unwrap();
    first.strip_prefix("ready ").and_then(|url| url.parse().ok()).unwrap_or_else(|| panic!("{first}"))
}

fn needs_gst_rtsp_server() -> Result<(), String> {
    let import = "import gi, numpy; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer";
    let outcome = Command::new(PYTHON).args(["-c", import]).output();
    match outcome {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => {
            Err("apt packages python3-gi, python3-numpy and gir1.2-gst-rtsp-server-1.0 are needed".to_owned())
        }
        Err(error) => Err(format!("{PYTHON} cannot be run: {error}")),
    }
}
