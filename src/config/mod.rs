//! The config file.
//!
//! As written ([`yaml`]: a tree with places) → checked ([`validate`]: pure, every mistake at once) → [`Config`]. The known
//! keys, their defaults and meanings are one table in [`schema`], from which the reference file is tested and
//! `gantry config schema` is made. [`load`] does all of it and fetches the passwords; [`print()`] is the way back.

pub mod address;
pub mod check;
pub mod error;
pub mod json_schema;
pub mod leaf;
pub mod mend;
pub mod print;
pub mod realtime;
pub mod rules;
pub mod schema;
pub mod validate;

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

pub use error::ConfigErrors;
pub use print::print;
pub use realtime::Realtime;

use crate::backend::DeviceConfig;
use crate::model::{bundle, manifest};
use crate::preprocess::letterbox::RegionConfig;
use crate::publish::PublishConfig;
use crate::scheduler::{BatchingConfig, DetectConfig};
use crate::secret::Secret;
use crate::source::CameraConfig;
use crate::telemetry::error_chain;
use crate::threads::cpus::Cpus;
use crate::threads::topology::Topology;
use crate::yaml::{self, Problems};
use validate::{KnownModels, SecretKeeper, SecretOwner, SecretRef, Surroundings, Validated};

/// The most bytes that a password file may have.
const SECRET_BYTES_MAX: usize = 4096;

/// A checked config, with every default filled in and every path absolute or relative to the working directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of this machine: one MQTT topic segment.
    pub node: String,
    /// Devices, in order; at least one.
    pub devices: Vec<DeviceConfig>,
    /// Where model bundles are.
    pub models_dir: PathBuf,
    /// Cameras, in order; ids are unique.
    pub cameras: Vec<Camera>,
    /// How batches are made.
    pub batching: BatchingConfig,
    /// Where results go.
    pub publish: PublishConfig,
    /// What keeps it on time.
    pub realtime: Realtime,
    /// The daemon's own HTTP server.
    pub admin: AdminConfig,
}

/// The `admin` section of a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where it listens.
    pub listen: Listen,
}

/// Where the HTTP server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// At [`Listen::DEFAULT`] if that is free: nobody asked for it.
    IfFree,
    /// Here, or the daemon does not start: somebody counts on it.
    At(SocketAddr),
    /// Nowhere.
    Off,
}

impl Listen {
    /// Only this machine reaches it.
    pub const DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
}

/// A camera and the models that look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Camera {
    /// Whether it is used.
    pub enabled: bool,
    /// The camera.
    pub source: CameraConfig,
    /// The part of its pictures that the models see.
    pub region: RegionConfig,
    /// Its models.
    pub detect: Vec<DetectConfig>,
}

/// Reads and checks a config file, and fetches the passwords that it refers to. It lists the models directory, and opens
/// no model, camera or broker.
///
/// # Errors
/// Every mistake of the file at once, each with its place; also a file that cannot be read and a password that cannot.
pub fn load(path: &Path) -> Result<Config, ConfigErrors> {
    let mut problems = Problems::default();
    let validated = read(path, &mut problems);
    let mut config = validated.config;
    for secret in &validated.secrets {
        match fetch(&secret.keeper) {
            Ok(password) => give(config.as_mut(), secret.owner, password),
            Err(message) => problems.tell(secret.place, &secret.path, message),
        }
    }
    finish(path, config, problems)
}

/// Reads and checks a config file as [`load`] does, and fetches no password: the config lacks those that are kept
/// elsewhere, and the list says where they are.
///
/// # Errors
/// Every mistake of the file at once, each with its place.
pub fn check_file(path: &Path) -> Result<(Config, Vec<SecretRef>), ConfigErrors> {
    let mut problems = Problems::default();
    let validated = read(path, &mut problems);
    let config = finish(path, validated.config, problems)?;
    Ok((config, validated.secrets))
}

fn read(path: &Path, problems: &mut Problems) -> Validated {
    let nothing = Validated { config: None, secrets: Vec::new() };
    let bytes = match read_at_most(path, yaml::SIZE_MAX + 1) {
        Ok(bytes) => bytes,
        Err(error) => {
            problems.tell_file(format!("the file cannot be read: {error}"));
            return nothing;
        }
    };
    let Some(tree) = yaml::read(&bytes, "config", problems) else { return nothing };
    let uname = rustix::system::uname();
    let allowed = Cpus::allowed(&Topology::read(Path::new("/sys")).isolated);
    let around = Surroundings {
        dir: path.parent().unwrap_or(Path::new("")),
        host_name: &uname.nodename().to_string_lossy(),
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        allowed: &allowed,
        models: &list_models,
    };
    validate::validate(tree, &around, problems)
}

fn finish(path: &Path, config: Option<Config>, mut problems: Problems) -> Result<Config, ConfigErrors> {
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        _ => {
            if problems.is_empty() {
                // The checks let something through that no config can be made of. It must not look like a success.
                problems.tell_file(
                    "no config can be made of this file, and no mistake was found: report this file",
                );
            }
            Err(ConfigErrors { file: path.to_owned(), problems: problems.into_sorted() })
        }
    }
}

fn read_at_most(path: &Path, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The models of a directory: each `<name>/<version>/` that holds a manifest.
fn list_models(dir: &Path) -> Result<KnownModels, String> {
    let places = bundle::places(dir).map_err(|error| error_chain(&error))?;
    let mut known = KnownModels::new();
    for (name, version) in places {
        if dir.join(&name).join(&version).join(manifest::FILE_NAME).is_file() {
            known.entry(name).or_default().push(version);
        }
    }
    Ok(known)
}

/// The password in a file, as `password_file` is read.
///
/// # Errors
/// Why it cannot be read, and what to do about it, without anything of it.
pub fn password_in(file: &Path) -> Result<Secret, String> {
    fetch(&SecretKeeper::File(file.to_owned()))
}

/// A password from where it is kept. The error shows nothing of it.
fn fetch(keeper: &SecretKeeper) -> Result<Secret, String> {
    let (bytes, name) = match keeper {
        SecretKeeper::File(path) => {
            let name = path.display().to_string();
            let bytes = read_at_most(path, SECRET_BYTES_MAX + 1).map_err(|error| {
                format!(
                    "{name} cannot be read: {error}; write the password into it, readable for this user only"
                )
            })?;
            (bytes, name)
        }
        SecretKeeper::Variable(variable) => {
            let value = std::env::var_os(variable).ok_or_else(|| {
                format!("the environment variable {variable} is not set; set it before the start")
            })?;
            (value.into_encoded_bytes(), format!("the environment variable {variable}"))
        }
    };
    if bytes.len() > SECRET_BYTES_MAX {
        return Err(format!(
            "{name} has more than {SECRET_BYTES_MAX} bytes; it must hold the password and nothing else"
        ));
    }
    let text =
        String::from_utf8(bytes).map_err(|_| format!("{name} is not UTF-8; write the password as UTF-8"))?;
    // Editors and `echo` end a line; a password does not.
    let text = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if text.is_empty() {
        return Err(format!("{name} is empty; write the password into it"));
    }
    if text.contains(['\n', '\0']) {
        return Err(format!("{name} has more than one line; it must hold the password and nothing else"));
    }
    Ok(Secret::new(text.to_owned()))
}

fn give(config: Option<&mut Config>, owner: SecretOwner, password: Secret) {
    let Some(config) = config else { return };
    match owner {
        SecretOwner::Camera(index) => {
            if let Some(camera) = config.cameras.get_mut(index) {
                camera.source.password = Some(password);
            }
        }
        SecretOwner::Broker => {
            if let Some(mqtt) = &mut config.publish.mqtt {
                mqtt.password = Some(password);
            }
        }
    }
}
