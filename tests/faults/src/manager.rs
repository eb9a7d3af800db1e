//! A runtime's side of the protocol under the same sweeps: cnitool, called as a plugin is called.

use serde_json::{Value, json};

use super::subject::Subject;
use lab::Lab;
use lab::ours;

/// What cnitool is called by in a scene.
pub const TOOL: &str = "cnitool-chain";

/// Calls cnitool as a plugin is called, and answers as one.
const AS_A_PLUGIN: &str = r#"
verb=$(printf %s "$CNI_COMMAND" | tr A-Z a-z)
[ "$verb" != version ] || exec $UNDER "$CNITOOL" version
attachment="$CNI_NETNS --container-id $CNI_CONTAINERID"
[ "$verb" != status ] || attachment=
if [ "$verb" = add ]; then exec 3>&1; else exec 3>/dev/null; fi
errors=$($UNDER "$CNITOOL" "$verb" --output json net $attachment 2>&1 >&3 3>&-)
status=$?
[ $status = 0 ] && exit
printf %s "$errors" | sed '1s/^{/{"cniVersion": "1.1.0",/'
[ $status -gt 51 ] && exit $status || exit 1"#;

/// Puts it into a lab, with the plugins of its network.
pub fn install(lab: &Lab, plugins: &[Value]) {
    lab.configure("net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    let cnitool = ours().join("cnitool");
    lab.fake_plugin(TOOL, &format!("CNITOOL={}\n{AS_A_PLUGIN}", cnitool.display()));
}

/// cnitool's GC looks for containers that are gone, and the sweeps' are not.
pub fn speaks(subject: &Subject, verb: &str) -> bool {
    !subject.is_managed() || verb != "GC"
}
