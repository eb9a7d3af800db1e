//! The executables under test, and skipped tests.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{env, fs};

use crate::{Feature, Release, names};

/// The plugins under test.
#[derive(Debug)]
pub struct UnderTest {
    pub dir: PathBuf,
    /// Whether the reference's plugins are under test.
    pub reference: bool,
}

/// `CNI_UNDER_TEST` selects: `single` executables, the `reference` (1.9.1, or 1.1.1 if that is not unpacked), otherwise
/// what `make install` installs.
pub fn under_test() -> &'static UnderTest {
    static CHOICE: LazyLock<UnderTest> = LazyLock::new(|| match env::var("CNI_UNDER_TEST").as_deref() {
        Ok("reference") => UnderTest { dir: Release::latest().place(), reference: true },
        Ok("single") => UnderTest { dir: ours(), reference: false },
        Ok(other) => panic!("CNI_UNDER_TEST={other}: only \"single\" and \"reference\" are known"),
        Err(_) => UnderTest { dir: together(), reference: false },
    });
    &CHOICE
}

/// The directory of ferrule, which contains all plugins. A directory with separate executables does not have it.
pub fn together() -> PathBuf {
    let dir = ours().join("multi");
    if !dir.exists() {
        return ours();
    }
    // Without hard links, each plugin would start its IPAM plugin, and nothing would test that it can do without.
    let inode_of = |plugin: &str| fs::metadata(dir.join(plugin)).map(|file| file.ino()).ok();
    assert_eq!(
        inode_of("bridge"),
        inode_of("host-local"),
        "{}: no hard links: copy with cp -a",
        dir.display()
    );
    dir
}

/// The directory of Ferrule's separate executables: `FERRULE_BIN`, or the repository's bin/.
pub fn ours() -> PathBuf {
    env::var_os("FERRULE_BIN").map_or_else(|| repository().join("bin"), PathBuf::from)
}

pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the lab is in the repository")
}

/// The names of all plugins. For the reference, of the installed ones. Each plugin has a crate below one of these
/// directories.
pub fn plugins() -> Vec<String> {
    let list = |directory| fs::read_dir(repository().join(directory)).expect("list the plugins").flatten();
    let crates = ["plugins", "ipam", "meta"].into_iter().flat_map(list);
    let crates = crates.filter(|entry| entry.path().join("Cargo.toml").exists());
    let mut names: Vec<_> =
        crates.map(|entry| entry.file_name().into_string().expect("an ASCII name")).collect();
    names.retain(|name| !under_test().reference || under_test().dir.join(name).exists());
    names
}

/// Counts the running test as skipped. With `FERRULE_NO_SKIP`, it fails instead.
pub fn skip(reason: &str) {
    assert!(env::var_os("FERRULE_NO_SKIP").is_none(), "may not be skipped here: {reason}");
    record_skip(reason);
}

/// Skips a part of a test, and returns true, if this kernel lacks a feature.
pub fn skip_part(part: &str, feature: Feature) -> bool {
    if !feature.is_there() {
        skip(&format!("{part}: this kernel has no {feature}"));
    }
    !feature.is_there()
}

/// Skips the test of kernels without a feature, and returns true, if this kernel has the feature. Also with
/// `FERRULE_NO_SKIP`: no kernel can run such a test and the tests that need the feature.
pub fn skip_with(feature: Feature) -> bool {
    if feature.is_there() {
        record_skip(&format!("this kernel has {feature}"));
    }
    feature.is_there()
}

/// The test harness has no "skipped at run time". scripts/test counts the lines of the file `SUITE_SKIPS` instead.
fn record_skip(reason: &str) {
    let line = format!("SKIP {}: {reason}\n", test_name());
    eprint!("{line}");
    if let Some(path) = env::var_os("SUITE_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(path).expect("open SUITE_SKIPS");
        file.write_all(line.as_bytes()).expect("write to SUITE_SKIPS");
    }
}

pub(crate) fn test_name() -> String {
    names::current_test().unwrap_or_else(|| "test".to_owned())
}

/// Whether the reference is under test, so that a test of this difference is left out. The difference must have an
/// entry in docs/reference-quirks.md, whatever is under test.
pub fn quirk(anchor: &str) -> bool {
    has_entry(anchor);
    if under_test().reference {
        record_skip(&format!("the reference differs, see docs/reference-quirks.md#{anchor}"));
    }
    under_test().reference
}

/// Like [`quirk`], for the reference's 1.1.1: release 1.9.1 passes the test.
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
