//! Plugins in faulty environments.

use lab::{Feature, Lab, Sample, skip, under_test};

use crate::disk::{self, Disk};
use crate::env_fault::EnvFault;
use crate::fixture::Fixture;
use crate::limit;
use crate::plugin_file::hostile;
use crate::pool::{self, Job, Outcomes};
use crate::target::{StateFiles, Target};
use crate::targets::with_legacy_tools;
use crate::verify::{self, Verdict};

/// A target, and the faults of its environment.
#[derive(Debug)]
pub struct Trial {
    pub target: Target,
    pub disk: Disk,
    pub faults: Vec<EnvFault>,
}

/// Targets with files on disk.
fn with_state() -> impl Iterator<Item = (Target, StateFiles)> {
    let all = Target::of(|target| target.state.is_some()).into_iter();
    all.filter_map(|target| target.state.map(|state| (target, state)))
}

/// Full and read-only disks.
pub fn disks() -> Vec<Trial> {
    let ext4 = Feature::Ext4.is_there().then_some(Disk::Ext4);
    if ext4.is_none() {
        skip(&format!(
            "not tried: full and read-only disks with ext4 (there is no mkfs.ext4, or this kernel has no {})",
            Feature::Ext4
        ));
    }
    let on = |disk: Disk| {
        with_state().map(move |(target, StateFiles { directory, .. })| {
            let mut faults = disk::full(disk, directory);
            faults.push(disk::read_only(directory));
            Trial { target, disk, faults }
        })
    };
    [Some(Disk::Memory), ext4].into_iter().flatten().flat_map(on).collect()
}

/// Unusual files.
pub fn hostile_files() -> Vec<Trial> {
    let legacy = with_legacy_tools();
    let legacy = legacy.state.map(|state| (legacy, state));
    let trial = |(target, state): (Target, StateFiles)| Trial {
        target,
        disk: Disk::Memory,
        faults: hostile(state.files),
    };
    with_state().chain(legacy).map(trial).collect()
}

/// Process limits, and a read-only /proc or /sys.
pub fn limits() -> Vec<Trial> {
    let all = Target::of(|target| !target.is_started_by_a_plugin() && !target.alone);
    let trial = |target: Target| {
        let kernel = ["/proc", "/sys"].map(disk::read_only_kernel).into();
        let memory = limit::memory(!target.is_runtime());
        let faults = [memory, limit::descriptors(), limit::file_size(), kernel].into_iter().flatten();
        Trial { faults: faults.collect(), target, disk: Disk::Memory }
    };
    all.into_iter().map(trial).collect()
}

/// All faults with all commands.
#[derive(Debug)]
pub struct EnvSweep {
    pub trials: Vec<Trial>,
    pub sample: Sample,
    pub workers: usize,
}

/// A trial, by its index, and the label of the fault.
pub type EnvRow = (usize, String);

struct Case<'a> {
    index: usize,
    trial: &'a Trial,
    command: &'static str,
    fault: &'a EnvFault,
}

impl EnvSweep {
    /// Runs all cases. Calls `report` with each finding.
    pub fn run(&self, report: impl Fn(&str) + Sync) -> Outcomes<EnvRow> {
        let trials = self.trials.iter().enumerate();
        let all = trials.flat_map(|(index, trial)| {
            trial.target.commands().flat_map(move |command| {
                trial.faults.iter().map(move |fault| Case { index, trial, command, fault })
            })
        });
        let jobs: Vec<_> = self.sample.of(all.collect()).collect();
        pool::run(self.workers, &jobs, report)
    }
}

impl Job for Case<'_> {
    type Row = EnvRow;

    fn row(&self) -> EnvRow {
        (self.index, self.fault.label.clone())
    }

    fn fixture_index(&self) -> usize {
        self.index
    }

    fn fixture(&self) -> Fixture {
        let Trial { target, disk, .. } = self.trial;
        Fixture::on(target, |lab: &Lab| {
            disk.mount(lab, target.state.map_or(disk::DISK, |state| state.directory));
            limit::prepare(lab);
        })
    }

    fn verify(&self, fixture: &Fixture) -> Option<Verdict> {
        Some(verify::env_fault(fixture, self.command, self.fault))
    }

    fn title(&self) -> String {
        let whose = if under_test().reference { "the reference's " } else { "" };
        format!("{whose}{} {}: {:?}", self.trial.target.title(), self.command, self.fault)
    }
}
