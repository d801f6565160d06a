//! Where the library of a runtime is looked for, and what is said when it is nowhere.
//!
//! A library that somebody named, in the config or in the environment, is the only one that is tried: whoever pins a
//! library gets that one or an error. Otherwise the first place that has it wins:
//!
//! 1. the private runtime directories, in which `scripts/fetch-runtime` puts libraries:
//!    `<prefix>/lib/gantry/runtimes/<runtime>` beside the binary, then `$XDG_DATA_HOME/gantry/runtimes/<runtime>`
//!    (`~/.local/share` without that variable), then `/usr/lib/gantry/runtimes/<runtime>`;
//! 2. the system's libraries: the directories of `LD_LIBRARY_PATH`, then those that the loader knows by itself.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A runtime's library: how it is called, and which variable may name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Library {
    /// The runtime, as `scripts/fetch-runtime` calls it.
    pub runtime: &'static str,
    /// The file name without a version: `libonnxruntime.so`.
    pub file: &'static str,
    /// The environment variable that names the file.
    pub variable: &'static str,
}

/// What of the process's surroundings decides where a library is looked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Surroundings {
    /// Value of the library's variable.
    pub named: Option<OsString>,
    /// Path of the running binary.
    pub binary: Option<PathBuf>,
    /// `XDG_DATA_HOME`.
    pub data_home: Option<OsString>,
    /// `HOME`.
    pub home: Option<OsString>,
    /// Where packages put libraries: `/usr/lib`.
    pub packaged: Option<PathBuf>,
    /// `LD_LIBRARY_PATH`.
    pub library_path: Option<OsString>,
    /// Directories of the system's libraries.
    pub system: Vec<PathBuf>,
}

/// Where a library is, or where it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// The file.
    At(PathBuf),
    /// The places that do not have it, for people.
    Nowhere(Vec<String>),
}

impl Surroundings {
    /// Those of this process.
    pub(super) fn of_process(library: Library) -> Self {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let triple = format!("{}-linux-gnu", env::consts::ARCH);
        let roots = ["/usr/local/lib", "/lib", "/usr/lib"].map(PathBuf::from);
        let triples = roots.iter().map(|root| root.join(&triple)).collect::<Vec<_>>();
        Self {
            named: set(library.variable),
            binary: env::current_exe().ok(),
            data_home: set("XDG_DATA_HOME"),
            home: set("HOME"),
            packaged: Some(PathBuf::from("/usr/lib")),
            library_path: set("LD_LIBRARY_PATH"),
            system: triples.into_iter().chain(roots).chain([PathBuf::from("/usr/lib64")]).collect(),
        }
    }

    fn private(&self, runtime: &str) -> Vec<PathBuf> {
        let prefix = self.binary.as_deref().and_then(Path::parent).and_then(Path::parent);
        let data = self.data_home.as_ref().map(PathBuf::from);
        let data = data.or_else(|| self.home.as_ref().map(|home| Path::new(home).join(".local/share")));
        let roots = [prefix.map(|prefix| prefix.join("lib")), data, self.packaged.clone()];
        let mut places: Vec<PathBuf> = Vec::new();
        for root in roots.into_iter().flatten() {
            let place = root.join("gantry/runtimes").join(runtime);
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }
}

/// Finds `library`. `configured` is the path that the config names, if it does.
pub(super) fn find(library: Library, configured: Option<&Path>, around: &Surroundings) -> Location {
    let named = configured.map(|path| (path.to_owned(), "`library` in the config"));
    let named = named.or_else(|| around.named.as_ref().map(|path| (PathBuf::from(path), library.variable)));
    if let Some((path, by)) = named {
        // A directory or a broken link is there, in a way; the loader says what is wrong with it.
        let there = path.symlink_metadata().is_ok();
        let told = || Location::Nowhere(vec![format!("{} ({by})", path.display())]);
        return if there { Location::At(std::path::absolute(&path).unwrap_or(path)) } else { told() };
    }
    let private = around.private(library.runtime);
    let path = around.library_path.iter().flat_map(env::split_paths).filter(|path| path.is_absolute());
    let system: Vec<PathBuf> = path.chain(around.system.iter().cloned()).collect();
    if let Some(found) = private.iter().chain(&system).find_map(|dir| newest_in(dir, library.file)) {
        return Location::At(found);
    }
    let mut looked: Vec<String> = private.iter().map(|dir| dir.display().to_string()).collect();
    looked.push(format!("the system's library directories ({})", shown(&system)));
    Location::Nowhere(looked)
}

/// `file` in `dir`, or the one with the highest version after its name (`libonnxruntime.so.1.21`).
fn newest_in(dir: &Path, file: &str) -> Option<PathBuf> {
    let plain = dir.join(file);
    if plain.exists() {
        return Some(plain);
    }
    let version = |name: &str| -> Option<Vec<u32>> {
        let version = name.strip_prefix(file)?.strip_prefix('.')?;
        version.split('.').map(|part| part.parse().ok()).collect()
    };
    let entries = fs::read_dir(dir).ok()?.filter_map(Result::ok);
    let versioned = entries.filter_map(|entry| Some((version(entry.file_name().to_str()?)?, entry.path())));
    versioned.max().map(|(_, path)| path)
}

fn shown(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBRARY: Library =
        Library { runtime: "onnxruntime", file: "libonnxruntime.so", variable: "GANTRY_ORT_LIB" };

    fn put(path: &Path) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"a library").unwrap();
        path.to_owned()
    }

    #[test]
    fn a_library_is_looked_for_in_the_told_order() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let around = Surroundings {
            named: None,
            binary: Some(root.join("opt/bin/gantry")),
            data_home: None,
            home: Some(root.join("home").into()),
            packaged: Some(root.join("usr/lib")),
            library_path: Some(root.join("ld").into()),
            system: vec![root.join("sys")],
        };
        let found = |around: &Surroundings, configured: Option<&Path>| find(LIBRARY, configured, around);
        let Location::Nowhere(looked) = found(&around, None) else { panic!("nothing is there yet") };
        assert_eq!(looked[0], root.join("opt/lib/gantry/runtimes/onnxruntime").display().to_string());
        assert_eq!(
            looked[1],
            root.join("home/.local/share/gantry/runtimes/onnxruntime").display().to_string()
        );
        assert_eq!(looked[2], root.join("usr/lib/gantry/runtimes/onnxruntime").display().to_string());
        assert!(looked[3].contains(&root.join("ld").display().to_string()), "{}", looked[3]);
        // Each place that gets the library wins over the ones before.
        for place in [
            "sys/libonnxruntime.so.1.21.0",
            "ld/libonnxruntime.so",
            "usr/lib/gantry/runtimes/onnxruntime/libonnxruntime.so",
            "home/.local/share/gantry/runtimes/onnxruntime/libonnxruntime.so",
            "opt/lib/gantry/runtimes/onnxruntime/libonnxruntime.so",
        ] {
            let file = put(&root.join(place));
            assert_eq!(found(&around, None), Location::At(file));
        }
        let named = Surroundings { named: Some(put(&root.join("named.so")).into()), ..around };
        assert_eq!(found(&named, None), Location::At(root.join("named.so")));
        let configured = put(&root.join("configured.so"));
        assert_eq!(found(&named, Some(&configured)), Location::At(configured));
    }

    #[test]
    fn a_named_library_that_is_not_there_is_not_replaced_by_another() {
        let root = tempfile::tempdir().unwrap();
        let around = Surroundings { system: vec![root.path().to_owned()], ..Surroundings::default() };
        put(&root.path().join("libonnxruntime.so"));
        assert_eq!(
            find(LIBRARY, Some(Path::new("/nowhere/lib.so")), &around),
            Location::Nowhere(vec!["/nowhere/lib.so (`library` in the config)".into()])
        );
        let around = Surroundings { named: Some("/nowhere/env.so".into()), ..around };
        assert_eq!(
            find(LIBRARY, None, &around),
            Location::Nowhere(vec!["/nowhere/env.so (GANTRY_ORT_LIB)".into()])
        );
    }

    #[test]
    fn the_highest_version_wins_as_numbers_do() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["libonnxruntime.so.1.9.0", "libonnxruntime.so.1.21.1", "libonnxruntime.so.1.21.1.bak"] {
            put(&dir.path().join(name));
        }
        let found = newest_in(dir.path(), "libonnxruntime.so").unwrap();
        assert_eq!(found.file_name().unwrap(), "libonnxruntime.so.1.21.1");
    }
}
