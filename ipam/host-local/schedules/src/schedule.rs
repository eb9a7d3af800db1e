//! A schedule: which process runs when.

use std::fmt;
use std::str::FromStr;

/// A deviation at a step. By default the running process continues, and if it cannot, the first one that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This process continues.
    To(usize),
    /// The process that would have continued is killed.
    Kill,
    /// The host reboots: all processes are killed, and the boot id changes.
    Reboot,
    /// Like a reboot, and all files that were written during the run are truncated.
    PowerLoss,
}

/// The steps at which the schedule deviates from the default. As text: `0>1 17>0 23!`, with `~` for a
/// reboot and `%` for a power loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(Vec<(usize, Turn)>);

impl Schedule {
    pub fn turn(&self, at: usize) -> Option<Turn> {
        self.0.iter().find(|(step, _)| *step == at).map(|(_, turn)| *turn)
    }

    /// The step after the last deviation.
    pub fn end(&self) -> usize {
        self.0.last().map_or(0, |(step, _)| step + 1)
    }

    /// The schedule with one more deviation at the end.
    pub fn then(&self, at: usize, turn: Turn) -> Self {
        Self(self.0.iter().copied().chain([(at, turn)]).collect())
    }

    /// Whether a process is killed, also by a reboot or a power loss.
    pub fn kills(&self) -> bool {
        self.0.iter().any(|(_, turn)| !matches!(turn, Turn::To(_)))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.0.iter().map(|(step, turn)| match turn {
            Turn::To(process) => format!("{step}>{process}"),
            Turn::Kill => format!("{step}!"),
            Turn::Reboot => format!("{step}~"),
            Turn::PowerLoss => format!("{step}%"),
        });
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = |word: &str| {
            for (suffix, turn) in [('!', Turn::Kill), ('~', Turn::Reboot), ('%', Turn::PowerLoss)] {
                if let Some(step) = word.strip_suffix(suffix) {
                    return Some((step.parse().ok()?, turn));
                }
            }
            let (step, process) = word.split_once('>')?;
            Some((step.parse().ok()?, Turn::To(process.parse().ok()?)))
        };
        let words =
            text.split_whitespace().map(|word| parsed(word).ok_or_else(|| format!("no turn: {word}")));
        words.collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_reads_back() {
        let schedule = Schedule::default().then(0, Turn::To(1)).then(17, Turn::To(0)).then(23, Turn::Kill);
        assert_eq!(schedule.to_string(), "0>1 17>0 23!");
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
        for text in ["0>1 5~", "7%"] {
            assert_eq!(text.parse::<Schedule>().unwrap().to_string(), text);
        }
        assert!("5>x".parse::<Schedule>().is_err());
    }
}
