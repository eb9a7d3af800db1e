//! Rollback of a failed ADD.

use std::fmt;

use crate::{Error, Result};

struct Step {
    undo: Box<dyn FnOnce() -> Result<()>>,
    /// Whether it is skipped if a step that was registered later could not be undone.
    is_record: bool,
}

/// Undo steps of an ADD.
///
/// Every step that creates something takes `&mut Undo`, so rollback cannot be forgotten. The dispatcher owns it. It runs the steps if the
/// plugin fails or panics, and if the result cannot be delivered, because the runtime then does not know the attachment. Objects that
/// outlive an attachment on purpose (a bridge) are not registered.
#[derive(Default)]
pub struct Undo {
    steps: Vec<Step>,
}

impl Undo {
    /// Starts without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers an undo step.
    pub fn push<E: Into<Error>>(&mut self, step: impl FnOnce() -> Result<(), E> + 'static) {
        self.steps.push(Step { undo: Box::new(|| step().map_err(Into::into)), is_record: false });
    }

    /// Registers an undo step that deletes what DEL needs to undo the steps registered from now on. It is skipped if one of them fails, so that
    /// DEL can repeat it.
    pub fn push_record<E: Into<Error>>(&mut self, step: impl FnOnce() -> Result<(), E> + 'static) {
        self.steps.push(Step { undo: Box::new(|| step().map_err(Into::into)), is_record: true });
    }

    /// Keeps a lock until everything registered from now on is undone or committed.
    pub fn hold<L: 'static>(&mut self, lock: L) {
        self.push(move || {
            drop(lock);
            Ok::<_, Error>(())
        });
    }

    /// Runs all steps after an error, and adds their failures to it.
    pub fn unwind_after(mut self, error: Error) -> Error {
        self.unwind().into_iter().fold(error, Error::and_rollback)
    }

    /// Drops all steps after success.
    pub fn commit(mut self) {
        self.steps.clear();
    }

    /// Runs all steps, the last one first, and returns their failures.
    pub fn unwind(&mut self) -> Vec<Error> {
        let mut failures = Vec::new();
        while let Some(step) = self.steps.pop() {
            if !step.is_record || failures.is_empty() {
                failures.extend((step.undo)().err());
            }
        }
        failures
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.unwind();
    }
}

impl fmt::Debug for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Undo({} steps)", self.steps.len())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    fn undo_of_three(log: &Rc<RefCell<Vec<u8>>>) -> Undo {
        let mut undo = Undo::new();
        for step in 1..=3 {
            let log = Rc::clone(log);
            undo.push(move || {
                log.borrow_mut().push(step);
                if step == 2 { Err(Error::config("step 2")) } else { Ok(()) }
            });
        }
        undo
    }

    #[test]
    fn steps_are_undone_in_reverse_even_after_one_fails() {
        let log = Rc::default();
        let failures = undo_of_three(&log).unwind();
        assert_eq!(*log.borrow(), [3, 2, 1]);
        assert_eq!(failures, [Error::config("step 2")]);
    }

    #[test]
    fn a_record_is_kept_if_a_later_step_fails() {
        for (fails, expected) in [(false, "a record, b, "), (true, "b, ")] {
            let log = Rc::new(RefCell::new(String::new()));
            let say = |text: &'static str, fails: bool| {
                let log = Rc::clone(&log);
                move || {
                    log.borrow_mut().insert_str(0, text);
                    if fails { Err(Error::config(text)) } else { Ok(()) }
                }
            };
            let mut undo = Undo::new();
            undo.push_record(say("a record, ", false));
            undo.push(say("b, ", fails));
            assert_eq!(undo.unwind().len(), usize::from(fails));
            assert_eq!(*log.borrow(), expected);
        }
    }

    #[test]
    fn a_lock_is_held_until_everything_is_undone() {
        for fails in [true, false] {
            let lock = std::sync::Arc::new(());
            let (seen, mut undo) = (std::sync::Arc::downgrade(&lock), Undo::new());
            undo.hold(lock);
            let held = seen.clone();
            undo.push(move || if held.strong_count() == 1 { Ok(()) } else { Err(Error::config("free")) });
            assert_eq!(seen.strong_count(), 1);
            if fails {
                assert_eq!(undo.unwind(), []);
            } else {
                undo.commit();
            }
            assert_eq!(seen.strong_count(), 0);
        }
    }

    #[test]
    fn a_dropped_undo_unwinds_and_a_committed_one_does_not() {
        let log = Rc::default();
        drop(undo_of_three(&log));
        assert_eq!(*log.borrow(), [3, 2, 1]);
        undo_of_three(&log).commit();
        assert_eq!(*log.borrow(), [3, 2, 1]);
    }
}
