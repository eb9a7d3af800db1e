//! The runtime's side of the CNI protocol, for every published version of the specification
//! (<https://www.cni.dev/docs/spec/>). [`ConfDir`] and [`Network`] load configurations, [`Runtime`] runs the plugins of a
//! network in order, and [`Cache`] stores results in libcni's directory and format, so that programs with libcni find
//! these attachments. [`Pods`] and [`Watcher`] are for programs that manage the networks of a whole host.
//!
//! All functions block until they are done. They do not change the working directory, the environment or the signal
//! handlers of the process. Any number of threads can use one [`Runtime`].
//!
//! ```no_run
//! use runtime::{AttachmentParameters, ConfDir, Runtime};
//!
//! let network = ConfDir::new("/etc/cni/net.d").find("pods")?;
//! let runtime = Runtime::new(["/opt/cni/bin"]);
//! let attach = AttachmentParameters::new("0a1b2c", "eth0")?.netns("/run/netns/web").arg("K8S_POD_NAME", "web");
//!
//! // A failed ADD is followed by a DEL.
//! let added = runtime.add_or_roll_back(&network, &attach)?;
//! added.result.addresses().for_each(|address| println!("{address}"));
//! runtime.check(&network, &attach)?;
//! runtime.del(&network, &attach)?;
//! # Ok::<(), runtime::Error>(())
//! ```

#![warn(missing_docs)]

mod attach;
mod cache;
mod collect;
mod conf;
mod conf_dir;
mod error;
mod exec;
mod files;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gc;
mod lock;
mod pod;
mod probe;
mod process;
mod repair;
mod request;
mod result;
mod rollback;
mod run;
mod signal;
pub mod text;
mod watch;

pub use attach::AttachmentParameters;
pub use cache::{Cache, Entry, NetworkEntries};
pub use collect::{CollectResult, Decision};
pub use conf::{Network, PluginConf};
pub use conf_dir::{ConfDir, ConfFile};
pub use error::{Error, Failure, Result};
pub use exec::{Exec, Invocation, Output};
pub use gc::{GcPlan, Valid, is_namespace, not_called};
pub use pod::{Attached, NetworkRequest, Pod, Pods};
pub use process::{DEFAULT_TIMEOUT, Processes, Stderr};
pub use repair::Repaired;
pub use rollback::{Added, not_rolled_back};
pub use run::Runtime;
pub use signal::{ended_by_signals, interrupted_by_signals};
pub use watch::{Current, Networks, Watcher};
