//! Warnings on stderr, with the name of the plugin that this process serves.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The plugins that this process serves, for the log. Each was delegated to by the one before it.
static SERVED: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn served() -> MutexGuard<'static, Vec<&'static str>> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks a plugin as served until the value is dropped.
pub(crate) fn serving(plugin: &'static str) -> impl Drop {
    struct Serving;
    impl Drop for Serving {
        fn drop(&mut self) {
            served().pop();
        }
    }
    served().push(plugin);
    Serving
}

/// Whether the plugin is served already: delegation would recurse.
pub(crate) fn is_served(plugin: &str) -> bool {
    served().contains(&plugin)
}

/// Logs a warning on stderr.
#[expect(clippy::print_stderr, reason = "the log of a plugin")]
pub fn warn(text: &str) {
    let plugin = served().last().copied().unwrap_or("cni");
    eprintln!("{plugin}: warning: {text}");
}
