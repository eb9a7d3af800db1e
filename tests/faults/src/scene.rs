//! A lab in which a plugin can be hit again and again.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::case::{Case, Syscall, own_calls};
use super::manager::{self, TOOL};
use super::subject::{Beside, HOST_PORT, Subject};
use super::talk::Talk;
use lab::PATH;
use lab::{Call, Container, Lab, Outcome, Snapshot, under_test};

/// The interface that is attached.
const IFNAME: &str = "eth0";

/// A machine where all that attachments share is there already: one attachment stays all the time, and one has come
/// and gone. What a sweep finds changed is of the attachment that was hit.
#[derive(Debug)]
pub struct Scene {
    lab: Lab,
    stays: Container,
    victim: Container,
    call: Call,
    /// The ADD of the attachment that stays, if that claims again what the victim has.
    claims_again: Option<Call>,
    /// None: no connection of a container goes through what the plugin sets up.
    talk: Option<Talk>,
    /// What is hit is not what is called.
    hooked: bool,
    /// What is hit is fed by a plugin.
    fed: bool,
    /// The reference's CHECK refuses what some of its own ADDs made: it tells nothing then.
    check_tells: bool,
    before: Snapshot,
}

impl Scene {
    pub fn new(subject: &Subject) -> Self {
        Self::on(subject, |lab| {
            if subject.is_managed() {
                manager::install(lab, &Subject::chain());
            }
        })
    }

    /// The same on a machine that is made ready first.
    pub fn on(subject: &Subject, ready: impl FnOnce(&Lab)) -> Self {
        let lab = Lab::new();
        if subject.legacy {
            lab.host().sh("mount --bind /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi");
        }
        ready(&lab);
        let [stays, victim] = ["stays", "victim"].map(|id| lab.container(id));
        // The reference leaves connections in any case: they would hide what else it leaves.
        let talk = (subject.translates && !under_test().reference).then(|| Talk::new(&lab));
        let (beside, result) = attach(&subject.of_the_one_beside().plugins, &stays);
        if let Some(talk) = &talk {
            // Its connections outlast any sweep.
            lab.host().sh("sysctl -qw net.netfilter.nf_conntrack_udp_timeout=86400");
            talk.from(&stays, &result).expect("a container that nothing happened to");
            talk.to_host_port(HOST_PORT + 1);
        }
        let (call, prev) = attach(&subject.plugins, &victim);
        let check_tells = call.check(&prev).succeeded();
        assert!(
            check_tells || under_test().reference,
            "CHECK disagrees with an ADD that nothing happened to"
        );
        call.clone().config(json!({"prevResult": prev})).del().ok();
        if let Some(name) = subject.delegate {
            lab.fake_plugin(name, &hook(&under_test().dir.join(name), &[]));
        }
        for name in subject.tools {
            // Whichever of them is started, and as often as it is.
            lab.fake_plugin(name, &hook(&Path::new("/usr/sbin").join(name), &["-f", "-A"]));
        }
        let before = lab.snapshot();
        let scene = Self {
            lab,
            stays,
            victim,
            call,
            claims_again: (subject.beside == Beside::Newer).then_some(beside),
            talk,
            fed: !subject.tools.is_empty(),
            hooked: subject.delegate.is_some() || !subject.tools.is_empty(),
            check_tells,
            before,
        };
        scene.assert_that_connections_tell();
        scene
    }

    /// The plugin's own calls in a run that nothing happens to.
    pub fn calls_of(&self, verb: &str) -> Vec<Syscall> {
        let prev = self.prepare(verb);
        self.run(verb, prev.as_ref(), Some("trace=all"));
        let calls = own_calls(&self.trace(), self.fed);
        self.del().ok();
        calls
    }

    /// Brings about what a verb needs: an attachment, for all but ADD and STATUS.
    pub fn prepare(&self, verb: &str) -> Option<Value> {
        let result = (!["ADD", "STATUS"].contains(&verb)).then(|| self.call.add().ok_result())?;
        if let Some(beside) = &self.claims_again {
            beside.add().ok_result();
        }
        self.talks(&result).expect("a container that nothing happened to");
        Some(result)
    }

    /// The container sends to others, and somebody to its host port. Why it does not reach them, if so.
    fn talks(&self, result: &Value) -> Result<(), String> {
        self.is_called();
        self.talk.as_ref().map_or(Ok(()), |talk| talk.from(&self.victim, result))
    }

    /// Somebody sends to the host port.
    pub fn is_called(&self) {
        if let Some(talk) = &self.talk {
            talk.to_host_port(HOST_PORT);
        }
    }

    /// The state that is compared has the connections in it that came by a host port.
    fn assert_that_connections_tell(&self) {
        if self.talk.is_some() && self.call.plugin() == "portmap" {
            self.prepare("DEL");
            assert!(self.changes().contains("host: connections\n  + udp from"), "{}", self.changes());
            self.del().ok();
        }
    }

    /// Runs a verb with a fault. None: its place was not reached.
    pub fn hit(&self, verb: &str, prev: Option<&Value>, case: &Case) -> Option<Outcome> {
        let run = self.run(verb, prev, Some(&case.injection()));
        case.happened_in(&self.trace()).then_some(run)
    }

    pub fn add(&self) -> Outcome {
        self.call.add()
    }

    pub fn del(&self) -> Outcome {
        self.call.del()
    }

    /// Why CHECK does not agree with an ADD, if it does not, or what the container cannot do.
    pub fn check_objects(&self, result: &Value) -> Option<String> {
        let check = self.run("CHECK", Some(result), None);
        if self.check_tells && !check.succeeded() {
            return Some(format!("CHECK disagrees: {}", check.stdout));
        }
        self.talks(result).err()
    }

    /// A GC to which the victim is unknown.
    pub fn gc(&self) -> Outcome {
        self.run("GC", None, None)
    }

    /// What differs from before the attachment.
    pub fn changes(&self) -> String {
        self.lab.snapshot().since(&self.before)
    }

    /// The same, but for what is in the container's namespace: that is gone when GC is called.
    pub fn changes_of_the_host(&self) -> String {
        let mut of_the_host = true;
        let changes = self.changes();
        let lines = changes.split_inclusive('\n').filter(|line| {
            if !line.starts_with(' ') {
                of_the_host = !line.starts_with(&format!("{}:", self.victim.id));
            }
            of_the_host
        });
        lines.collect()
    }

    /// Whether the container is not as before.
    pub fn is_worn(&self) -> bool {
        !self.changes().is_empty()
    }

    /// Leases that name nobody.
    pub fn torn_leases(&self) -> Vec<String> {
        let files = fs::read_dir("/var/lib/cni/networks/net").into_iter().flatten().flatten();
        let torn = files.filter(|file| {
            let name = file.file_name().into_string().unwrap_or_default();
            let whole =
                || fs::read_to_string(file.path()).is_ok_and(|text| text.contains(&format!("\r\n{IFNAME}")));
            name.parse::<std::net::IpAddr>().is_ok() && !whole()
        });
        torn.map(|file| file.path().display().to_string()).collect()
    }

    /// The call of a verb: to vary, and to run.
    pub fn call(&self, verb: &str, prev: Option<&Value>) -> Call {
        let call = self.call.clone();
        match verb {
            "CHECK" => call.config(json!({"prevResult": prev})),
            "GC" => {
                let valid = json!([{"containerID": self.stays.id, "ifname": IFNAME}]);
                call.config(json!({"cni.dev/valid-attachments": valid}))
            }
            _ => call,
        }
    }

    fn run(&self, verb: &str, prev: Option<&Value>, trace: Option<&str>) -> Outcome {
        let mut call = self.call(verb, prev);
        let Some(trace) = trace else { return call.run(verb) };
        fs::write(log(), "").expect("empty the trace");
        call = if self.hooked {
            let path = format!("{}:{PATH}", Lab::plugin_dir().display());
            call.env("SWEEP", trace).env("SWEEP_VERB", verb).env("PATH", &path)
        } else if call.plugin() == TOOL {
            call.env("UNDER", &strace(trace).join(" "))
        } else {
            call.under(&strace(trace))
        };
        call.run(verb)
    }

    fn trace(&self) -> String {
        String::from_utf8_lossy(&fs::read(log()).expect("read the trace")).into_owned()
    }
}

/// ADD of all plugins, and the last one's call with what is before it: the earlier ones' result. The last ADD's result too.
fn attach(plugins: &[Value], container: &Container) -> (Call, Value) {
    let mut prev = Value::Null;
    let mut last = None;
    for plugin in plugins {
        let name = plugin["type"].as_str().expect("a plugin's type");
        let version = if under_test().reference { "1.0.0" } else { "1.1.0" };
        let path = format!("{}:{}", Lab::plugin_dir().display(), under_test().dir.display());
        let call = Call::new(name).config(plugin.clone()).version(version).env("CNI_PATH", &path);
        let call = call.on(container).ifname(IFNAME).config(json!({"prevResult": prev}));
        prev = call.add().ok_result();
        last = Some(call);
    }
    (last.expect("a plugin"), prev)
}

fn log() -> PathBuf {
    Lab::plugin_dir().join(".trace")
}

/// strace of the plugin alone: its delegate is a subject of its own. The reference has threads, which strace knows
/// as children.
fn strace(expression: &str) -> Vec<String> {
    let log = log().display().to_string();
    let mut argv = vec!["strace", "-q", "-s", "8", "-o", &log, "-e", expression];
    argv.extend(under_test().reference.then_some("-f"));
    argv.iter().map(ToString::to_string).collect()
}

/// Stands where a delegate or a tool is looked for, and has it hit in the verb that is asked for: not in a roll-back by another.
fn hook(real: &Path, options: &[&str]) -> String {
    let mut argv = strace("\"$SWEEP\"");
    argv.extend(options.iter().map(ToString::to_string));
    let (strace, real) = (argv.join(" "), real.display());
    format!("[ \"$CNI_COMMAND\" != \"$SWEEP_VERB\" ] || exec {strace} {real} \"$@\"\nexec {real} \"$@\"")
}
