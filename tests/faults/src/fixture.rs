//! A lab in which a plugin can be run with faults repeatedly.

use std::fs;
use std::path::{Path, PathBuf};

use lab::{Baseline, Call, Container, Lab, Moment, Outcome, PATH, quoted, under_test};
use serde_json::{Value, json};

use crate::case::{Case, Syscall, own_calls};
use crate::compound::Pair;
use crate::recreated;
use crate::services::Services;
use crate::target::{Hit, IFNAME, StayingPorts, Target};
use crate::targets::HOST_PORT;
use crate::traffic::Traffic;
use crate::usual::{self, Usual};

/// A machine on which all shared objects exist: one attachment stays all the time, and another one was attached and
/// detached. All changes therefore belong to the attachment under test. If the target is alone, no attachment stays.
#[derive(Debug)]
pub struct Fixture {
    /// They take seconds to start, so all cases share them.
    services: Services,
    lab: Lab,
    stays: Container,
    victim: Container,
    call: Call,
    hit: Hit,
    /// A link that each hit ADD creates.
    creates: Option<&'static str>,
    /// The ADD of the attachment that stays, if it claims the victim's ports again.
    claims_again: Option<Call>,
    /// None: no connection passes the rules of the plugin.
    traffic: Option<Traffic>,
    /// Whether packets of each family are masqueraded after an ADD that nothing happened to. None: not known yet.
    masqueraded: Option<Vec<bool>>,
    /// What an ADD changes that nothing happens to. None: successful ADDs are not compared.
    usual: Option<Usual>,
    /// Whether CHECK is meaningful. The reference's CHECK refuses some of its own results.
    check_tells: bool,
    before: Baseline,
}

impl Fixture {
    pub fn new(target: &Target) -> Self {
        Self::on(target, |_| {})
    }

    /// Like [`Fixture::new`], on a machine that `prepare` changes first.
    pub fn on(target: &Target, prepare: impl FnOnce(&Lab)) -> Self {
        let lab = Lab::new();
        prepare(&lab);
        let services = target.prepare(&lab);
        let [stays, victim] = ["stays", "victim"].map(|id| lab.container(id));
        [&stays, &victim].into_iter().for_each(|pod| services.plug(pod));
        // The reference always leaves connections, which would hide other findings.
        let traffic = (target.translates && !under_test().reference).then(|| Traffic::new(&lab));
        let staying = target.of_the_staying_attachment().call(&stays);
        let result = (!target.alone).then(|| staying.add().ok_result());
        if traffic.is_some() {
            // Connections stay longer than any sweep.
            lab.host().sh("sysctl -qw net.netfilter.nf_conntrack_udp_timeout=86400");
        }
        if let (Some(traffic), Some(result)) = (&traffic, &result) {
            traffic.from(&stays, result).expect("a container that nothing happened to");
            traffic.to_host_port(HOST_PORT + 1);
        }
        let call = target.call(&victim);
        let check_tells = come_and_go(&call);
        services.restore();
        install_hooks(&lab, target.hit);
        let before = lab.baseline();
        let claims_again = (target.staying_ports == StayingPorts::Newer).then_some(staying);
        let mut fixture = Self {
            services,
            lab,
            stays,
            victim,
            call,
            hit: target.hit,
            creates: target.creates,
            claims_again,
            traffic,
            masqueraded: None,
            usual: None,
            check_tells,
            before,
        };
        fixture.masqueraded = fixture.traffic.is_some().then(|| fixture.usual_masquerade());
        fixture.assert_that_state_includes_connections();
        fixture.assert_that_state_includes_zones();
        fixture
    }

    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The plugin's own calls in a run without a fault.
    pub fn calls_of(&self, command: &str) -> Vec<Syscall> {
        let prev = self.prepare(command);
        self.run(command, prev.as_ref(), Some("trace=all"));
        let calls = own_calls(&self.trace(), matches!(self.hit, Hit::Tools(_)));
        self.del().ok();
        calls
    }

    /// Prepares what a command needs: an attachment, for all commands except ADD and STATUS.
    pub fn prepare(&self, command: &str) -> Option<Value> {
        if ["ADD", "STATUS"].contains(&command) {
            self.services.restore();
            return None;
        }
        let result = self.attach();
        if let Some(staying) = &self.claims_again {
            staying.add().ok_result();
        }
        self.reaches_others(&result).expect("a container that nothing happened to");
        Some(result)
    }

    /// An ADD that nothing happens to.
    fn attach(&self) -> Value {
        self.services.restore();
        self.call.add().ok_result()
    }

    /// The container sends packets to others, and a client to its host port. Returns the reason if they do not arrive, or
    /// with another source than after an ADD without a fault.
    fn reaches_others(&self, result: &Value) -> Result<(), String> {
        let masqueraded = self.sends(result)?;
        let is_same = self.masqueraded.as_ref().is_none_or(|usual| *usual == masqueraded);
        is_same.then_some(()).ok_or_else(|| format!("packets are masqueraded: {masqueraded:?}"))
    }

    /// Attaches and detaches the container, to see whether its packets are masqueraded.
    fn usual_masquerade(&self) -> Vec<bool> {
        let result = self.attach();
        let masqueraded = self.sends(&result).expect("a container that nothing happened to");
        self.del().ok();
        masqueraded
    }

    /// Compares successful ADDs from now on. Attaches and detaches the container some times, to see what that changes.
    pub fn compare_adds(&mut self) {
        let adds = [(); 3].map(|()| {
            let result = self.attach();
            let lines = usual::lines(&self.changes_by_add(), &result);
            self.del().ok();
            lines
        });
        self.usual = Some(Usual::of(&adds));
    }

    /// How the changes of a successful ADD differ from those of other ADDs.
    pub fn unusual(&self, add: &Outcome) -> Option<String> {
        self.usual.as_ref()?.finding(add, || self.changes_by_add())
    }

    /// The changes without those of a link that ADD has created again. It is missing only before an ADD with a fault.
    fn changes_by_add(&self) -> String {
        let changes = self.changes_of_all();
        if self.creates.is_some() { recreated::renamed(&changes) } else { changes }
    }

    /// Whether packets of each family are masqueraded.
    fn sends(&self, result: &Value) -> Result<Vec<bool>, String> {
        self.is_called();
        self.traffic.as_ref().map_or(Ok(Vec::new()), |traffic| traffic.from(&self.victim, result))
    }

    /// A client sends to the host port.
    pub fn is_called(&self) {
        if let Some(traffic) = &self.traffic {
            traffic.to_host_port(HOST_PORT);
        }
    }

    /// Checks that the compared state includes connections through a host port.
    fn assert_that_state_includes_connections(&self) {
        if self.traffic.is_some() && self.call.plugin() == "portmap" {
            self.prepare("DEL");
            assert!(self.changes().contains("host: connections\n  + udp from"), "{}", self.changes());
            self.del().ok();
        }
    }

    /// Checks that the compared state includes the sources of firewalld's zones.
    fn assert_that_state_includes_zones(&self) {
        if self.services.has_firewalld() {
            self.prepare("DEL");
            assert!(self.changes().contains("goto filter_FWD_trusted"), "{}", self.changes());
            self.del().ok();
        }
    }

    /// Runs a command with a fault. None: the call was not reached.
    pub fn hit(&self, command: &str, prev: Option<&Value>, case: &Case) -> Option<Outcome> {
        let traced = match self.hit {
            // Otherwise strace would print every call, which takes an eighth of a sweep's time.
            Hit::Plugin | Hit::Runtime => format!("trace={} -e {}", case.at.name, case.injection()),
            // The hook passes one argument.
            Hit::Delegate(_) | Hit::Tools(_) => case.injection(),
        };
        let run = self.run(command, prev, Some(&traced));
        case.happened_in(&self.trace()).then_some(run)
    }

    /// Runs an ADD with a fault. [`Fixture::trace`] has all of its calls then.
    pub(crate) fn trace_all(&self, case: &Case) -> Outcome {
        self.run("ADD", None, Some(&format!("trace=all -e {}", case.injection())))
    }

    /// Runs an ADD with two faults. None: one of the calls was not reached.
    pub(crate) fn hit_twice(&self, pair: &Pair) -> Option<Outcome> {
        let run = self.run("ADD", None, Some(&pair.injection()));
        (self.trace().matches("(INJECTED)").count() > 1).then_some(run)
    }

    pub fn add(&self) -> Outcome {
        self.call.add()
    }

    pub fn del(&self) -> Outcome {
        self.call.del()
    }

    /// Why CHECK fails after an ADD, or what the container cannot reach, if anything.
    pub fn check_objects(&self, result: &Value) -> Option<String> {
        let check = self.run("CHECK", Some(result), None);
        if self.check_tells && !check.succeeded() {
            return Some(format!("CHECK disagrees: {}", check.stdout));
        }
        self.reaches_others(result).err()
    }

    /// A GC without the victim in its list.
    pub fn gc(&self) -> Outcome {
        self.run("GC", None, None)
    }

    /// The changes since before the attachment. A link that ADD creates may be missing or incomplete: the next ADD
    /// completes it.
    pub fn changes(&self) -> String {
        let changes = self.changes_of_all();
        self.creates.map_or(changes.clone(), |link| recreated::left_out(&changes, link))
    }

    /// Why the link that ADD creates is not complete. For a state after a successful ADD and its DEL.
    pub fn incomplete_link(&self) -> Option<String> {
        self.creates?;
        let changes = recreated::renamed(&self.changes_of_all());
        (!changes.is_empty()).then(|| format!("after an ADD and its DEL, the host differs:\n{changes}"))
    }

    fn changes_of_all(&self) -> String {
        // This waits for the daemon and the server, so it comes first.
        let leases = self.services.changes();
        let changes = self.lab.changes_since(&self.before);
        // The daemon of dhcp notes at some time that it has seen the address on the link.
        changes.replace(r#"\"seen\":false"#, r#"\"seen\":true"#) + &leases
    }

    /// Compares with the present state from now on.
    pub fn rebase(&mut self) {
        self.before = self.lab.baseline();
    }

    /// The present state, to compare it soon.
    pub(crate) fn moment(&self) -> (Moment, String) {
        (self.lab.moment(), self.services.changes())
    }

    /// Whether nothing has changed since then.
    pub(crate) fn is_as_at(&self, (moment, leases): &(Moment, String)) -> bool {
        self.services.changes() == *leases && self.lab.is_as_at(moment)
    }

    /// The changes outside of the container's namespace, which no longer exists when GC runs.
    pub fn changes_of_the_host(&self) -> String {
        let victim = format!("{}:", self.victim.id);
        without_sections(&self.changes(), |title| title.starts_with(&victim))
    }

    /// Whether the container differs from before.
    pub fn is_dirty(&self) -> bool {
        !self.changes().is_empty()
    }

    /// Lease files without an owner.
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

    /// The call of a command, to change and to run.
    pub fn call(&self, command: &str, prev: Option<&Value>) -> Call {
        let call = self.call.clone();
        match command {
            "CHECK" => call.config(json!({"prevResult": prev})),
            "GC" => {
                let valid = json!([{"containerID": self.stays.id, "ifname": IFNAME}]);
                call.config(json!({"cni.dev/valid-attachments": valid}))
            }
            _ => call,
        }
    }

    fn run(&self, command: &str, prev: Option<&Value>, trace: Option<&str>) -> Outcome {
        let mut call = self.call(command, prev);
        let Some(trace) = trace else { return call.run(command) };
        if let Some(link) = self.creates.filter(|_| command == "ADD") {
            self.lab
                .host()
                .sh(&format!("! ip link show dev {link} >/dev/null 2>&1 || ip link delete {link}"));
        }
        fs::write(log(), "").expect("empty the trace");
        call = match self.hit {
            Hit::Plugin => call.under(&strace(trace)),
            Hit::Runtime => call.env("UNDER", &strace(trace).join(" ")),
            Hit::Delegate(_) | Hit::Tools(_) => {
                let path = format!("{}:{PATH}", Lab::plugin_dir().display());
                call.env("SWEEP", trace).env("SWEEP_COMMAND", command).env("PATH", &path)
            }
        };
        call.run(command)
    }

    pub(crate) fn trace(&self) -> String {
        String::from_utf8_lossy(&fs::read(log()).expect("read the trace")).into_owned()
    }
}

/// The changes without the sections with these titles.
pub(crate) fn without_sections(changes: &str, is_left_out: impl Fn(&str) -> bool) -> String {
    let mut left_out = false;
    let lines = changes.split_inclusive('\n').filter(|line| {
        if !line.starts_with(' ') {
            left_out = is_left_out(line.trim_end());
        }
        !left_out
    });
    lines.collect()
}

/// ADD and DEL. Returns whether CHECK passes in between.
fn come_and_go(call: &Call) -> bool {
    let result = call.add().ok_result();
    let agrees = call.check(&result).succeeded();
    assert!(agrees || under_test().reference, "CHECK disagrees with an ADD that nothing happened to");
    call.clone().config(json!({"prevResult": result})).del().ok();
    agrees
}

/// Installs scripts in place of the executables to hit.
fn install_hooks(lab: &Lab, hit: Hit) {
    match hit {
        Hit::Plugin | Hit::Runtime => {}
        Hit::Delegate(name) => lab.fake_plugin(name, &hook(&under_test().dir.join(name), &[])),
        Hit::Tools(names) => {
            for name in names {
                // Any of them, as often as it is started.
                lab.fake_plugin(name, &hook(&Path::new("/usr/sbin").join(name), &["-f", "-A"]));
            }
        }
    }
}

fn log() -> PathBuf {
    Lab::plugin_dir().join(".trace")
}

/// Runs strace only on the plugin, because its delegate is a separate target. For strace, the reference's threads are
/// children.
fn strace(expression: &str) -> Vec<String> {
    let log = log().display().to_string();
    let mut argv = vec!["strace", "-q", "-s", "8", "-o", &log, "-e"];
    argv.extend(expression.split(' '));
    argv.extend(under_test().reference.then_some("-f"));
    argv.iter().map(ToString::to_string).collect()
}

/// A script in place of a delegate or a tool. It hits the process in one command, and not in a rollback by another.
fn hook(real: &Path, options: &[&str]) -> String {
    let mut argv = strace("\"$SWEEP\"");
    argv.extend(options.iter().map(ToString::to_string));
    let (strace, real) = (argv.join(" "), quoted(real));
    format!("[ \"$CNI_COMMAND\" != \"$SWEEP_COMMAND\" ] || exec {strace} {real} \"$@\"\nexec {real} \"$@\"")
}
