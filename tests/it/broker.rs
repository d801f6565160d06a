//! A real MQTT broker: mosquitto on a free loopback port, and `mosquitto_sub` as a subscriber that shares no code with
//! Gantry. Both are killed when dropped.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use gantry::publish::MqttConfig;
use gantry::secret::Secret;
use gantry::threads::{ThreadKind, ThreadSpec, Threads};
use tempfile::TempDir;

/// Far more than anything here takes.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What the broker is like.
#[derive(Clone, Debug, Default)]
pub struct BrokerOptions {
    /// Speaks TLS, with a certificate for `localhost` of a CA made for it.
    pub tls: bool,
    /// Lets in clients only that have a certificate of the same CA.
    pub client_certificates: bool,
    /// Lets in nobody but this user with this password.
    pub user: Option<(&'static str, &'static str)>,
    /// Remembers sessions and messages when it is stopped.
    pub persistent: bool,
    /// More lines for its config.
    pub config: &'static str,
    /// Lines of its access list.
    pub access: &'static str,
}

/// A running mosquitto.
#[derive(Debug)]
pub struct Broker {
    /// Its port on 127.0.0.1.
    pub port: u16,
    options: BrokerOptions,
    dir: TempDir,
    process: Option<Child>,
}

/// A running `mosquitto_sub`.
#[derive(Debug)]
pub struct Subscriber {
    process: Child,
    lines: Receiver<String>,
    /// What came before the subscription was known to stand.
    early: RefCell<VecDeque<Received>>,
}

/// A message as a subscriber got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub topic: String,
    /// Whether it was kept by the broker from before the subscription.
    pub retained: bool,
    pub payload: String,
}

impl Received {
    /// A field of the payload, which must be JSON.
    pub fn field(&self, name: &str) -> serde_json::Value {
        serde_json::from_str::<serde_json::Value>(&self.payload).expect("payloads are JSON")[name].clone()
    }
}

impl Broker {
    /// Starts a broker; none, with a line that says so, where mosquitto or openssl is not installed.
    pub fn start(test: &str, options: BrokerOptions) -> Option<Self> {
        for program in ["mosquitto", "mosquitto_sub", "mosquitto_pub", "mosquitto_passwd", "openssl"] {
            if !installed(program) {
                eprintln!("SKIP {test}: {program} is not installed");
                return None;
            }
        }
        let mut broker = Self { port: free_port(), options, dir: TempDir::new().unwrap(), process: None };
        broker.write_files();
        // Another process may take the port between the question and the answer.
        for _ in 0..5 {
            if broker.try_start() {
                return Some(broker);
            }
            broker.port = free_port();
        }
        panic!("mosquitto does not start:\n{}", broker.log());
    }

    /// Starts it again on the same port after [`Broker::stop`] or [`Broker::kill`].
    pub fn start_again(&mut self) {
        let begun = Instant::now();
        while !self.try_start() {
            assert!(begun.elapsed() < LIMIT, "mosquitto does not come back:\n{}", self.log());
        }
    }

    /// Stops it in order: it says goodbye and saves what it is to remember.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let pid = rustix::process::Pid::from_child(&process);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            process.wait().unwrap();
        }
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// A config of Gantry for this broker.
    pub fn config(&self) -> MqttConfig {
        MqttConfig {
            host: if self.options.tls { "localhost" } else { "127.0.0.1" }.into(),
            port: self.port,
            tls: self.options.tls,
            ca_file: self.options.tls.then(|| self.file("ca.pem")),
            cert_file: None,
            key_file: None,
            username: self.options.user.map(|(name, _)| name.into()),
            password: self.options.user.map(|(_, password)| Secret::new(password.into())),
            client_id: "gantry-line-7".into(),
            qos: 1,
            prefix: "gantry".into(),
            queue: 1000,
        }
    }

    /// A file in its folder: `ca.pem`; with client certificates `client.pem` and `client.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Subscribes to everything, QoS 1, and returns once the subscription stands.
    pub fn subscribe(&self) -> Subscriber {
        self.subscribe_with(&[])
    }

    /// Subscribes so that a persistent broker keeps messages for it while it is away or the broker is stopped.
    pub fn subscribe_durably(&self, id: &str) -> Subscriber {
        self.subscribe_with(&["-c", "-i", id, "-x", "3600"])
    }

    fn subscribe_with(&self, arguments: &[&str]) -> Subscriber {
        // A retained message comes as soon as the subscription stands.
        let mut probe = self.client("mosquitto_pub");
        probe.args(["-t", "probe", "-m", "{}", "-r", "-q", "1"]);
        assert!(probe.status().unwrap().success(), "the probe could not be published:\n{}", self.log());
        let mut command = self.client("mosquitto_sub");
        command.args(["-V", "5", "-t", "#", "-q", "1", "-F", "%r\t%t\t%p"]).args(arguments);
        let subscriber = Subscriber::start(command);
        let retained = std::iter::repeat_with(|| subscriber.next());
        let early = retained.take_while(|received| received.topic != "probe").collect();
        *subscriber.early.borrow_mut() = early;
        subscriber
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-h", "localhost", "-p", &self.port.to_string()]);
        if self.options.tls {
            command.arg("--cafile").arg(self.file("ca.pem"));
        }
        if self.options.client_certificates {
            command.arg("--cert").arg(self.file("client.pem")).arg("--key").arg(self.file("client.key"));
        }
        if !self.options.access.is_empty() {
            command.args(["-u", "admin", "-P", "admin"]);
        } else if let Some((name, password)) = self.options.user {
            command.args(["-u", name, "-P", password]);
        }
        command
    }

    fn write_files(&self) {
        let dir = self.dir.path();
        if self.options.tls {
            make_certificates(dir);
        }
        fs::write(self.file("access"), format!("user admin\ntopic readwrite #\n{}", self.options.access))
            .unwrap();
        for (name, password) in self.options.user.into_iter().chain([("admin", "admin")]) {
            let file = self.file("passwords");
            let create: &[&str] = if file.exists() { &["-b"] } else { &["-c", "-b"] };
            let mut command = Command::new("mosquitto_passwd");
            command.args(create).arg(&file).args([name, password]).stderr(Stdio::null());
            assert!(command.status().unwrap().success());
        }
    }

    fn config_text(&self) -> String {
        let file = |name: &str| self.file(name).display().to_string();
        // Without `user root` a mosquitto that root starts cannot read our folder.
        // 0 would be no limit, and 2.0.11 then closes the connection instead of refusing a message.
        let limits = "max_queued_messages 1000000\n";
        let mut text =
            format!("user root\nlistener {} localhost\nlog_dest file {}\n{limits}", self.port, file("log"));
        if self.options.tls {
            for (key, name) in [("cafile", "ca.pem"), ("certfile", "server.pem"), ("keyfile", "server.key")] {
                text += &format!("{key} {}\n", file(name));
            }
        }
        if self.options.client_certificates {
            text += "require_certificate true\n";
        }
        if self.options.user.is_some() {
            text += &format!("allow_anonymous false\npassword_file {}\n", file("passwords"));
        } else {
            text += "allow_anonymous true\n";
        }
        if !self.options.access.is_empty() {
            text += &format!("acl_file {}\n", file("access"));
        }
        if self.options.persistent {
            text += &format!("persistence true\npersistence_location {}/\n", self.dir.path().display());
        }
        text + self.options.config + "\n"
    }

    fn try_start(&mut self) -> bool {
        let config = self.file("mosquitto.conf");
        fs::write(&config, self.config_text()).unwrap();
        let mut command = Command::new("mosquitto");
        command.arg("-c").arg(config).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            if process.try_wait().unwrap().is_some() {
                process.wait().unwrap();
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                self.process = Some(process);
                return true;
            }
            pause();
        }
        process.kill().unwrap();
        process.wait().unwrap();
        panic!("mosquitto does not listen:\n{}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("mosquitto says:\n{}", self.log());
        }
    }
}

impl Subscriber {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let (tx, lines) = bounded(100_000);
        let spec = ThreadSpec { name: "test/sub".into(), kind: ThreadKind::Output, limit: LIMIT };
        let read = move |_| stdout.lines().map_while(Result::ok).for_each(|line| tx.send(line).unwrap_or(()));
        Threads::new().spawn(spec, read, |_| ()).unwrap();
        Self { process, lines, early: RefCell::default() }
    }

    /// The next message, which must come.
    pub fn next(&self) -> Received {
        self.next_within(LIMIT).expect("a message should have come")
    }

    /// The next message, if one comes in time.
    pub fn next_within(&self, time: Duration) -> Option<Received> {
        if let Some(early) = self.early.borrow_mut().pop_front() {
            return Some(early);
        }
        let line = self.lines.recv_timeout(time).ok()?;
        let mut parts = line.splitn(3, '\t');
        let retained = parts.next().unwrap() == "1";
        let (topic, payload) = (parts.next().unwrap().into(), parts.next().unwrap().into());
        Some(Received { topic, retained, payload })
    }

    /// The next message whose topic ends like this.
    pub fn next_on(&self, topic: &str) -> Received {
        loop {
            let received = self.next();
            if received.topic.ends_with(topic) {
                return received;
            }
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A port on 127.0.0.1 on which nobody listens.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until `is_so`, and fails with `what` when it never is.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "never: {what}");
        pause();
    }
}

/// A moment between two looks at something that is to come about.
pub fn pause() {
    crossbeam_channel::after(Duration::from_millis(5)).recv().expect("a timer fires once");
}

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A system service's folder is in root's path only.
    std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).any(|dir| dir.join(program).is_file())
}

/// `ca.pem`, `server.pem` for `localhost`, `client.pem`, and their keys.
pub(crate) fn make_certificates(dir: &Path) {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(command.status().unwrap().success(), "openssl {arguments}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let name = dir.file_name().unwrap().to_string_lossy();
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=CA-{name} -days 30"));
    for (name, extension) in
        [("server", "subjectAltName=DNS:localhost\n"), ("client", "extendedKeyUsage=clientAuth\n")]
    {
        fs::write(dir.join("extension"), extension).unwrap();
        openssl(&format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 30 -extfile extension"
        ));
    }
}
