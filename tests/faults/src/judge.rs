//! Whether a plugin kept its promise after a fault or a kill.

use super::case::Case;
use super::harm::Harm;
use super::scene::Scene;
use lab::{Call, Outcome, under_test};

/// What came of one case.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The run succeeded in spite of the fault.
    pub succeeded: bool,
    /// What is wrong right after the run: nothing of it may be for a fault, all for a kill.
    pub at_once: Option<String>,
    /// What is wrong after DEL (or GC, where that was tried).
    pub after_remedy: Option<String>,
    /// The container is not as before, and need not be: GC cannot restore an interface, for it knows no namespace.
    pub worn: bool,
}

impl Verdict {
    /// What an operator would complain about.
    pub fn fault(&self) -> Option<&str> {
        self.at_once.as_deref().or(self.after_remedy.as_deref())
    }
}

/// What cleans up after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    Del,
    Gc,
}

/// A verb with a fault: it succeeds and is right, or fails with one error object and leaves nothing. None: not reached.
pub fn fault(scene: &Scene, verb: &str, case: &Case) -> Option<Verdict> {
    let prev = scene.prepare(verb);
    let attached = if verb == "CHECK" { scene.changes() } else { String::new() };
    let Some(run) = scene.hit(verb, prev.as_ref(), case) else {
        scene.del().ok();
        return None;
    };
    let at_once = objection(scene, verb, &run, &attached);
    let after_remedy = match (verb, run.succeeded()) {
        // It has been the remedy itself.
        ("GC", true) => None,
        ("GC", false) => remedy(scene, Remedy::Gc, true),
        _ => remedy(scene, Remedy::Del, false),
    };
    Some(Verdict { succeeded: run.succeeded(), at_once, after_remedy, worn: verb == "GC" && scene.is_worn() })
}

/// What is wrong with what a verb answered, and with what it left. `attached` is what CHECK may not change.
fn objection(scene: &Scene, verb: &str, run: &Outcome, attached: &str) -> Option<String> {
    let succeeded = run.succeeded();
    let at_once = match verb {
        _ if !succeeded && run.judged().is_err() => Some(format!("no proper error: {run:?}")),
        "ADD" if succeeded => scene.check_objects(&run.ok_result()),
        // A failed removal has the right to leave what it could not remove.
        "DEL" | "GC" if !succeeded => None,
        "GC" => left(&scene.changes_of_the_host()),
        "CHECK" => (scene.changes() != attached).then(|| "CHECK changed the state".to_owned()),
        _ => left(&scene.changes()),
    };
    at_once.map(|what| if succeeded { what } else { format!("{what}{}", run.stdout) })
}

/// A verb on a machine that something is wrong with: as for a fault, and what was wrong is told.
pub fn harmed(scene: &Scene, verb: &str, harm: &Harm) -> Verdict {
    let prev = scene.prepare(verb);
    let attached = if verb == "CHECK" { scene.changes() } else { String::new() };
    let call = (harm.vary)(scene.call(verb, prev.as_ref()));
    let lift = (harm.inflict)();
    let run = call.run(verb);
    let touched = lift();
    let (succeeded, begun) = (run.succeeded(), run.succeeded() || begins(&call, &run));
    let hidden = harm.hides && ["DEL", "GC"].contains(&verb);
    let objection = || match begun {
        false => (verb == "ADD").then(|| left(&scene.changes())).flatten(),
        true if succeeded && hidden => None,
        true => objection(scene, verb, &run, &attached),
    };
    let at_once = touched.or_else(objection).or_else(|| complaint(verb, &run, harm).filter(|_| begun));
    let after_remedy = match (verb, succeeded) {
        ("GC", true) if !hidden => None,
        ("GC", _) => remedy(scene, Remedy::Gc, true),
        ("ADD", false) => remedy(scene, Remedy::Del, false).or_else(|| attaches_again(scene)),
        _ => remedy(scene, Remedy::Del, false),
    };
    Verdict { succeeded, at_once, after_remedy, worn: verb == "GC" && scene.is_worn() }
}

/// Whether a process that said nothing came as far as to the plugin's own code: VERSION does nothing else.
fn begins(call: &Call, run: &Outcome) -> bool {
    !run.stdout.is_empty() || call.run("VERSION").succeeded()
}

/// What is missing in an answer.
fn complaint(verb: &str, run: &Outcome, harm: &Harm) -> Option<String> {
    if run.succeeded() || under_test().reference {
        return None;
    }
    if harm.spares.contains(&verb) {
        return Some(format!("it need not have failed: {}", run.stdout));
    }
    let culprit = harm.culprit.as_ref()?;
    (!run.stdout.contains(culprit)).then(|| format!("no word of {culprit}: {}", run.stdout))
}

/// A verb that is killed: what is left is whole, the remedy removes it, and an ADD finds nothing in its way.
pub fn kill(scene: &Scene, verb: &str, case: &Case, with: Remedy) -> Option<Verdict> {
    let prev = scene.prepare(verb);
    let Some(_) = scene.hit(verb, prev.as_ref(), case) else {
        scene.del().ok();
        return None;
    };
    // Whatever came of it: who is outside does not know.
    scene.is_called();
    let torn = scene.torn_leases();
    let at_once = (!torn.is_empty()).then(|| format!("torn: {torn:?}"));
    let of_gc = verb == "GC" || with == Remedy::Gc;
    let cleaned = remedy(scene, with, of_gc);
    let worn = of_gc && scene.is_worn();
    let after_remedy = cleaned.or_else(|| if worn { None } else { attaches_again(scene) });
    Some(Verdict { succeeded: false, at_once, after_remedy, worn })
}

/// Cleans up, and looks whether it did: `of_gc` means that the container is gone, and with it what is in its namespace.
fn remedy(scene: &Scene, with: Remedy, of_gc: bool) -> Option<String> {
    let run = if with == Remedy::Gc { scene.gc() } else { scene.del() };
    if !run.succeeded() || !run.stdout.trim().is_empty() {
        return Some(format!("{} failed: {}", run.what, run.stdout));
    }
    left(&if of_gc { scene.changes_of_the_host() } else { scene.changes() })
}

fn attaches_again(scene: &Scene) -> Option<String> {
    let run = scene.add();
    if !run.succeeded() {
        return Some(format!("the next ADD failed: {}", run.stdout));
    }
    if let Some(objection) = scene.check_objects(&run.ok_result()) {
        return Some(format!("after the next ADD, {objection}"));
    }
    let del = scene.del();
    (!del.succeeded()).then(|| format!("the DEL of the next ADD failed: {}", del.stdout))
}

fn left(changes: &str) -> Option<String> {
    (!changes.is_empty()).then(|| format!("left:\n{changes}"))
}
