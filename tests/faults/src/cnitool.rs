//! A runtime under the same sweeps: cnitool, called like a plugin.

use lab::{Lab, ours, quoted};
use serde_json::{Value, json};

/// The name of the script that calls cnitool.
pub const TOOL: &str = "cnitool-chain";

/// Calls cnitool with a plugin's input, and returns a plugin's output.
const AS_A_PLUGIN: &str = r#"
command=$(printf %s "$CNI_COMMAND" | tr A-Z a-z)
[ "$command" != version ] || exec $UNDER "$CNITOOL" version
attachment="$CNI_NETNS --container-id $CNI_CONTAINERID"
[ "$command" != status ] || attachment=
if [ "$command" = add ]; then exec 3>&1; else exec 3>/dev/null; fi
errors=$($UNDER "$CNITOOL" "$command" --output json net $attachment 2>&1 >&3 3>&-)
status=$?
[ $status = 0 ] && exit
# Warnings of plugins may stand before it.
printf %s "$errors" | sed -n '/^{/,$p' | sed '1s/^{/{"cniVersion": "1.1.0",/'
[ $status -gt 51 ] && exit $status || exit 1"#;

/// Installs the script in a lab, with the plugins of its network.
pub fn install(lab: &Lab, plugins: &[Value]) {
    lab.configure("net.conflist", &json!({"cniVersion": "1.1.0", "name": "net", "plugins": plugins}));
    let cnitool = ours().join("cnitool");
    lab.fake_plugin(TOOL, &format!("CNITOOL={}\n{AS_A_PLUGIN}", quoted(&cnitool)));
}
