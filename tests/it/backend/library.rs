//! Which library of ONNX Runtime is taken, and what is said of one that cannot be.

use std::path::PathBuf;
use std::process::Command;

use gantry::backend::probe::{FoundState, auto_choice, probe};
use gantry::backend::{BackendChoice, BackendError, BackendKind, DeviceConfig};

use super::{FACTORY_TINY, config, engines, is_alone, load, options, read, run};

#[test]
fn a_library_that_is_named_and_not_there_is_told_with_its_place_and_cure() {
    let named = DeviceConfig {
        library: Some("/nowhere/libonnxruntime.so".into()),
        ..config(BackendKind::OnnxRuntime)
    };
    let error = gantry::backend::open(&named).unwrap_err();
    assert!(matches!(error, BackendError::Missing { .. }), "{error:?}");
    let text = error.to_string();
    for part in
        ["onnxruntime", "/nowhere/libonnxruntime.so", "scripts/fetch-runtime onnxruntime", "GANTRY_ORT_LIB"]
    {
        assert!(text.contains(part), "{text}");
    }
    let auto = DeviceConfig { backend: BackendChoice::Auto, ..named };
    assert_eq!(gantry::backend::open(&auto).unwrap().backend(), BackendKind::Embedded);
}

#[test]
fn a_file_that_is_no_onnxruntime_is_unusable_and_auto_goes_on_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.so");
    std::fs::write(&text, "not a library").unwrap();
    let empty = dir.path().join("empty.so");
    std::fs::write(&empty, "").unwrap();
    let mut files = vec![text, empty, dir.path().to_owned()];
    // A real library that is another one.
    let other = ["/lib/x86_64-linux-gnu/libz.so.1", "/lib/aarch64-linux-gnu/libz.so.1"].map(PathBuf::from);
    files.extend(other.into_iter().filter(|path| path.exists()));
    for library in files {
        let named = DeviceConfig { library: Some(library.clone()), ..config(BackendKind::OnnxRuntime) };
        let error = gantry::backend::open(&named).unwrap_err();
        assert!(matches!(error, BackendError::Unusable { .. }), "{error:?}");
        assert!(error.to_string().contains(library.to_str().unwrap()), "{error}");
        let auto = DeviceConfig { backend: BackendChoice::Auto, ..named };
        assert_eq!(gantry::backend::open(&auto).unwrap().backend(), BackendKind::Embedded);
    }
}

#[test]
fn an_old_or_broken_onnxruntime_is_told_and_is_no_panic() {
    if !is_alone("backend::library::an_old_or_broken_onnxruntime_is_told_and_is_no_panic") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let base = |version: &str, api: &str| {
        format!(
            "static const void *api(unsigned); static const char *version(void) {{ return {version}; }} \
             static const struct {{ const void *(*a)(unsigned); const char *(*v)(void); }} base = {{ api, version }}; static const void *api(unsigned v) {{ return {api}; }} \
             const void *OrtGetApiBase(void) {{ return &base; }}"
        )
    };
    let cases = [
        ("old", base("\"1.10.0\"", "0"), "it is ONNX Runtime 1.10.0, which is too old"),
        ("boastful", base("\"1.99.0\"", "0"), "too old"),
        ("odd", base("\"nightly\"", "&base"), "it is ONNX Runtime nightly, which is too old"),
        ("silent", base("0", "0"), "does not tell its version"),
        ("hollow", "const void *OrtGetApiBase(void) { return 0; }".to_owned(), "it has no API"),
    ];
    for (name, source, words) in cases {
        let (code, library) =
            (dir.path().join(name).with_extension("c"), dir.path().join(name).with_extension("so"));
        std::fs::write(&code, source).unwrap();
        let made = Command::new("cc").args(["-shared", "-fPIC", "-w", "-o"]).args([&library, &code]).status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("SKIP an_old_or_broken_onnxruntime_is_told_and_is_no_panic: no C compiler");
            return;
        }
        let named = DeviceConfig { library: Some(library), ..config(BackendKind::OnnxRuntime) };
        let error = gantry::backend::open(&named).unwrap_err();
        assert!(matches!(error, BackendError::Unusable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("scripts/fetch-runtime onnxruntime"), "{name}: {text}");
    }
}

#[test]
fn a_process_has_one_onnxruntime_and_a_second_one_is_refused_by_name() {
    let test = "a_process_has_one_onnxruntime_and_a_second_one_is_refused_by_name";
    let engines = engines(test);
    let Some(device) = engines.iter().find(|device| device.backend() == BackendKind::OnnxRuntime) else {
        return;
    };
    let other = tempfile::NamedTempFile::new().unwrap();
    let named = DeviceConfig { library: Some(other.path().into()), ..config(BackendKind::OnnxRuntime) };
    let error = gantry::backend::open(&named).unwrap_err().to_string();
    assert!(error.contains("this process already runs"), "{error}");
    assert!(error.contains(other.path().to_str().unwrap()), "{error}");
    let same = gantry::backend::open(&config(BackendKind::OnnxRuntime)).unwrap();
    assert_eq!(same.describe(), device.describe());
}

#[test]
fn auto_takes_what_probe_says_it_takes() {
    let found = probe(None);
    let names: Vec<_> = found.iter().map(|found| found.backend).collect();
    assert_eq!(names, ["embedded", "onnxruntime", "fake"], "a backend that is not there keeps its name");
    assert!(matches!(found[0].state, FoundState::Ready { .. }));
    if let FoundState::Missing { looked, cure, .. } = &found[1].state {
        assert!(!looked.is_empty() && cure.contains("scripts/fetch-runtime onnxruntime"), "{found:?}");
    }
    let auto = DeviceConfig { backend: BackendChoice::Auto, ..config(BackendKind::Embedded) };
    let device = gantry::backend::open(&auto).unwrap();
    let choice = auto_choice(&found);
    assert_eq!(device.backend().name(), choice.backend);
    assert!(!choice.reason.is_empty());
}

#[test]
fn onnxruntime_has_the_threads_that_the_config_says() {
    if !is_alone("backend::library::onnxruntime_has_the_threads_that_the_config_says") {
        return;
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let bytes = read(FACTORY_TINY);
    for wanted in [1, 3] {
        let asked = DeviceConfig { threads: wanted, ..config(BackendKind::OnnxRuntime) };
        let Ok(mut device) = gantry::backend::open(&asked) else {
            eprintln!("SKIP onnxruntime_has_the_threads_that_the_config_says: onnxruntime is not here");
            return;
        };
        let before = threads();
        let mut session = load(&mut *device, &bytes, options(2));
        assert_eq!(run(&mut *session, 0, &[0, 1]).len(), 2);
        assert_eq!(threads() - before, wanted - 1, "the device's own thread is one of {wanted}");
    }
}
