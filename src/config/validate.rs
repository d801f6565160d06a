//! From the tree to a `Config`: pure, every mistake at once.
//!
//! The tree is mended ([`super::mend`]: unknown keys, wrong shapes), each value is checked by itself ([`super::check`]), then
//! the rules between values ([`super::rules`]). Only what has no mistake becomes a [`Config`]. Nothing here reads a file,
//! the environment or a clock: what must be known of the outside is in [`Surroundings`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::check::{self, Found, Item, Section};
use super::leaf::{Leaf, clean_segment};
use super::{AdminConfig, Camera, Config, Listen, mend, rules, schema};
use crate::backend::fake::FakeScript;
use crate::backend::{BackendChoice, BackendKind, DeviceConfig};
use crate::frame::CameraId;
use crate::preprocess::letterbox::RegionConfig;
use crate::publish::{MqttConfig, Publish, PublishConfig};
use crate::scheduler::{BatchingConfig, DetectConfig, Late, Quality};
use crate::source::controls::ControlConfig;
use crate::source::integrity::OnLoss;
use crate::source::picture::{PictureConfig, Watching};
use crate::source::thinning::VideoDecode;
use crate::source::usb::{UsbConfig, UsbFormat};
use crate::source::{Address, CameraConfig, Transport};
use crate::threads::cpus::Cpus;
use crate::yaml::{Node, Place, Problems, Value};

/// The models of a directory: names, and each one's versions.
pub type KnownModels = BTreeMap<String, Vec<String>>;

/// What must be known of the outside.
pub struct Surroundings<'a> {
    /// The config file's directory: what relative paths are relative to.
    pub dir: &'a Path,
    /// The machine's host name; any text.
    pub host_name: &'a str,
    /// Number of CPUs that Gantry runs on.
    pub cpus: usize,
    /// The CPUs that the file may name.
    pub allowed: &'a Cpus,
    /// The models of a directory, or why it cannot be read.
    pub models: &'a dyn Fn(&Path) -> Result<KnownModels, String>,
}

/// What came of a tree.
#[derive(Clone, Debug)]
pub struct Validated {
    /// The config, without the passwords that are kept elsewhere; none when there is a mistake.
    pub config: Option<Config>,
    /// Where those passwords are.
    pub secrets: Vec<SecretRef>,
}

/// A password that is kept outside the config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRef {
    /// Whose it is.
    pub owner: SecretOwner,
    /// Where it is kept.
    pub keeper: SecretKeeper,
    /// Where the config says so.
    pub place: Place,
    /// The key that says so.
    pub path: String,
}

/// Whose password it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretOwner {
    /// The camera's with this index.
    Camera(usize),
    /// The broker's.
    Broker,
}

/// Where a password is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretKeeper {
    /// In this file.
    File(PathBuf),
    /// In this environment variable.
    Variable(String),
}

/// Makes a config of a file's tree, and adds every mistake to `problems`.
#[must_use]
pub fn validate(mut tree: Node, around: &Surroundings<'_>, problems: &mut Problems) -> Validated {
    if !matches!(tree.value, Value::Map(_)) {
        let message = match tree.value {
            Value::Null => {
                "the file is empty; write at least cameras and publish, as config/gantry.yaml shows"
                    .to_owned()
            }
            value => format!("{} is written where keys such as cameras: are wanted", value.kind_name()),
        };
        problems.tell(tree.place, "", message);
        return Validated { config: None, secrets: Vec::new() };
    }
    let mut strays = mend::mend(&mut tree, problems);
    let root = check::section(schema::ROOT, &tree, "", &mut strays, problems);
    for stray in strays.take_contents() {
        check::content(stray.kind, &stray.node, &stray.path, &mut strays, problems);
    }
    rules::check(&root, around, &mut strays, problems);
    let secrets = secrets(&root, around.dir);
    let config = if problems.is_empty() { config(&root, around) } else { None };
    Validated { config, secrets }
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("dir", &self.dir).finish_non_exhaustive()
    }
}

fn secrets(root: &Section, dir: &Path) -> Vec<SecretRef> {
    let secret = |section: &Section, owner| {
        let (file, variable) = (section.item("password_file"), section.item("password_env"));
        let (item, keeper) = match (file.leaf(), variable.leaf()) {
            (Some(Leaf::Path(path)), _) => (file, SecretKeeper::File(dir.join(path))),
            (None, Some(Leaf::Text(name))) => (variable, SecretKeeper::Variable(name.clone())),
            _ => return None,
        };
        Some(SecretRef { owner, keeper, place: item.place, path: item.path.clone() })
    };
    let cameras = root.list("cameras").enumerate();
    let mut secrets: Vec<SecretRef> =
        cameras.filter_map(|(index, camera)| secret(camera.section()?, SecretOwner::Camera(index))).collect();
    let mqtt = root.inner("publish").and_then(|publish| publish.inner("mqtt"));
    secrets.extend(mqtt.and_then(|mqtt| secret(mqtt, SecretOwner::Broker)));
    secrets
}

/// The config of sections without a mistake. None would be a hole in the checks; a test over random trees looks for one.
fn config(root: &Section, around: &Surroundings<'_>) -> Option<Config> {
    let realtime = super::realtime::realtime(root)?;
    let node = root.text("node").map_or_else(|| clean_segment(around.host_name), str::to_owned);
    let devices = match &root.item("devices").found {
        Found::List(_) => {
            let devices = root.list("devices");
            devices.map(|item| device(item.section()?, around.dir)).collect::<Option<Vec<_>>>()?
        }
        _ => {
            let infer = realtime.places.infer.cpus.as_ref();
            vec![default_device(infer.map_or(around.cpus, Cpus::len))]
        }
    };
    let first = devices.first()?.id.clone();
    let cameras = root.list("cameras").map(|item| camera(item.section()?, around.dir, &first));
    let batching = root.inner("batching")?;
    Some(Config {
        models_dir: around.dir.join(root.inner("models")?.file("dir")?),
        cameras: cameras.collect::<Option<Vec<_>>>()?,
        batching: BatchingConfig {
            size_max: size(batching.integer("size_max")?),
            queue_delay_max: batching.duration("queue_delay_max")?,
        },
        publish: publish(root.inner("publish")?, &node, around.dir)?,
        admin: admin(root.inner("admin")?),
        node,
        devices,
        realtime,
    })
}

fn default_device(cpus: usize) -> DeviceConfig {
    DeviceConfig {
        id: rules::DEFAULT_DEVICE.to_owned(),
        backend: BackendChoice::Auto,
        threads: cpus.clamp(1, 4),
        library: None,
        fake: FakeScript::default(),
    }
}

fn device(section: &Section, dir: &Path) -> Option<DeviceConfig> {
    let backend = section.text("backend")?;
    let named = BackendKind::ALL.into_iter().find(|kind| kind.name() == backend);
    let fake = section.inner("fake")?;
    Some(DeviceConfig {
        id: section.text("id")?.to_owned(),
        backend: named.map_or(BackendChoice::Auto, BackendChoice::Named),
        threads: size(section.integer("threads")?),
        library: section.file("library").map(|path| dir.join(path)),
        fake: FakeScript {
            run_time: fake.duration("run_time")?,
            run_time_per_frame: fake.duration("run_time_per_frame")?,
            batch_sizes: fake.list("batch_sizes").filter_map(Item::index).collect(),
            fail_every: fake.integer("fail_every"),
            fail_after: fake.integer("fail_after"),
            hang_after: fake.integer("hang_after"),
            outputs: fake.file("outputs").map(|path| dir.join(path)),
        },
    })
}

fn camera(section: &Section, dir: &Path, first_device: &str) -> Option<Camera> {
    let source = section.address("source")?;
    let address = match &source.address {
        Address::File(path) => Address::File(dir.join(path)),
        address => address.clone(),
    };
    let region = section.inner("region")?;
    let usb = section.inner("usb")?;
    let pixels = |name| region.integer(name).and_then(|pixels| u32::try_from(pixels).ok());
    let detect = section.list("detect").map(|item| detect(item.section()?, first_device));
    Some(Camera {
        enabled: section.boolean("enabled")?,
        region: RegionConfig {
            x: pixels("x")?,
            y: pixels("y")?,
            width: pixels("width"),
            height: pixels("height"),
        },
        source: CameraConfig {
            id: CameraId::new(section.text("id")?),
            address,
            username: section.text("username").map(str::to_owned).or_else(|| source.username.clone()),
            password: source.password.clone(),
            ca_file: section.file("ca_file").map(|path| dir.join(path)),
            transport: match section.text("transport")? {
                "udp" => Transport::Udp,
                "auto" => Transport::Auto,
                _ => Transport::Tcp,
            },
            udp_buffer: u32::try_from(section.integer("udp_buffer")?).ok()?,
            stale_after: section.duration("stale_after")?,
            damaged_max: section.number("damaged_max")?,
            video_decode: VideoDecode::from_name(section.text("video_decode")?)?,
            usb: UsbConfig {
                format: UsbFormat::from_name(usb.text("format")?),
                size: match usb.item("size").leaf() {
                    Some(Leaf::Size(width, height)) => Some((*width, *height)),
                    _ => None,
                },
                rate: usb.number("rate"),
                controls: usb.list("controls").map(control).collect::<Option<Vec<_>>>()?,
            },
            on_loss: OnLoss::from_name(section.text("on_loss")?)?,
            late_after: section.duration("late_after")?,
            picture: picture(section.inner("picture")?)?,
            replay: None,
        },
        detect: detect.collect::<Option<Vec<_>>>()?,
    })
}

fn control(item: &Item) -> Option<ControlConfig> {
    if let Leaf::Control(control) = item.leaf()? { Some(control.clone()) } else { None }
}

fn picture(section: &Section) -> Option<PictureConfig> {
    let Some(Leaf::Limit(frozen_after)) = section.item("frozen_after").leaf() else { return None };
    Some(PictureConfig {
        watch: Watching::from_name(section.text("watch")?)?,
        frozen_after: *frozen_after,
        blind_after: section.duration("blind_after")?,
        dark_below: section.number("dark_below")?,
        washed_out_above: section.number("washed_out_above")?,
        uniform_below: section.number("uniform_below")?,
    })
}

fn detect(section: &Section, first_device: &str) -> Option<DetectConfig> {
    let Some(Leaf::Model { name, version }) = section.item("model").leaf() else { return None };
    #[expect(clippy::cast_possible_truncation, reason = "a score is from 0 to 1")]
    let score_min = section.number("score_min").map(|score| score as f32);
    let mut devices: Vec<String> =
        section.list("devices").filter_map(Item::text).map(str::to_owned).collect();
    if devices.is_empty() {
        devices.push(first_device.to_owned());
    }
    Some(DetectConfig {
        model: version.as_ref().map_or_else(|| name.clone(), |version| format!("{name}@{version}")),
        devices,
        rate_max: section.number("rate_max"),
        deadline: section.duration("deadline"),
        late: if section.boolean("publish_late")? { Late::Publish } else { Late::Drop },
        quality: quality(section.text("quality")?)?,
        weight: u32::try_from(section.integer("weight")?).ok()?,
        score_min,
    })
}

fn quality(name: &str) -> Option<Quality> {
    Quality::ALL.into_iter().find(|quality| quality.name() == name)
}

fn publish(section: &Section, node: &str, dir: &Path) -> Option<PublishConfig> {
    let mqtt = match section.inner("mqtt") {
        Some(mqtt) => Some(broker(mqtt, node, dir)?),
        None => None,
    };
    let detections = match section.text("detections")? {
        "every_frame" => Publish::EveryFrame,
        _ => Publish::Nonempty,
    };
    Some(PublishConfig { detections, stdout: section.boolean("stdout")?, mqtt })
}

fn broker(section: &Section, node: &str, dir: &Path) -> Option<MqttConfig> {
    let broker = section.broker("broker")?;
    let file = |name| section.file(name).map(|path| dir.join(path));
    let client_id = section.text("client_id").map(str::to_owned);
    Some(MqttConfig {
        host: broker.host.clone(),
        port: broker.port,
        tls: broker.tls,
        ca_file: file("ca_file"),
        cert_file: file("cert_file"),
        key_file: file("key_file"),
        username: section.text("username").map(str::to_owned).or_else(|| broker.username.clone()),
        password: broker.password.clone(),
        client_id: client_id.unwrap_or_else(|| format!("gantry-{node}")),
        qos: u8::try_from(section.integer("qos")?).ok()?,
        prefix: section.text("prefix")?.to_owned(),
        queue: size(section.integer("queue")?),
    })
}

fn admin(section: &Section) -> AdminConfig {
    let listen = match section.item("listen").leaf() {
        Some(Leaf::Listen(Some(address))) => Listen::At(*address),
        Some(Leaf::Listen(None)) => Listen::Off,
        _ => Listen::IfFree,
    };
    AdminConfig { listen }
}

/// A number whose range the table bounds far below this.
fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
