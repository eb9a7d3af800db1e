//! Shell completion: real shells with the scripts that cnitool prints.

use std::fs;
use std::path::Path;

use lab::{Lab, ours, quoted, unpacked};
use serde_json::json;

use crate::common::host_local;

/// A namespace whose name would run a command. The file appears in the working directory.
const HOSTILE: &str = "$(touch ran)";

/// A network `net`, an invalid file, the namespaces `blue` and [`HOSTILE`], and the shell's script.
fn lab_with_script(shell: &str) -> (Lab, String) {
    let lab = Lab::new();
    let plugins = json!([{"type": "bridge", "bridge": "br0", "ipam": host_local(&[&["10.1.2.0/24"]])}]);
    lab.configure("10-net.conflist", &json!({"cniVersion": "1.0.0", "name": "net", "plugins": plugins}));
    fs::write("/etc/cni/net.d/20-invalid.conflist", "{").unwrap();
    lab.host().sh(&format!("mkdir -p /run/netns && touch /run/netns/blue '/run/netns/{HOSTILE}'"));
    let script = lab.dir().join("_cnitool");
    fs::write(&script, lab.cnitool().says(&format!("completion {shell}"))).unwrap();
    (lab, script.display().to_string())
}

/// Command lines with their completions: names of networks and namespaces in the right places.
fn completes(complete: impl Fn(&str) -> String) {
    let network_commands =
        ["add", "check", "del", "gc", "graph", "repair", "show", "status", "test-connectivity", "version"];
    let words = |line: &str| complete(line).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for command in network_commands {
        let offered = words(&format!("cnitool {command} n"));
        assert!(offered.iter().any(|name| name == "net"), "{command}: {offered:?}");
    }
    for command in ["add", "check", "del"] {
        let offered = words(&format!("cnitool {command} net b"));
        assert!(offered.iter().any(|name| name == "blue"), "{command}: {offered:?}");
    }
    let offered = words("cnitool explain n");
    assert!(!offered.iter().any(|name| name == "net"), "explain asks for no network: {offered:?}");
}

fn path() -> String {
    format!("PATH={}:$PATH", quoted(&ours()))
}

/// The completion of a command line contains this form of the name [`HOSTILE`], which is not executed.
#[track_caller]
fn executes_nothing(lab: &Lab, completed: &str, form: &str) {
    assert!(completed.contains(form), "{completed}");
    assert!(!lab.dir().join("ran").exists(), "the shell has executed the name: {completed}");
}

#[test]
fn bash_completes_names_of_networks_and_namespaces() {
    let (lab, script) = lab_with_script("bash");
    let complete = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let at = words.len() - 1;
        let ask = "_cnitool_names cnitool '' ''; echo ${COMPREPLY[@]}";
        let dir = lab.dir().display();
        let code = format!("cd {dir}; {}; . {script}; COMP_WORDS=({line}) COMP_CWORD={at}; {ask}", path());
        lab.host().exec(&["bash", "-c", &code])
    };
    completes(complete);
    assert!(
        complete("cnitool add --create --timeout 9 n").contains("net"),
        "options may precede the network"
    );
    assert!(complete("cnitool add net -i eth1 b").contains("blue"), "a value of an option is no argument");
    assert!(!complete("cnitool add net -i b").contains("blue"), "nor is it one that is being typed");
    // bash splits --conf-dir=/etc/cni/net.d.
    assert!(complete("cnitool --conf-dir = /etc/cni/net.d add n").contains("net"));
    assert!(
        !complete("cnitool --conf-dir = /etc add n").contains("net"),
        "the networks of another directory"
    );
    let offered = complete("cnitool add ''");
    assert!(!offered.split_whitespace().any(|name| name == "-"), "an invalid file is no network: {offered}");
    executes_nothing(&lab, &complete("cnitool add net "), r"\$\(touch\ ran\)");
    executes_nothing(&lab, &complete(r"cnitool add net '\$'"), r"\$\(touch\ ran\)");
}

#[test]
fn fish_completes_names_of_networks_and_namespaces() {
    let Some(tree) = unpacked("shells") else { return };
    let (lab, script) = lab_with_script("fish");
    let library = tree.join("usr/lib/x86_64-linux-gnu");
    let functions = quoted(&tree.join("usr/share/fish/functions"));
    let dir = lab.dir().display();
    let complete = |line: &str| {
        let code = format!(
            "{}; cd {dir}; export HOME={dir} LD_LIBRARY_PATH={} FUNCTIONS={functions}; exec {} --no-config -c 'set fish_function_path \"$FUNCTIONS\"; source {script}; complete -C\"{line}\"'",
            path(),
            quoted(&library),
            quoted(&tree.join("usr/bin/fish"))
        );
        lab.host().exec(&["bash", "-c", &code])
    };
    completes(complete);
    executes_nothing(&lab, &complete("cnitool add net "), HOSTILE);
}

/// zsh only completes in a line editor: in a terminal that another zsh controls.
#[test]
fn zsh_completes_names_of_networks_and_namespaces() {
    let Some(tree) = unpacked("shells") else { return };
    let (lab, script) = lab_with_script("zsh");
    let driver = lab.dir().join("driver");
    let dir = Path::new(&script).parent().unwrap().display().to_string();
    let complete = |line: &str| {
        fs::write(&driver, driven(&tree, &dir, line)).unwrap();
        let zsh = quoted(&tree.join("bin/zsh"));
        // What is typed before the line editor has begun may be lost, and then the driver waits for ever.
        let script = format!(
            "cd {dir}; {}; TREE={} exec timeout 60 {zsh} -f {}",
            path(),
            quoted(&tree),
            driver.display()
        );
        let mut tries = (0..5).map(|_| lab.host().try_exec(&["bash", "-c", &script]));
        let done =
            tries.find(|output| output.status.success()).expect("zsh completes the line within a minute");
        String::from_utf8(done.stdout).unwrap()
    };
    completes(complete);
    executes_nothing(&lab, &complete(r"cnitool add net \\$"), r"\$\(touch\ ran\)");
}

/// Types a line and Tab, and prints the completed line by a widget.
fn driven(tree: &Path, dir: &str, line: &str) -> String {
    let zsh = quoted(&tree.join("bin/zsh"));
    // zsh does not split the value of a variable.
    let modules = "module_path=($TREE/usr/lib/x86_64-linux-gnu/zsh/5.9)";
    let functions = format!("fpath=({dir} $TREE/usr/share/zsh/functions/**/*(/))");
    format!(
        r#"{modules}
zmodload zsh/zpty
zpty shell {zsh:?} -f -i
zpty -w shell 'PS1=; {modules}; {functions}; autoload -U compinit; compinit -u -D; unsetopt auto_list bash_auto_list; bindkey "^I" expand-or-complete
say() {{ print -r -- "<<$BUFFER>>"; BUFFER=; zle accept-line }}; zle -N say; bindkey "^X" say; print re""ady'
zpty -r shell seen '*ready*'
zpty -w -n shell $'{line}\t\x18'
zpty -r shell seen '*<<*>>*'
seen=${{seen##*<<}}
print -r -- ${{seen%%>>*}}
"#,
    )
}
