//! The demonstration on a machine without any container configuration: a chroot without /etc/cni and /var/lib/cni.

use std::path::Path;
use std::process::Command;

/// Creates the root directory $1 with the machine's programs, the executables in $2 and the demonstration $3. The
/// latter two have other paths outside.
const SCRIPT: &str = r#"
mount -t tmpfs root "$1"
cd "$1"
for link in /bin /sbin /lib*; do cp -a "$link" .; done
mkdir -p usr proc sys dev run tmp var/lib ferrule/bin
for dir in usr proc sys dev; do mount --rbind "/$dir" $dir; done
mount --rbind "$2" ferrule/bin
cp "$3" ferrule/demo
cp -a /etc .
rm -rf etc/cni
FERRULE_BIN=/ferrule/bin exec chroot . /ferrule/demo
"#;

#[test]
fn it_works_in_a_chroot_that_lacks_the_directories_of_cni() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let root = std::env::temp_dir().join(format!("bare-root-{}", std::process::id()));
    std::fs::create_dir(&root).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-ec", SCRIPT, "sh"]);
    let demo = env!("CARGO_BIN_EXE_demo");
    let output = unshare.arg(&root).arg(repository.join("bin")).arg(demo).output().unwrap();
    std::fs::remove_dir(&root).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("Two machines with flannel's network"), "{text}");
}
