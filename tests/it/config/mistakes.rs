//! Mistakes in any number, order and nesting give exactly as many errors, each at its key.

use gantry::yaml::{Entry, Node, Place, Value};
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::support::{check, tree};
use super::yaml::{Style, emit, shuffle, style};

const GOOD: &str = "\
node: line-7
devices:
  - {id: cpu0, backend: auto, threads: 2, library: ort.so}
  - {id: gpu0, backend: fake, threads: 1, fake: {run_time: 5ms, fail_every: 10}}
models: {dir: ../models}
cameras:
  - id: press-1
    source: rtsp://10.0.0.7/stream1
    username: viewer
    password_file: press-1.password
    transport: tcp
    stale_after: 3s
    cpus: [0, 1]
    video_decode: keyframes
    on_loss: infer
    late_after: 1s
    detect:
      - {model: line-parts, devices: [cpu0], rate_max: 10, deadline: 80ms, score_min: 0.4}
      - {model: seals@2.0.0, devices: [gpu0]}
  - id: press-2
    source: test://pattern?size=640x480&rate=25
    detect: [{model: line-parts@1.1.0}]
  - id: press-3
    source: v4l2:///dev/video0
    stale_after: 5s
    region: {x: 10, y: 20, width: 640, height: 480}
    detect: [{model: seals, devices: [cpu0, gpu0]}]
batching: {size_max: 8, queue_delay_max: 5ms}
realtime:
  lock_memory: auto
  cpus: {source: [0], infer: [0, 1], io: [1]}
  scheduling: {source: fifo 20, infer: nice 5}
publish:
  detections: nonempty
  stdout: false
  mqtt:
    broker: mqtts://broker:8883
    ca_file: ca.pem
    cert_file: client.pem
    key_file: client.key
    username: line-7
    password_file: mqtt.password
    qos: 1
    prefix: plant/hall
    queue: 100
admin: {listen: 127.0.0.1:9464}
";

/// One mistake that can be made in [`GOOD`], whatever others are made too.
#[derive(Clone, Copy, Debug)]
enum Mistake {
    /// This key gets this value.
    Set(&'static str, &'static str),
    /// This key is called that.
    Rename(&'static str, &'static str),
    /// This key is put in, with this value.
    Put(&'static str, &'static str),
    /// This key is taken out, of which that path is told.
    Take(&'static str, &'static str),
    /// This key stands in another section.
    Move(&'static str, &'static str),
}
use Mistake::{Move, Put, Rename, Set, Take};

const MISTAKES: &[Mistake] = &[
    Set("node", "a/b"),
    Set("node", "[a]"),
    Set("devices[0].threads", "four"),
    Set("devices[0].library", "{a: b}"),
    Set("devices[1].backend", "cuda"),
    Set("devices[1].id", "gpu/0"),
    Set("devices[1].fake", "fast"),
    Set("devices[1].threads", "0"),
    Set("cameras[0].source", "rtsp:///stream1"),
    Set("cameras[0].source", "rtsp://10.0.0.7:99999/a"),
    Set("cameras[0].stale_after", "3"),
    Set("cameras[0].transport", "tpc"),
    Set("cameras[0].video_decode", "keyframe"),
    Set("cameras[0].on_loss", "ignore"),
    Set("cameras[0].late_after", "1"),
    Set("cameras[0].detect[0].model", "line-prats"),
    Set("cameras[0].detect[0].devices[0]", "npu9"),
    Set("cameras[0].detect[0].rate_max", "2000"),
    Set("cameras[0].detect[0].deadline", "80"),
    Set("cameras[0].detect[0].score_min", "high"),
    Set("cameras[1].id", "press/2"),
    Set("cameras[1].source", "bogus://x"),
    Set("cameras[2].id", "press-1"),
    Set("cameras[2].source", "v4l2://dev/video0"),
    Set("cameras[2].detect[0].model", "seals@3.0.0"),
    Set("cameras[2].stale_after", "[5s]"),
    Set("cameras[2].region.x", "-1"),
    Set("cameras[2].region.width", "0"),
    Set("cameras[2].region.height", "70000"),
    Set("cameras[2].region", "640x480"),
    Set("batching.size_max", "1000"),
    Set("batching.queue_delay_max", "5"),
    Set("realtime.lock_memory", "always"),
    Set("realtime.cpus.source[0]", "7"),
    Set("realtime.cpus.io", "0"),
    Set("realtime.scheduling.source", "fifo 100"),
    Set("realtime.scheduling.infer", "rr 10"),
    Set("cameras[0].cpus[1]", "0"),
    Set("publish.detections", "sometimes"),
    Set("publish.stdout", "maybe"),
    Set("publish.mqtt.broker", "mqtts://broker:99999"),
    Set("publish.mqtt.broker", "http://broker"),
    Set("publish.mqtt.qos", "3"),
    Set("publish.mqtt.queue", "[1]"),
    Set("publish.mqtt.prefix", "a//b"),
    Set("admin.listen", "localhost:9464"),
    Rename("admin", "admn"),
    Rename("admin.listen", "lisen"),
    Rename("devices", "device"),
    Rename("devices[0].id", "idd"),
    Rename("devices[0].backend", "Backend"),
    Rename("models", "modles"),
    Rename("cameras", "camera"),
    Rename("cameras[0].source", "sorce"),
    Rename("cameras[0].transport", "transprt"),
    Rename("cameras[0].video_decode", "video_decoder"),
    Rename("cameras[1].detect", "detects"),
    Rename("cameras[2].detect[0].model", "modell"),
    Rename("batching", "batchng"),
    Rename("realtime.scheduling", "schedulng"),
    Rename("realtime.cpus.infer", "infr"),
    Rename("publish", "pubish"),
    Rename("publish.mqtt", "mqt"),
    Rename("publish.mqtt.broker", "brokr"),
    Put("qos", "1"),
    Put("nonsense", "{a: [b]}"),
    Put("batching.stale_after", "3s"),
    Put("cameras[0].password_env", "PASSWORD"),
    Put("cameras[0].udp_buffer", "2MB"),
    Put("cameras[1].rate_max", "10"),
    Put("cameras[2].password", "hunter2"),
    Put("cameras[2].batching", "{}"),
    Put("publish.size_max", "8"),
    Put("publish.mqtt.password", "hunter2"),
    Put("models.threads", "2"),
    Take("cameras[1].detect", "cameras[1].detect"),
    Take("cameras[0].id", "cameras[0].id"),
    Take("publish.mqtt.key_file", "publish.mqtt.cert_file"),
    Move("publish.mqtt.broker", "publish.broker"),
    Move("cameras[2].source", "batching.source"),
    Move("cameras[0].detect[1].model", "cameras[0].model"),
    Move("cameras[1].detect", "detect"),
    Move("batching", "publish.batching"),
    Move("publish.mqtt", "mqtt"),
];

impl Mistake {
    /// The path of what it changes.
    fn target(self) -> &'static str {
        match self {
            Set(path, _) | Rename(path, _) | Put(path, _) | Take(path, _) | Move(path, _) => path,
        }
    }

    /// The path that is told.
    fn told(self) -> String {
        match self {
            Set(path, _) | Put(path, _) | Take(_, path) | Move(_, path) => path.to_owned(),
            Rename(path, name) => match path.rsplit_once('.') {
                Some((section, _)) => format!("{section}.{name}"),
                None => name.to_owned(),
            },
        }
    }

    /// Makes it. The tree keeps its right names, so that paths stay; those to be renamed are given back.
    fn make(self, tree: &mut Node) -> Option<(&'static str, &'static str)> {
        match self {
            Set(path, value) => *at(tree, path) = self::tree(value),
            Rename(path, name) => return Some((path, name)),
            Put(path, value) => put(tree, path, self::tree(value)),
            Take(path, _) => drop(take(tree, path)),
            Move(from, to) => {
                let node = take(tree, from);
                put(tree, to, node);
            }
        }
        None
    }
}

fn put(tree: &mut Node, path: &str, node: Node) {
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    let place = Place { line: 1, column: 1 };
    entries(at(tree, section)).push(Entry { key: key.to_owned(), place, last_line: place.line, node });
}

fn take(tree: &mut Node, path: &str) -> Node {
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    let entries = entries(at(tree, section));
    let index = entries.iter().position(|entry| entry.key == key).unwrap();
    entries.remove(index).node
}

fn entries(node: &mut Node) -> &mut Vec<Entry> {
    match &mut node.value {
        Value::Map(entries) => entries,
        other => panic!("{other:?} is no map"),
    }
}

/// The node at a path such as `cameras[0].detect`.
fn at<'n>(mut node: &'n mut Node, path: &str) -> &'n mut Node {
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        node = match (step.strip_suffix(']'), &mut node.value) {
            (Some(index), Value::List(nodes)) => &mut nodes[index.parse::<usize>().unwrap()],
            (None, Value::Map(entries)) => {
                &mut entries
                    .iter_mut()
                    .find(|entry| entry.key == step)
                    .unwrap_or_else(|| panic!("{path}"))
                    .node
            }
            (_, other) => panic!("{path} in {other:?}"),
        };
    }
    node
}

/// Whether one changes what the other needs.
fn collide(one: Mistake, other: Mistake) -> bool {
    // An id that is gone is nobody's double.
    if [one.target(), other.target()].iter().all(|path| ["cameras[0].id", "cameras[2].id"].contains(path)) {
        return true;
    }
    let inside = |one: Mistake, other: Mistake| {
        let outer = one.target();
        let gone = matches!(one, Set(..) | Take(..) | Move(..));
        let within = |path: &str| path.strip_prefix(outer).is_some_and(|rest| rest.starts_with(['.', '[']));
        other.target() == outer || (gone && (within(other.target()) || within(&other.told())))
    };
    inside(one, other) || inside(other, one)
}

fn with_mistakes(mistakes: &[Mistake], style: &Style) -> String {
    let mut tree = tree(GOOD);
    let mut names: Vec<_> = mistakes.iter().filter_map(|mistake| mistake.make(&mut tree)).collect();
    // The innermost first: a renamed section is not found by its right name.
    names.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    for (path, name) in names {
        let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
        for entry in entries(at(&mut tree, section)) {
            if entry.key == key {
                entry.key = name.to_owned();
            }
        }
    }
    shuffle(&mut tree, style);
    let mut text = String::new();
    emit(&tree, 0, style, &mut text);
    text
}

/// Each mistake is told once, by its path, and nothing else is told.
fn assert_told(mistakes: &[Mistake], style: &Style) {
    let text = with_mistakes(mistakes, style);
    let (_, problems) = check(text.as_bytes());
    let mut told: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
    let mut expected: Vec<String> = mistakes.iter().map(|mistake| mistake.told()).collect();
    told.sort();
    expected.sort();
    assert_eq!(told, expected, "{mistakes:#?} in\n{text}\n{problems:#?}");
    let lines = text.lines().count();
    assert!(
        problems.iter().all(|problem| problem.place.is_some_and(|place| (1..=lines).contains(&place.line)))
    );
    assert!(problems.iter().all(|problem| !problem.message.contains("hunter2")));
}

#[test]
fn each_mistake_alone_is_told_once_and_nothing_else() {
    let block = Style { order: vec![0], flow_from: 6 };
    for mistake in MISTAKES {
        assert_told(&[*mistake], &block);
    }
}

#[test]
fn any_two_mistakes_are_told_as_two() {
    let flow = Style { order: vec![0], flow_from: 3 };
    for (index, one) in MISTAKES.iter().enumerate() {
        for other in &MISTAKES[index + 1..] {
            if !collide(*one, *other) {
                assert_told(&[*one, *other], &flow);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_many_errors_are_told_as_mistakes_are_made_in_any_order_and_nesting(
        wanted in subsequence(MISTAKES, 12..=MISTAKES.len()).prop_shuffle(),
        style in style(),
    ) {
        let mut mistakes: Vec<Mistake> = Vec::new();
        for mistake in wanted {
            if mistakes.iter().all(|other| !collide(*other, mistake)) {
                mistakes.push(mistake);
            }
        }
        assert_told(&mistakes, &style);
    }

    #[test]
    fn a_config_without_a_mistake_is_the_same_in_any_order_and_nesting(style in style()) {
        let (validated, problems) = check(with_mistakes(&[], &style).as_bytes());
        prop_assert_eq!(problems, []);
        let (plain, _) = check(GOOD.as_bytes());
        prop_assert_eq!(validated.unwrap().config, plain.unwrap().config);
    }
}
