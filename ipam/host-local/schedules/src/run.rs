//! One run of several processes under one schedule.

use std::fmt;

use crate::schedule::{Schedule, Turn};
use crate::step::Step;
use crate::traced::{At, Traced};

/// A step, or a kill before a step.
#[derive(Clone, Debug)]
pub struct Taken {
    pub process: usize,
    pub step: Step,
    pub killed: bool,
    /// The other processes that could continue.
    pub others: Vec<usize>,
    /// Those of them whose next step would fail to take a lock. They run before the holder only if the schedule says
    /// so.
    pub in_vain: Vec<usize>,
    /// The running process could continue, so selecting another one is a preemption.
    pub went_on: bool,
}

/// The record of a run.
#[derive(Debug)]
pub struct Run {
    pub steps: Vec<Taken>,
    /// Exit code and stdout of each process. None: it was killed.
    pub endings: Vec<Option<(i32, String)>>,
    /// The reboot or the power loss that ended the run.
    pub ended_by: Option<Turn>,
    /// Why the run did not end, or did not follow its schedule.
    pub fault: Option<String>,
}

impl Run {
    /// Runs the processes, one step at a time, until all have exited.
    pub fn of(mut processes: Vec<Traced>, schedule: &Schedule) -> Self {
        let (mut steps, mut fault, mut running, mut ended_by) = (Vec::new(), None, None, None);
        loop {
            let ready: Vec<usize> = (0..processes.len()).filter(|&n| is_ready(&processes[n])).collect();
            let (in_vain, eager): (Vec<usize>, Vec<usize>) =
                ready.iter().partition(|&&n| tries_in_vain(&processes[n]));
            let went_on = running.is_some_and(|running| eager.contains(&running));
            let first = eager.first().or(in_vain.first()).copied();
            let Some(usual) = running.filter(|_| went_on).or(first) else { break };
            let (process, killed) = match schedule.turn(steps.len()) {
                Some(Turn::To(other)) => (other, false),
                Some(Turn::Kill) => (usual, true),
                Some(end @ (Turn::Reboot | Turn::PowerLoss)) => {
                    ended_by = Some(end);
                    processes.iter_mut().for_each(Traced::kill);
                    break;
                }
                None => (usual, false),
            };
            let Some(At::Step(step)) = ready.contains(&process).then(|| processes[process].at().clone())
            else {
                fault = Some(format!("process {process} cannot take step {}", steps.len()));
                break;
            };
            let others = ready.into_iter().filter(|&n| n != usual).collect();
            steps.push(Taken { process, step, killed, others, in_vain, went_on });
            if killed {
                processes[process].kill()
            } else {
                processes[process].step()
            }
            running = Some(process);
        }
        if fault.is_none() && processes.iter().any(|process| matches!(process.at(), At::Step(_))) {
            fault = Some("all wait for each other".to_owned());
        }
        let endings = processes.iter_mut().map(ending).collect();
        Self { steps, endings, ended_by, fault }
    }

    /// The first and the last step of a process.
    pub fn span(&self, process: usize) -> Option<(usize, usize)> {
        let mut own = (0..self.steps.len()).filter(|&at| self.steps[at].process == process);
        let first = own.next()?;
        Some((first, own.next_back().unwrap_or(first)))
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Taken { process, step, killed, .. }) in self.steps.iter().enumerate() {
            let end = if *killed { "  KILLED" } else { "" };
            writeln!(f, "{at:4}  {}{process} {step}{end}", "    ".repeat(*process))?;
        }
        for (process, ending) in self.endings.iter().enumerate() {
            writeln!(f, "{process} ended: {ending:?}")?;
        }
        Ok(())
    }
}

fn is_ready(process: &Traced) -> bool {
    matches!(process.at(), At::Step(step) if !step.waits())
}

fn tries_in_vain(process: &Traced) -> bool {
    matches!(process.at(), At::Step(step) if step.tries_in_vain())
}

fn ending(process: &mut Traced) -> Option<(i32, String)> {
    match *process.at() {
        At::Exited(code) => Some((code, process.output())),
        At::Step(_) | At::Killed => None,
    }
}
