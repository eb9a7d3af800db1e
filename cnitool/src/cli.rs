//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Call CNI plugins as a container runtime does; check, repair and clean up hosts.
///
/// A network is a file of the configuration directory (*.conflist, *.conf, *.json); NETWORK is the `name` in the file.
/// cnitool stores results where libcni does, so it also finds the attachments of the container runtimes on this host.
#[derive(Debug, Parser)]
#[command(name = "cnitool", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 success; 1 a plugin failed; 2 wrong usage; 3 the configuration is invalid, or the network or \
    attachment does not exist; 4 doctor: only warnings; 11 try again later; 50 status: no container can be attached now; 51 status: the \
    same, and running containers may have lost their network. `cnitool explain CODE` explains an error code.";

const ADD_EXAMPLES: &str = "Examples:
  cnitool add pods blue                the namespace /run/netns/blue
  cnitool add --create pods blue       create that namespace first
  cnitool add ./web.conflist blue -p 8080:80
                                       a file, and host port 8080
  cnitool add pods /proc/4711/ns/net -i eth1 --ip 10.98.0.9
                                       a second interface of a process";

const GC_EXAMPLES: &str = "Examples:\n  cnitool gc --dry-run              list stale resources of all networks\n  cnitool gc --all --older-than 1h  \
    what cni-gc.timer runs\n  cnitool gc pods                   remove stale resources of this network\n  cnitool gc pods --force 8f3c      also remove resources of container 8f3c\n  \
    cnitool gc pods --detach-running  also detach running containers whose attachment is in --cache-dir";

const VALIDATE_EXAMPLES: &str = "Examples:\n  cnitool validate                 all networks of --conf-dir\n  \
    cnitool validate web.conflist    a file before you copy it there";

const DOCTOR_EXAMPLES: &str = "Examples:\n  cnitool doctor                 problems with remedies, the worst first\n  \
    cnitool doctor -o json | jq '.findings[] | select(.severity == \"error\")'";

const CONNECTIVITY_EXAMPLES: &str = "Examples:\n  cnitool test-connectivity pods\n  \
    cnitool test-connectivity ./web.conflist --outside 9.9.9.9 --outside 2620:fe::fe";

const SYSDUMP_EXAMPLES: &str = "Examples:\n  cnitool sysdump --list              list the files of the archive\n  \
    cnitool sysdump --to report.tgz     write the archive";

const REPAIR_EXAMPLES: &str = "Examples:\n  cnitool repair pods          after `nft flush ruleset`\n  cnitool repair --all \
    --watch  what cni-repair.service runs";

#[derive(Args, Debug)]
pub struct Common {
    /// Configuration directory [env: NETCONFPATH] [default: /etc/cni/net.d]
    #[arg(long, global = true, value_name = "DIR")]
    pub conf_dir: Option<PathBuf>,
    /// Plugin directories, separated by colons [env: CNI_PATH] [default: /opt/cni/bin:/usr/lib/cni:/usr/libexec/cni]
    #[arg(long, global = true, value_name = "DIRS")]
    pub plugin_path: Option<OsString>,
    /// Cache directory; results are in its subdirectory results/ [default: /var/lib/cni]
    #[arg(long, global = true, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// The interface's name in the namespace, for add, check and del; gc refuses it with --detach-running and --force, other commands ignore it [env: CNI_IFNAME] [default: eth0]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub ifname: Option<String>,
    /// Seconds that one run of one plugin may take; then cnitool kills it
    #[arg(long, global = true, default_value_t = runtime::DEFAULT_TIMEOUT.as_secs(), value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
    /// Output format [default: tables; `add` prints JSON unless on a terminal]
    #[arg(short, long, global = true, value_enum, value_name = "FORM")]
    pub output: Option<Form>,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub color: When,
    /// Print each run of a plugin and its duration on stderr
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people
    Table,
    /// For programs
    Json,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// Arguments of which one is required. If all are missing, clap's error lists them.
fn one_or_all(arguments: &[&'static str]) -> ArgGroup {
    ArgGroup::new("networks").args(arguments.iter().copied()).required(true)
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Attach a network namespace to a network, and print the result
    #[command(after_help = ADD_EXAMPLES)]
    Add {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        attach_args: AttachArgs,
        #[command(flatten)]
        options: AddOptions,
    },
    /// Ask the plugins whether an attachment is still as ADD made it
    Check {
        #[command(flatten)]
        target: ManyTargets,
    },
    /// Detach a network namespace from a network
    Del {
        #[command(flatten)]
        target: ManyTargets,
    },
    /// Remove stale resources of containers that no longer exist
    ///
    /// gc keeps an attachment if a cache of this host contains it and its network namespace exists. The caches are
    /// --cache-dir, /var/lib/cni, and its subdirectories. If no cache contains the attachment, gc looks for the container.
    /// If the container is or may be alive, gc lists its resources and keeps them.
    #[command(after_help = GC_EXAMPLES, group = one_or_all(&["network", "all", "dry_run"]).multiple(true))]
    Gc {
        /// The network's name. Without it: all networks of all runtimes, with --all or --dry-run
        network: Option<String>,
        /// Ignored with a warning: the reference's cnitool requires a namespace here, and ignores further words
        #[arg(hide = true)]
        rest: Vec<String>,
        #[command(flatten)]
        options: GcOptions,
    },
    /// Restore what another program has removed: firewall rules, bandwidth limits, DNS names
    ///
    /// For each attachment whose namespace exists, the plugins install what is missing, from the configuration and the
    /// result in the cache. The caches are --cache-dir, /var/lib/cni, and its subdirectories. Interfaces of containers,
    /// addresses, routes and leases are not changed. Plugins of other vendors are skipped, with a warning.
    #[command(after_help = REPAIR_EXAMPLES, group = one_or_all(&["network", "all"]))]
    Repair {
        /// The network's name
        network: Option<String>,
        /// All networks
        #[arg(long)]
        all: bool,
        /// Keep running, and repair whenever rules are removed; SIGTERM or SIGINT ends it
        #[arg(long)]
        watch: bool,
    },
    /// Check the whole host, and print problems with their remedies: run this first
    ///
    /// Checks plugins, configurations, STATUS of each network, kernel features, attachments (CHECK), stale resources,
    /// forwarding, MTU and firewalls. Changes nothing. Exit code 0: no errors and no warnings; 4: warnings; 1: errors.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor,
    /// Test a network with packets between two temporary containers
    ///
    /// Tests connections between containers, to the gateway, to the outside, to host ports and DNS, the MTU and bandwidth limits,
    /// in IPv4 and IPv6. Removes the containers afterwards, also after Ctrl-C. Exit code 1: a test failed.
    #[command(after_help = CONNECTIVITY_EXAMPLES)]
    TestConnectivity {
        /// The network's name, or a path to its file
        network: String,
        /// An address beyond the host that answers echo requests [default: the router of the host's default route]
        #[arg(long, value_name = "ADDRESS")]
        outside: Vec<std::net::IpAddr>,
    },
    /// Print metrics of all networks for Prometheus: addresses, attachments, stale resources, repairs
    ///
    /// For the textfile collector of node_exporter, run it from a timer with --to DIRECTORY/cni.prom. The
    /// command changes nothing, except that it stores when it first found each stale resource (/run/ferrule/stale.boot).
    Metrics {
        /// Write to this file, atomically, or to a device or FIFO
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Write an archive for a bug report, without secrets
    ///
    /// The archive contains versions, configurations, results, links, addresses, routes, rules, settings, the output of doctor, and
    /// lines of the journal about CNI. sysdump prints the list of files first. It removes values of environment variables, of
    /// unknown CNI arguments, and of everything that is named or looks like a secret.
    #[command(after_help = SYSDUMP_EXAMPLES)]
    Sysdump {
        /// The archive; it must not exist [default: cnitool-sysdump-TIME.tgz]
        #[arg(long, value_name = "FILE", conflicts_with = "list")]
        to: Option<PathBuf>,
        /// Only list the files of the archive
        #[arg(long)]
        list: bool,
    },
    /// Show whether a container can be attached now
    Status {
        /// The network's name [default: all networks]
        network: Option<String>,
        /// Ignored with a warning: the reference's cnitool requires a namespace here, and ignores further words
        #[arg(hide = true)]
        rest: Vec<String>,
    },
    /// List the protocol versions of cnitool, of a plugin, or of the plugins of a network
    Version {
        /// Names of plugins or networks
        names: Vec<String>,
    },
    /// List all mistakes in configuration files
    ///
    /// Also compares each file with the networks of this host: duplicate names and overlapping ranges.
    #[command(after_help = VALIDATE_EXAMPLES)]
    Validate {
        /// Files, directories, or - for stdin [default: the configuration directory]
        files: Vec<PathBuf>,
    },
    /// List networks and attachments with their runtimes
    List {
        /// List only these
        #[arg(value_enum)]
        what: Option<Listed>,
        /// Include other runtimes: their directories and caches
        #[arg(long)]
        all: bool,
    },
    /// Show attachments: the result of ADD, and whether each part still exists
    Show {
        /// Show attachments that match all of these: a network, interface or namespace, or the beginning of a container id
        words: Vec<String>,
        /// Include attachments in the caches of other runtimes
        #[arg(long)]
        all: bool,
    },
    /// Draw attachments: namespaces, interfaces, bridges and masters, addresses, mapped ports
    Graph {
        /// Only attachments of this network
        network: Option<String>,
        /// Include attachments in the caches of other runtimes
        #[arg(long)]
        all: bool,
        /// Format of the picture
        #[arg(short, long, value_enum)]
        format: Option<Picture>,
        /// Write to this file; its extension (.svg, .dot) selects the format
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Explain an error code, a plugin, or a key of a configuration (such as bridge.ipMasq)
    Explain {
        /// CODE, PLUGIN, PLUGIN.KEY or network [default: list the plugins]
        topic: Option<String>,
    },
    /// Print the JSON Schema of a network's configuration, or of a plugin's
    ///
    /// For editors, and for programs that generate configurations. `cnitool validate` finds more mistakes, such as plugins
    /// that are not installed and keys that no plugin reads.
    Schema {
        /// A plugin, or `network`
        #[arg(default_value = "network")]
        of: String,
        /// Write all schemas into this directory, as NAME.json
        #[arg(long, value_name = "DIR", conflicts_with = "of")]
        to: Option<PathBuf>,
    },
    /// Print the completion script for a shell
    Completion { shell: Shell },
    /// Print the manual page
    Man,
}

impl Command {
    /// Words after the last argument.
    pub fn ignored(&self) -> &[String] {
        match self {
            Self::Add { target, .. } => &target.rest,
            Self::Check { target } | Self::Del { target } => &target.rest,
            Self::Gc { rest, .. } | Self::Status { rest, .. } => rest,
            _ => &[],
        }
    }

    /// Whether the command handles signals itself: it reverts its changes, or completes the current run.
    pub fn handles_signals(&self) -> bool {
        match self {
            Self::Add { options, .. } => !options.keep,
            Self::Gc { options, .. } => options.every.is_some(),
            Self::Repair { watch, .. } => *watch,
            Self::TestConnectivity { .. } => true,
            _ => false,
        }
    }
}

/// An attachment.
#[derive(Args, Debug)]
pub struct Target {
    /// The network's name, or a path to its file
    pub network: String,
    /// The network namespace: a path, or a name below /run/netns
    pub netns: String,
    #[command(flatten)]
    pub names: Names,
    /// Ignored with a warning, because the reference's cnitool ignores further words
    #[arg(hide = true)]
    pub rest: Vec<String>,
}

/// One attachment, or all of a network.
#[derive(Args, Debug)]
pub struct ManyTargets {
    /// The network's name, or a path to its file
    pub network: String,
    /// The network namespace: a path, or a name below /run/netns
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub netns: Option<String>,
    /// All attachments of the network in --cache-dir. cnitool warns of attachments in other caches of this host
    #[arg(long, conflicts_with = "container_id")]
    pub all: bool,
    #[command(flatten)]
    pub names: Names,
    /// Ignored with a warning, because the reference's cnitool ignores further words
    #[arg(hide = true)]
    pub rest: Vec<String>,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct AddOptions {
    /// If ADD fails, do not remove what the plugins have created
    #[arg(long)]
    pub keep: bool,
    /// Create the network namespace if it does not exist, as `ip netns add` does
    #[arg(long)]
    pub create: bool,
}

#[derive(Args, Debug)]
pub struct GcOptions {
    /// All networks of all runtimes
    #[arg(long)]
    pub all: bool,
    /// Also detach running containers of NETWORK whose attachment is in --cache-dir. By default, this is also the cache of
    /// containerd, CRI-O, nerdctl, Nomad and Podman
    #[arg(long, requires = "network")]
    pub detach_running: bool,
    /// Also remove resources that gc keeps: those of this container, or with this name. Or send GC to this plugin of another vendor. Repeatable
    #[arg(long, value_name = "NAME")]
    pub force: Vec<String>,
    /// Keep younger attachments, if a cache knows their age: 90s, 30m, 1h, 2d
    #[arg(long, value_name = "AGE", value_parser = crate::arguments::parse_age)]
    pub older_than: Option<std::time::Duration>,
    /// Only list what gc would remove
    #[arg(long)]
    pub dry_run: bool,
    /// Run again and again, each time after this pause, until SIGTERM or SIGINT: 30m, 1h
    #[arg(long, value_name = "PAUSE", value_parser = crate::arguments::parse_pause, conflicts_with = "dry_run")]
    pub every: Option<std::time::Duration>,
}

#[derive(Args, Debug)]
pub struct Names {
    /// The container's id [default: cnitool- and a hash of the namespace's path]
    #[arg(long, value_name = "ID")]
    pub container_id: Option<String>,
    /// Arguments for all plugins: KEY=VALUE;KEY=VALUE [env: CNI_ARGS]
    #[arg(long, value_name = "ARGS")]
    pub args: Option<String>,
    /// Capability arguments, as a JSON object: {"portMappings": [...]} [env: CAP_ARGS]
    #[arg(long, value_name = "JSON")]
    pub cap_args: Option<String>,
}

/// Ports and addresses for the attachment. A plugin that declares the capability gets them as capability arguments; otherwise
/// addresses and the MAC address are in CNI_ARGS.
#[derive(Args, Debug)]
pub struct AttachArgs {
    /// Forward a host port: [HOSTIP:]HOSTPORT:PORT[/PROTOCOL]
    #[arg(short, long, value_name = "PORTS", value_parser = crate::arguments::port)]
    pub publish: Vec<String>,
    /// The container's address. Repeatable
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Vec<String>,
    /// The MAC address of the container's interface
    #[arg(long, value_name = "MAC")]
    pub mac: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listed {
    Networks,
    Attachments,
}

/// Format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Picture {
    /// For the terminal
    Text,
    /// For graphviz
    Dot,
    /// For browsers
    Svg,
}
