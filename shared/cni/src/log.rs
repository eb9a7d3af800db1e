//! Warnings on stderr, with the name of the plugin that this process serves.

use std::io::{Write, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The plugins whose calls this process serves. The first plugin has called the second one, and so on. Lines of the log begin with the name
/// of the last one.
static SERVED: Mutex<Vec<&str>> = Mutex::new(Vec::new());

fn served() -> MutexGuard<'static, Vec<&'static str>> {
    SERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a plugin to [`SERVED`] until the returned value is dropped.
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

/// Whether this process already serves a call of the plugin. Another call would be a recursion.
pub(crate) fn is_served(plugin: &str) -> bool {
    served().contains(&plugin)
}

/// Logs a warning on stderr. If that fails, for example because the log's disk is full, the warning is lost, and the plugin continues.
pub fn warn(text: &str) {
    let plugin = served().last().copied().unwrap_or("cni");
    stderr().write_all(format!("{plugin}: warning: {text}\n").as_bytes()).ok();
}
