//! A plugin that waits when it is called, until the check releases it.

use std::path::Path;

use crate::host::{Host, PLUGINS};
use crate::soon::soon;

const REACHED: &str = "/run/lab/reached";
const LET_GO: &str = "/run/lab/let-go";
/// The first call creates this directory.
const FIRST: &str = "/run/lab/first";

pub struct Gate<'a> {
    host: &'a Host,
    plugin: &'static str,
}

impl<'a> Gate<'a> {
    /// Makes `plugin` wait when it is called with `command` for the first time. Later calls do not wait: if a runtime is killed, one of
    /// its other processes may call the plugin.
    pub fn before(host: &'a Host, plugin: &'static str, command: &str) -> Self {
        // The real plugin is renamed to a name with the suffix -PLUGIN, because ferrule selects the plugin by this suffix.
        host.lab.host().sh(&format!(
            r#"mkfifo {REACHED} {LET_GO}
            ln {PLUGINS}/{plugin} {PLUGINS}/real-{plugin}
            cat >{PLUGINS}/new <<'PLUGIN'
#!/bin/sh
if [ "$CNI_COMMAND" = {command} ] && mkdir {FIRST} 2>/dev/null; then
    echo $$ >{REACHED}
    read word <{LET_GO}
fi
exec {PLUGINS}/real-{plugin}
PLUGIN
            chmod +x {PLUGINS}/new; mv {PLUGINS}/new {PLUGINS}/{plugin}"#
        ));
        Self { host, plugin }
    }

    /// Waits until the plugin waits, and returns its process id.
    #[track_caller]
    pub fn reached(&self) -> String {
        self.host.run(&format!("cat {REACHED}"))
    }

    /// Restores the plugin, and releases the waiting one. Returns when it has exited.
    #[track_caller]
    pub fn open(self, waiting: &str) {
        let Self { host, plugin } = self;
        host.run(&format!("mv {PLUGINS}/real-{plugin} {PLUGINS}/new"));
        host.run(&format!("ln {PLUGINS}/new {PLUGINS}/real-{plugin}"));
        host.run(&format!("mv {PLUGINS}/new {PLUGINS}/{plugin}"));
        host.run_words(&["sh", "-c", &format!("echo go >{LET_GO}")]);
        soon("the plugin that waited has ended", &false, || Path::new("/proc").join(waiting).exists());
        let waits = format!("pgrep -fx '/bin/sh {PLUGINS}/{plugin}' || true");
        soon("no call is between the two plugins", &String::new(), || host.run_words(&["sh", "-c", &waits]));
        host.run(&format!("rm -r {PLUGINS}/real-{plugin} {REACHED} {LET_GO} {FIRST}"));
    }
}
