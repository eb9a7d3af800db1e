//! Samples of the cases of a sweep.

/// One in `every` of the cases. The seed selects the first one, so that each case is in the sample of some seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub every: usize,
    pub seed: u64,
}

impl Sample {
    /// All cases.
    pub const WHOLE: Self = Self { every: 1, seed: 0 };

    /// The cases of the sample: at least one, if there are any.
    pub fn of<T>(self, cases: Vec<T>) -> impl Iterator<Item = T> {
        let firsts = u64::try_from(self.every.min(cases.len())).unwrap_or(u64::MAX);
        let first = self.seed.checked_rem(firsts).and_then(|first| usize::try_from(first).ok());
        cases.into_iter().skip(first.unwrap_or(0)).step_by(self.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(every: usize, seed: u64, count: usize) -> Vec<usize> {
        Sample { every, seed }.of((0..count).collect()).collect()
    }

    #[test]
    fn each_case_is_in_the_sample_of_one_of_successive_seeds() {
        assert_eq!(sample(3, 0, 8), [0, 3, 6]);
        assert_eq!(sample(3, 1, 8), [1, 4, 7]);
        assert_eq!(sample(3, 2, 8), [2, 5]);
        assert_eq!(sample(3, 3, 8), sample(3, 0, 8));
    }

    #[test]
    fn a_whole_sweep_does_not_depend_on_the_seed() {
        assert_eq!(sample(1, 5, 3), [0, 1, 2]);
        assert_eq!(Sample::WHOLE.of(vec!['a', 'b']).collect::<Vec<_>>(), ['a', 'b']);
    }

    #[test]
    fn of_a_few_cases_one_is_in_the_sample() {
        assert_eq!(sample(100, 7, 3), [1]);
        assert!(sample(100, 7, 0).is_empty());
    }
}
