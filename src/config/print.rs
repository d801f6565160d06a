//! The effective config as YAML: every default filled in, every password left out.

use std::fmt::Write as _;
use std::path::Path;

use super::address::{address_text, file_text, without_secrets};
use super::leaf::duration_text;
use super::validate::{SecretKeeper, SecretOwner, SecretRef};
use super::{Camera, Config, Listen, Realtime};
use crate::backend::fake::FakeScript;
use crate::backend::{BackendChoice, BackendKind, DeviceConfig};
use crate::memory::Wish;
use crate::preprocess::letterbox::RegionConfig;
use crate::publish::{MqttConfig, Publish};
use crate::scheduler::{DetectConfig, Late};
use crate::secret::Secret;
use crate::source::picture::PictureConfig;
use crate::source::usb::UsbConfig;
use crate::source::{Address, Transport};
use crate::threads::cpus::Cpus;
use crate::threads::place::{Grant, Places};
use crate::yaml::quoted;

/// The config as YAML that loads again to the same config, wherever it is put: paths are made absolute. A password is
/// never in it; a comment stands where one is set.
#[must_use]
pub fn print(config: &Config) -> String {
    print_with_secrets(config, &[])
}

/// The same, with `password_file` or `password_env` for each password that is kept elsewhere.
#[must_use]
pub fn print_with_secrets(config: &Config, secrets: &[SecretRef]) -> String {
    let keeper = |owner| secrets.iter().find(|secret| secret.owner == owner).map(|secret| &secret.keeper);
    let mut out = Yaml::default();
    out.key("node", &quoted(&config.node));
    out.section("devices", |out| {
        for device in &config.devices {
            out.item(|out| print_device(out, device, config.realtime.devices.get(&device.id)));
        }
    });
    out.section("models", |out| out.key("dir", &path_text(&config.models_dir)));
    out.section("cameras", |out| {
        for (index, camera) in config.cameras.iter().enumerate() {
            let cpus = config.realtime.cameras.get(camera.source.id.as_str());
            out.item(|out| print_camera(out, camera, cpus, keeper(SecretOwner::Camera(index))));
        }
    });
    out.section("batching", |out| {
        out.key("size_max", &config.batching.size_max.to_string());
        out.key("queue_delay_max", &duration_text(config.batching.queue_delay_max));
    });
    out.section("realtime", |out| print_realtime(out, &config.realtime));
    out.section("publish", |out| {
        let detections = match config.publish.detections {
            Publish::Nonempty => "nonempty",
            Publish::EveryFrame => "every_frame",
        };
        out.key("detections", detections);
        out.key("stdout", if config.publish.stdout { "true" } else { "false" });
        if let Some(mqtt) = &config.publish.mqtt {
            out.section("mqtt", |out| print_mqtt(out, mqtt, keeper(SecretOwner::Broker)));
        }
    });
    out.section("admin", |out| match config.admin.listen {
        Listen::IfFree => out.line(&format!("# listen: {} if that is free", Listen::DEFAULT)),
        Listen::At(address) => out.key("listen", &quoted(&address.to_string())),
        Listen::Off => out.key("listen", "off"),
    });
    out.text
}

/// Block YAML with an indent of two.
#[derive(Default)]
struct Yaml {
    text: String,
    indent: usize,
    /// The next line begins an entry of a list.
    dash: bool,
}

impl Yaml {
    fn line(&mut self, line: &str) {
        let dash = if std::mem::take(&mut self.dash) { "- " } else { "" };
        let indent = self.indent - dash.len();
        writeln!(self.text, "{:indent$}{dash}{line}", "").expect("a String takes any text");
    }

    fn key(&mut self, key: &str, value: &str) {
        self.line(&format!("{key}: {value}"));
    }

    fn optional(&mut self, key: &str, value: Option<String>) {
        if let Some(value) = value {
            self.key(key, &value);
        }
    }

    fn section(&mut self, key: &str, inside: impl FnOnce(&mut Self)) {
        self.line(&format!("{key}:"));
        self.indent += 2;
        inside(self);
        self.indent -= 2;
    }

    fn item(&mut self, inside: impl FnOnce(&mut Self)) {
        self.dash = true;
        self.indent += 2;
        inside(self);
        self.indent -= 2;
    }
}

fn print_device(out: &mut Yaml, device: &DeviceConfig, cpus: Option<&Cpus>) {
    out.key("id", &quoted(&device.id));
    out.key(
        "backend",
        match device.backend {
            BackendChoice::Auto => "auto",
            BackendChoice::Named(kind) => kind.name(),
        },
    );
    out.key("threads", &device.threads.to_string());
    out.optional("cpus", cpus.map(cpus_text));
    out.optional("library", device.library.as_deref().map(path_text));
    // Of no other backend is it read, so it would only be in the way.
    if device.backend == BackendChoice::Named(BackendKind::Fake) || device.fake != FakeScript::default() {
        out.section("fake", |out| {
            out.key("run_time", &duration_text(device.fake.run_time));
            out.key("run_time_per_frame", &duration_text(device.fake.run_time_per_frame));
            if !device.fake.batch_sizes.is_empty() {
                let sizes: Vec<String> = device.fake.batch_sizes.iter().map(usize::to_string).collect();
                out.key("batch_sizes", &format!("[{}]", sizes.join(", ")));
            }
            out.optional("fail_every", device.fake.fail_every.map(|batches| batches.to_string()));
            out.optional("fail_after", device.fake.fail_after.map(|batches| batches.to_string()));
            out.optional("hang_after", device.fake.hang_after.map(|batches| batches.to_string()));
            out.optional("outputs", device.fake.outputs.as_deref().map(path_text));
        });
    }
}

fn print_camera(out: &mut Yaml, camera: &Camera, cpus: Option<&Cpus>, keeper: Option<&SecretKeeper>) {
    let source = &camera.source;
    out.key("id", &quoted(source.id.as_str()));
    let address = match &source.address {
        Address::File(path) => file_text(&absolute(path)),
        Address::Rtsp(url) => without_secrets(url).map_or_else(
            || address_text(&source.address),
            |shown| {
                out.line("# what may be a password is left out of this address; write it in place of …");
                shown
            },
        ),
        address => address_text(address),
    };
    out.key("source", &quoted(&address));
    out.key("enabled", &camera.enabled.to_string());
    print_credentials(out, source.username.as_deref(), source.password.as_ref(), keeper);
    let transport = match source.transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
        Transport::Auto => "auto",
    };
    out.optional("ca_file", source.ca_file.as_deref().map(path_text));
    out.key("transport", transport);
    out.key("udp_buffer", &source.udp_buffer.to_string());
    out.key("stale_after", &duration_text(source.stale_after));
    out.key("damaged_max", &source.damaged_max.to_string());
    out.optional("cpus", cpus.map(cpus_text));
    out.key("video_decode", source.video_decode.name());
    if source.usb != UsbConfig::default() {
        out.section("usb", |out| {
            out.optional("format", source.usb.format.map(|format| format.name().to_owned()));
            out.optional("size", source.usb.size.map(|(width, height)| format!("{width}x{height}")));
            out.optional("rate", source.usb.rate.map(|rate| rate.to_string()));
            let controls =
                source.usb.controls.iter().map(|control| format!("{}={}", control.name, control.value));
            let controls: Vec<_> = controls.collect();
            out.optional("controls", (!controls.is_empty()).then(|| format!("[{}]", controls.join(", "))));
        });
    }
    out.key("on_loss", source.on_loss.name());
    out.key("late_after", &duration_text(source.late_after));
    print_picture(out, &source.picture);
    if camera.region != RegionConfig::default() {
        out.section("region", |out| {
            out.key("x", &camera.region.x.to_string());
            out.key("y", &camera.region.y.to_string());
            out.optional("width", camera.region.width.map(|width| width.to_string()));
            out.optional("height", camera.region.height.map(|height| height.to_string()));
        });
    }
    out.section("detect", |out| {
        for detect in &camera.detect {
            out.item(|out| print_detect(out, detect));
        }
    });
}

fn print_picture(out: &mut Yaml, picture: &PictureConfig) {
    if *picture == PictureConfig::default() {
        return;
    }
    out.section("picture", |out| {
        out.key("watch", picture.watch.name());
        out.key("frozen_after", &picture.frozen_after.map_or("off".to_owned(), duration_text));
        out.key("blind_after", &duration_text(picture.blind_after));
        out.key("dark_below", &picture.dark_below.to_string());
        out.key("washed_out_above", &picture.washed_out_above.to_string());
        out.key("uniform_below", &picture.uniform_below.to_string());
    });
}

fn print_detect(out: &mut Yaml, detect: &DetectConfig) {
    out.key("model", &quoted(&detect.model));
    if !detect.devices.is_empty() {
        let devices: Vec<String> = detect.devices.iter().map(|device| quoted(device)).collect();
        out.key("devices", &format!("[{}]", devices.join(", ")));
    }
    out.optional("rate_max", detect.rate_max.map(|rate| rate.to_string()));
    out.optional("deadline", detect.deadline.map(duration_text));
    out.key("publish_late", if detect.late == Late::Publish { "true" } else { "false" });
    out.key("quality", detect.quality.name());
    out.key("weight", &detect.weight.to_string());
    out.optional("score_min", detect.score_min.map(|score| score.to_string()));
}

fn print_realtime(out: &mut Yaml, realtime: &Realtime) {
    let Places { source, infer, io } = &realtime.places;
    let kinds = [("source", source), ("infer", infer), ("io", io)];
    out.key("lock_memory", wish_text(realtime.memory.lock));
    out.key("huge_pages", wish_text(realtime.memory.huge_pages));
    if kinds.iter().any(|(_, place)| place.cpus.is_some()) {
        out.section("cpus", |out| {
            for (kind, place) in kinds {
                out.optional(kind, place.cpus.as_ref().map(cpus_text));
            }
        });
    }
    out.section("scheduling", |out| {
        for (kind, place) in kinds {
            out.key(kind, &place.scheduling.to_string());
        }
        out.key("force_infer", if realtime.force_infer { "true" } else { "false" });
        out.key("grant", if realtime.grant == Grant::Require { "require" } else { "auto" });
    });
}

fn wish_text(wish: Wish) -> &'static str {
    match wish {
        Wish::Require => "require",
        Wish::Auto => "auto",
        Wish::Off => "off",
    }
}

fn cpus_text(cpus: &Cpus) -> String {
    let cpus: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
    format!("[{}]", cpus.join(", "))
}

fn print_mqtt(out: &mut Yaml, mqtt: &MqttConfig, keeper: Option<&SecretKeeper>) {
    let scheme = if mqtt.tls { "mqtts" } else { "mqtt" };
    out.key("broker", &quoted(&format!("{scheme}://{}:{}", mqtt.host, mqtt.port)));
    out.optional("ca_file", mqtt.ca_file.as_deref().map(path_text));
    out.optional("cert_file", mqtt.cert_file.as_deref().map(path_text));
    out.optional("key_file", mqtt.key_file.as_deref().map(path_text));
    print_credentials(out, mqtt.username.as_deref(), mqtt.password.as_ref(), keeper);
    out.key("client_id", &quoted(&mqtt.client_id));
    out.key("qos", &mqtt.qos.to_string());
    out.key("prefix", &quoted(&mqtt.prefix));
    out.key("queue", &mqtt.queue.to_string());
}

fn print_credentials(
    out: &mut Yaml,
    username: Option<&str>,
    password: Option<&Secret>,
    keeper: Option<&SecretKeeper>,
) {
    out.optional("username", username.map(quoted));
    match keeper {
        Some(SecretKeeper::File(path)) => out.key("password_file", &path_text(path)),
        Some(SecretKeeper::Variable(name)) => out.key("password_env", &quoted(name)),
        None if password.is_some() => {
            out.line("# a password is set and not shown; keep it in a file and write password_file here");
        }
        None => {}
    }
}

fn absolute(path: &Path) -> std::path::PathBuf {
    // It fails only without a working directory; the path is then as good as any.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn path_text(path: &Path) -> String {
    quoted(&absolute(path).to_string_lossy())
}
