//! Which executables are held to the scenarios, and what of the run is left out.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{env, fs};

use crate::Release;

/// The plugins under test.
#[derive(Debug)]
pub struct UnderTest {
    pub dir: PathBuf,
    /// The Go plugins are under test, not ours.
    pub reference: bool,
}

/// `CNI_UNDER_TEST` chooses: `single` executables, the `reference` (1.9.1; 1.1.1 where that is not unpacked), or else what `make install`
/// installs.
pub fn under_test() -> &'static UnderTest {
    static CHOICE: LazyLock<UnderTest> = LazyLock::new(|| match env::var("CNI_UNDER_TEST").as_deref() {
        Ok("reference") => UnderTest { dir: Release::latest().place(), reference: true },
        Ok("single") => UnderTest { dir: ours(), reference: false },
        Ok(other) => panic!("CNI_UNDER_TEST={other}: only \"single\" and \"reference\" are known"),
        Err(_) => UnderTest { dir: together(), reference: false },
    });
    &CHOICE
}

/// The directory of ferrule, which is all plugins in one. A directory that single executables were installed in has none.
pub fn together() -> PathBuf {
    Some(ours().join("multi")).filter(|dir| dir.exists()).unwrap_or_else(ours)
}

/// The directory of our single executables, whoever is under test: `FERRULE_BIN`, or the repository's bin/.
pub fn ours() -> PathBuf {
    env::var_os("FERRULE_BIN").map_or_else(|| repository().join("bin"), PathBuf::from)
}

pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the lab is in the repository")
}

/// The names of all plugins; of the reference's, those that are installed. Each has a crate below one of these directories.
pub fn plugins() -> Vec<String> {
    let list = |directory| fs::read_dir(repository().join(directory)).expect("list the plugins").flatten();
    let crates = ["plugins", "ipam", "meta"].into_iter().flat_map(list);
    let crates = crates.filter(|entry| entry.path().join("Cargo.toml").exists());
    let mut names: Vec<_> =
        crates.map(|entry| entry.file_name().into_string().expect("an ASCII name")).collect();
    names.retain(|name| !under_test().reference || under_test().dir.join(name).exists());
    names
}

/// Counts the running test as skipped. With `FERRULE_NO_SKIP` set (where nothing may be missing) it fails instead.
pub fn skip(reason: &str) {
    assert!(env::var_os("FERRULE_NO_SKIP").is_none(), "may not be skipped here: {reason}");
    record_skip(reason);
}

/// The harness knows no "skipped at run time", so a line in the file `SUITE_SKIPS` is what scripts/test counts.
fn record_skip(reason: &str) {
    let line = format!("SKIP {}: {reason}\n", test_name());
    eprint!("{line}");
    if let Some(path) = env::var_os("SUITE_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(path).expect("open SUITE_SKIPS");
        file.write_all(line.as_bytes()).expect("write to SUITE_SKIPS");
    }
}

pub(crate) fn test_name() -> String {
    std::thread::current().name().unwrap_or("test").to_owned()
}

/// Whether the reference is under test, and so the test that shows this difference has to be left out.
/// Whoever is under test, the difference must have its entry in docs/reference-quirks.md.
pub fn quirk(anchor: &str) -> bool {
    has_entry(anchor);
    if under_test().reference {
        record_skip(&format!("the reference differs, see docs/reference-quirks.md#{anchor}"));
    }
    under_test().reference
}

/// As [`quirk`], of the reference's 1.1.1: release 1.9.1 passes the test.
pub fn quirk_of_1_1_1(anchor: &str) -> bool {
    has_entry(anchor);
    let is_old = under_test().reference && Release::latest() == Release::V1_1_1;
    if is_old {
        record_skip(&format!("the reference's 1.1.1 differs, see docs/reference-quirks.md#{anchor}"));
    }
    is_old
}

fn has_entry(anchor: &str) {
    let doc = repository().join("docs/reference-quirks.md");
    let text = fs::read_to_string(&doc).expect("read docs/reference-quirks.md");
    let entry = format!("<a id=\"{anchor}\"></a>");
    assert!(text.contains(&entry), "{} has no entry {entry}", doc.display());
}
