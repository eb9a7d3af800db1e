//! Verifies the state after a fault or a kill.

use lab::{Call, Outcome, under_test};
use serde_json::Value;

use crate::case::Case;
use crate::compound::Pair;
use crate::env_fault::EnvFault;
use crate::fixture::{Fixture, without_sections};
use crate::usual::warns;

/// The text in the error of an ADD whose rollback failed.
pub const ROLLBACK_FAILED: &str = "the rollback failed too";
/// How plugins report it, and cnitool, which lists the failures.
const REPORTED: [&str; 2] = [ROLLBACK_FAILED, "roll back: "];

/// The result of one case.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Whether the run succeeded in spite of the fault.
    pub succeeded: bool,
    /// The finding right after the run. After a fault, nothing may be left. After a kill, everything may.
    pub after_run: Option<String>,
    /// The finding after DEL (or GC).
    pub after_cleanup: Option<String>,
    /// The container differs from before, which is allowed: GC cannot restore an interface, because it does not know
    /// the namespace.
    pub dirty: bool,
}

impl Verdict {
    /// The finding, if any.
    pub fn fault(&self) -> Option<&str> {
        self.after_run.as_deref().or(self.after_cleanup.as_deref())
    }
}

/// The command that cleans up after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    Del,
    Gc,
}

impl Cleanup {
    /// The cleanup by a command.
    pub(crate) fn by(command: &str) -> Option<Self> {
        match command {
            "DEL" => Some(Self::Del),
            "GC" => Some(Self::Gc),
            _ => None,
        }
    }
}

/// Runs a command with a fault. It must succeed, or fail with one error object and leave nothing. None: not reached.
pub fn fault(fixture: &Fixture, command: &str, case: &Case) -> Option<Verdict> {
    if command == "CHECK" {
        return check_fault(fixture, case);
    }
    let prev = fixture.prepare(command);
    let run = reached(fixture, command, prev.as_ref(), case)?;
    let after_run = judge(fixture, command, &run, None);
    let after_cleanup = match (command, run.succeeded()) {
        // GC was the cleanup already.
        ("GC", true) => None,
        ("GC", false) => cleanup(fixture, Cleanup::Gc, true),
        // ADD warns of a setting that the host refuses.
        ("ADD", true) if !warns(&run) => {
            cleanup(fixture, Cleanup::Del, false).or_else(|| fixture.incomplete_link())
        }
        _ => cleanup(fixture, Cleanup::Del, false),
    };
    Some(Verdict {
        succeeded: run.succeeded(),
        after_run,
        after_cleanup,
        dirty: command == "GC" && fixture.is_dirty(),
    })
}

/// The same for CHECK, which must not change the attachment. It is enough that the kernel's answers are the same. If
/// they are not, the case is repeated with a comparison of texts: the kernel completes an interface a moment after ADD.
fn check_fault(fixture: &Fixture, case: &Case) -> Option<Verdict> {
    let prev = fixture.prepare("CHECK");
    let attached = fixture.moment();
    let run = reached(fixture, "CHECK", prev.as_ref(), case)?;
    let verdict = |run: &Outcome, attached: Option<&str>| Verdict {
        succeeded: run.succeeded(),
        after_run: judge(fixture, "CHECK", run, attached),
        after_cleanup: cleanup(fixture, Cleanup::Del, false),
        dirty: false,
    };
    if fixture.is_as_at(&attached) {
        return Some(verdict(&run, None));
    }
    fixture.del().ok();
    let prev = fixture.prepare("CHECK");
    let attached = fixture.changes();
    let run = reached(fixture, "CHECK", prev.as_ref(), case)?;
    Some(verdict(&run, Some(&attached)))
}

/// Runs a command with a fault. None: not reached. The attachment is removed then.
fn reached(fixture: &Fixture, command: &str, prev: Option<&Value>, case: &Case) -> Option<Outcome> {
    let run = fixture.hit(command, prev, case);
    if run.is_none() {
        fixture.del().ok();
    }
    run
}

/// Runs an ADD with a fault, and another fault in the rollback. The error must report it, and the next DEL or GC must
/// remove the rest. None: not reached.
pub(crate) fn pair(fixture: &Fixture, pair: &Pair, with: Cleanup) -> Option<Verdict> {
    let Some(run) = fixture.hit_twice(pair) else {
        fixture.del().ok();
        return None;
    };
    let (succeeded, torn) = (run.succeeded(), fixture.torn_leases());
    let is_silent =
        || !fixture.changes().is_empty() && !REPORTED.iter().any(|words| run.stdout.contains(words));
    let after_run = if !torn.is_empty() {
        Some(format!("torn: {torn:?}"))
    } else if succeeded {
        fixture.check_objects(&run.ok_result())
    } else if run.judged().is_err() {
        Some(format!("no proper error: {run:?}"))
    } else if is_silent() {
        Some(format!("what is left is not reported: {}\n{}", run.stdout, fixture.changes()))
    } else {
        None
    };
    let of_gc = with == Cleanup::Gc;
    let cleaned = cleanup(fixture, with, of_gc);
    let dirty = of_gc && fixture.is_dirty();
    let after_cleanup = cleaned.or_else(|| if dirty { None } else { attaches_again(fixture) });
    let with_case = |what: String| format!("{pair}, then {with:?}: {what}");
    Some(Verdict {
        succeeded,
        after_run: after_run.map(with_case),
        after_cleanup: after_cleanup.map(with_case),
        dirty,
    })
}

/// Checks the answer and the state after a command. CHECK must not change `attached`, unless that was compared already.
fn judge(fixture: &Fixture, command: &str, run: &Outcome, attached: Option<&str>) -> Option<String> {
    let succeeded = run.succeeded();
    let after_run = match command {
        _ if !succeeded && run.judged().is_err() => Some(format!("no proper error: {run:?}")),
        "ADD" if succeeded => fixture.check_objects(&run.ok_result()).or_else(|| fixture.unusual(run)),
        // A failed removal may leave what it could not remove.
        "DEL" | "GC" if !succeeded => None,
        "GC" => left(&fixture.changes_of_the_host()),
        "CHECK" => (fixture.changes() != attached?).then(|| "CHECK changed the state".to_owned()),
        _ => left(&fixture.changes()),
    };
    after_run.map(|what| if succeeded { what } else { format!("{what}{}", run.stdout) })
}

/// Runs a command in a faulty environment. The same rules apply, and the error must name the fault.
pub fn env_fault(fixture: &Fixture, command: &str, fault: &EnvFault) -> Verdict {
    let prev = fixture.prepare(command);
    let attached = if command == "CHECK" { fixture.changes() } else { String::new() };
    let call = (fault.vary)(fixture.call(command, prev.as_ref()));
    let lift = (fault.inflict)(fixture.lab());
    let run = call.run(command);
    let touched = lift();
    let (succeeded, begun) = (run.succeeded(), run.succeeded() || begins(&call, &run));
    let hidden = fault.hides && ["DEL", "GC"].contains(&command);
    let keeps_files = fault.keeps_files && !succeeded;
    let judge = || match begun {
        true if keeps_files && command == "DEL" => left(&without_files(&fixture.changes())),
        true if keeps_files && command == "GC" => left(&without_files(&fixture.changes_of_the_host())),
        false => (command == "ADD").then(|| left(&fixture.changes())).flatten(),
        true if succeeded && hidden => None,
        // flannel's rollback is another plugin's DEL, which needs descriptors too. Its error reports what it left, and
        // the cleanup removes it.
        true if command == "ADD" && call.plugin() == "flannel" && run.stdout.contains(ROLLBACK_FAILED) => {
            None
        }
        true => judge(fixture, command, &run, Some(&attached)),
    };
    let after_run = touched.or_else(judge).or_else(|| complaint(command, &run, fault, begun));
    let after_cleanup = match (command, succeeded) {
        ("GC", true) if !hidden => None,
        ("GC", _) => cleanup(fixture, Cleanup::Gc, true),
        ("ADD", false) => cleanup(fixture, Cleanup::Del, false).or_else(|| attaches_again(fixture)),
        _ => cleanup(fixture, Cleanup::Del, false),
    };
    Verdict { succeeded, after_run, after_cleanup, dirty: command == "GC" && fixture.is_dirty() }
}

/// Whether a process without output reached the plugin's own code: VERSION does nothing else.
fn begins(call: &Call, run: &Outcome) -> bool {
    !run.stdout.is_empty() || call.run("VERSION").succeeded()
}

/// What an answer lacks. If the process did not reach the plugin's own code, only that it should have.
fn complaint(command: &str, run: &Outcome, fault: &EnvFault, begun: bool) -> Option<String> {
    if run.succeeded() || under_test().reference {
        return None;
    }
    if fault.spares.contains(&command) {
        return Some(format!("it need not have failed: {}", run.stdout));
    }
    let culprit = fault.culprit.as_ref().filter(|_| begun)?;
    (!run.stdout.contains(culprit)).then(|| format!("no word of {culprit}: {}", run.stdout))
}

/// Kills a command. Its files must be complete, the cleanup must remove them, and the next ADD must succeed.
pub fn kill(fixture: &Fixture, command: &str, case: &Case, with: Cleanup) -> Option<Verdict> {
    let prev = fixture.prepare(command);
    reached(fixture, command, prev.as_ref(), case)?;
    // A client cannot know about the kill.
    fixture.is_called();
    let torn = fixture.torn_leases();
    let after_run = (!torn.is_empty()).then(|| format!("torn: {torn:?}"));
    let of_gc = command == "GC" || with == Cleanup::Gc;
    let cleaned = cleanup(fixture, with, of_gc);
    let dirty = of_gc && fixture.is_dirty();
    let after_cleanup = cleaned.or_else(|| if dirty { None } else { attaches_again(fixture) });
    Some(Verdict { succeeded: false, after_run, after_cleanup, dirty })
}

/// Cleans up, and checks the result. `of_gc` means that the container's namespace no longer exists.
fn cleanup(fixture: &Fixture, with: Cleanup, of_gc: bool) -> Option<String> {
    let run = if with == Cleanup::Gc { fixture.gc() } else { fixture.del() };
    if !run.succeeded() || !run.stdout.trim().is_empty() {
        return Some(format!("{} failed: {}", run.what, run.stdout));
    }
    left(&if of_gc { fixture.changes_of_the_host() } else { fixture.changes() })
}

fn attaches_again(fixture: &Fixture) -> Option<String> {
    let run = fixture.add();
    if !run.succeeded() {
        return Some(format!("the next ADD failed: {}", run.stdout));
    }
    if let Some(finding) = fixture.check_objects(&run.ok_result()) {
        return Some(format!("after the next ADD, {finding}"));
    }
    let del = fixture.del();
    if !del.succeeded() {
        return Some(format!("the DEL of the next ADD failed: {}", del.stdout));
    }
    fixture.incomplete_link()
}

/// The changes without those of files.
fn without_files(changes: &str) -> String {
    without_sections(changes, |title| title == "disk")
}

fn left(changes: &str) -> Option<String> {
    (!changes.is_empty()).then(|| format!("left:\n{changes}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_changes_of_files_are_left_out() {
        let changes = "disk\n  + /var/lib/cni/a\nhost: links\n  + veth0\n";
        assert_eq!(without_files(changes), "host: links\n  + veth0\n");
    }

    #[test]
    fn a_plugin_that_does_not_start_is_a_finding_only_if_it_must_succeed() {
        let text = String::new;
        let killed = Outcome { what: text(), exit: None, stdout: text(), stderr: text() };
        let fault = EnvFault { culprit: Some("disk".to_owned()), ..EnvFault::new("memory", text()) };
        assert_eq!(complaint("ADD", &killed, &fault, false), None);
        assert!(complaint("ADD", &killed, &fault, true).is_some());
        let spared = EnvFault { spares: &["ADD"], ..fault };
        assert!(complaint("ADD", &killed, &spared, false).is_some());
    }
}
