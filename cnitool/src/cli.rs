//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Drive CNI plugins by hand, as a container runtime would.
///
/// A network is a file of the configuration directory (*.conflist, *.conf, *.json); NETWORK is the `name` in the file.
/// Results are kept where libcni keeps them, so cnitool also finds the attachments that a runtime of this host made.
#[derive(Debug, Parser)]
#[command(name = "cnitool", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 a plugin failed; \
    2 wrong usage; 3 the configuration is wrong or there is no such network or attachment; 4 doctor: only warnings; 11 try again later; 50 status: \
    no container can be attached now; 51 status: the same, and running containers may have no network. `cnitool explain CODE` tells more.";

const ADD_EXAMPLES: &str = "Examples:
  cnitool add pods blue                the namespace /run/netns/blue
  cnitool add --create pods blue       make that namespace first
  cnitool add ./web.conflist blue -p 8080:80
                                       a file, and port 8080 of the host
  cnitool add pods /proc/4711/ns/net -i eth1 --ip 10.98.0.9
                                       a second interface of a process";

const GC_EXAMPLES: &str = "Examples:\n  cnitool gc --dry-run              list what would be removed, of all networks\n  cnitool gc --all --older-than 1h  \
    what cni-gc.timer runs\n  cnitool gc pods                   remove what containers that no longer exist have left\n  cnitool gc pods --force 8f3c      also what container 8f3c has\n  \
    cnitool gc pods --all             empty the network";

const VALIDATE_EXAMPLES: &str = "Examples:\n  cnitool validate                 all networks of --conf-dir\n  \
    cnitool validate web.conflist    before it is copied there";

const DOCTOR_EXAMPLES: &str = "Examples:\n  cnitool doctor                 findings, the worst first, each with its remedy\n  \
    cnitool doctor -o json | jq '.findings[] | select(.severity == \"error\")'";

const CONNECTIVITY_EXAMPLES: &str = "Examples:\n  cnitool test-connectivity pods\n  \
    cnitool test-connectivity ./web.conflist --outside 9.9.9.9 --outside 2620:fe::fe";

const SYSDUMP_EXAMPLES: &str = "Examples:\n  cnitool sysdump --list              what the archive would have\n  \
    cnitool sysdump --to report.tgz     for the bug report";

const REPAIR_EXAMPLES: &str = "Examples:\n  cnitool repair pods          after `nft flush ruleset`\n  cnitool repair --all \
    --watch  as packaging/systemd/cni-repair.service does";

#[derive(Args, Debug)]
pub struct Common {
    /// Directory of network configurations [default: /etc/cni/net.d]
    #[arg(long, global = true, env = "NETCONFPATH", value_name = "DIR", hide_env_values = true)]
    pub conf_dir: Option<PathBuf>,
    /// Directories of plugins, separated by colons [default: /opt/cni/bin:/usr/lib/cni:/usr/libexec/cni]
    #[arg(long, global = true, env = "CNI_PATH", value_name = "DIRS", hide_env_values = true)]
    pub plugin_path: Option<String>,
    /// Directory in which results are kept, in results/ [default: /var/lib/cni]
    #[arg(long, global = true, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Seconds that one run of one plugin may take
    #[arg(long, global = true, default_value_t = 120, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
    /// How to print [default: tables; `add` prints JSON unless on a terminal]
    #[arg(short, long, global = true, value_enum, value_name = "FORM")]
    pub output: Option<Form>,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub color: When,
    /// Print on stderr each run of a plugin, and how long it took
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// How to print.
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

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Attach a network namespace to a network, and print the result
    #[command(after_help = ADD_EXAMPLES)]
    Add {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        asked: Asked,
        #[command(flatten)]
        options: AddOptions,
    },
    /// Ask the plugins whether an attachment is still as ADD made it
    Check {
        #[command(flatten)]
        target: ManyTargets,
    },
    /// Remove an attachment
    Del {
        #[command(flatten)]
        target: ManyTargets,
    },
    /// Remove what is left of containers that are gone
    ///
    /// An attachment stays if a cache of this host knows it and its network namespace exists. The caches are --cache-dir,
    /// /var/lib/cni, and the directories in that. If no cache knows it, gc looks for its container. If the container is
    /// alive, or if gc cannot tell, gc lists what the container has, and keeps it.
    #[command(after_help = GC_EXAMPLES)]
    Gc {
        /// The network's name. Without it: all networks of all runtimes, with --all or --dry-run
        #[arg(required_unless_present_any = ["dry_run", "all"])]
        network: Option<String>,
        /// Accepted from older scripts, and ignored
        #[arg(hide = true)]
        rest: Vec<String>,
        #[command(flatten)]
        options: GcOptions,
    },
    /// Bring back rules that somebody has flushed: masquerade, host ports, spoof check
    ///
    /// For each attachment whose namespace exists, the plugins install the rules that are missing, from the configuration
    /// and the result in the cache. The caches are --cache-dir, /var/lib/cni, and the directories in that. Rules that are
    /// there stay as they are; links, addresses, routes and leases are not touched. Plugins that are not Ferrule's do not
    /// know this command: they are skipped, with a warning.
    #[command(after_help = REPAIR_EXAMPLES)]
    Repair {
        /// The network's name
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        network: Option<String>,
        /// All networks
        #[arg(long)]
        all: bool,
        /// Keep running, and repair whenever rules are removed; SIGTERM or SIGINT ends it
        #[arg(long)]
        watch: bool,
    },
    /// Check the whole host, and say what is wrong and what to do: run this first
    ///
    /// Checks plugins, configurations, STATUS of each network, kernel features, attachments (CHECK), stale things,
    /// forwarding, MTU and firewalls. Changes nothing. Exit code 0: no errors and no warnings; 4: warnings; 1: errors.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor,
    /// Try with packets what a network promises, by two temporary containers
    ///
    /// Between containers, to the gateway, outside, host ports, DNS, the MTU, limits of bandwidth, in IPv4 and IPv6. The containers
    /// are removed afterwards, also after Ctrl-C. Exit code 1: something failed.
    #[command(after_help = CONNECTIVITY_EXAMPLES)]
    TestConnectivity {
        /// The network's name, or a path to its file
        network: String,
        /// An address beyond the host that answers echo requests [default: the router of the host's default route]
        #[arg(long, value_name = "ADDRESS")]
        outside: Vec<std::net::IpAddr>,
    },
    /// Print metrics of all networks for Prometheus: addresses, attachments, stale things, repairs
    ///
    /// For the textfile collector of node_exporter: run it by a timer, with --to DIRECTORY/cni.prom. Changes nothing.
    Metrics {
        /// Write to this file, as a whole
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Write an archive for a bug report, without secrets
    ///
    /// Versions, configurations, results, links, addresses, routes, rules, settings, what doctor finds, and the journal's lines
    /// about CNI. The list of its files is printed first. Values of environment variables, of unknown CNI arguments and of
    /// whatever is named or looks like a secret are removed.
    #[command(after_help = SYSDUMP_EXAMPLES)]
    Sysdump {
        /// The archive; it must not exist [default: cnitool-sysdump-TIME.tgz]
        #[arg(long, value_name = "FILE", conflicts_with = "list")]
        to: Option<PathBuf>,
        /// Only list what the archive would have
        #[arg(long)]
        list: bool,
    },
    /// Ask whether a container could be attached now
    Status {
        /// The network's name; all networks if left out
        network: Option<String>,
        /// Accepted from older scripts, and ignored
        #[arg(hide = true)]
        rest: Vec<String>,
    },
    /// Print the versions of the protocol that cnitool, a plugin, or the plugins of a network speak
    Version {
        /// Names of plugins or networks
        names: Vec<String>,
    },
    /// List everything that is wrong with configuration files
    ///
    /// Also compares each file with the networks of this host: names that are given twice, and ranges that overlap.
    #[command(after_help = VALIDATE_EXAMPLES)]
    Validate {
        /// Files, directories of them, or - for stdin [default: the configuration directory]
        files: Vec<PathBuf>,
    },
    /// List networks and attachments, and the runtimes that they are of
    List {
        /// Only these
        #[arg(value_enum)]
        what: Option<Listed>,
        /// Also of other runtimes: from their directories and caches
        #[arg(long)]
        all: bool,
    },
    /// Show attachments: what ADD reported, and whether it is still there
    Show {
        /// Show only what all of these fit: a network, interface or namespace, or the start of a container's id
        words: Vec<String>,
        /// Also those in the caches of other runtimes
        #[arg(long)]
        all: bool,
    },
    /// Draw attachments: namespaces, interfaces, bridges and masters, addresses, mapped ports
    Graph {
        /// Only attachments of this network
        network: Option<String>,
        /// Also attachments in the caches of other runtimes
        #[arg(long)]
        all: bool,
        /// The form of the picture
        #[arg(short, long, value_enum)]
        format: Option<Picture>,
        /// Write to this file; its extension (.svg, .dot) chooses the form
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Explain an error code, a plugin, or a key of a configuration (such as bridge.ipMasq)
    Explain {
        /// CODE, PLUGIN, PLUGIN.KEY or network; lists the plugins if left out
        topic: Option<String>,
    },
    /// Print the JSON Schema of a network's configuration, or of a plugin's
    ///
    /// For editors, and for programs that make configurations. `cnitool validate` finds more: it also knows which plugins
    /// are installed, and what they have no use for.
    Schema {
        /// A plugin, or `network`
        #[arg(default_value = "network")]
        of: String,
        /// Write all schemas into this directory, NAME.json each
        #[arg(long, value_name = "DIR", conflicts_with = "of")]
        to: Option<PathBuf>,
    },
    /// Print the completion script for a shell
    Completion { shell: Shell },
    /// Print the manual page
    Man,
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
    /// Accepted from older scripts, and ignored
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
    /// All attachments of the network that are known on this host
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub names: Names,
    /// Accepted from older scripts, and ignored
    #[arg(hide = true)]
    pub rest: Vec<String>,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct AddOptions {
    /// If ADD fails, do not remove what was made so far
    #[arg(long)]
    pub keep: bool,
    /// Make the network namespace first, if there is none of this name, as `ip netns add` does
    #[arg(long)]
    pub create: bool,
}

#[derive(Args, Debug)]
pub struct GcOptions {
    /// Without NETWORK: all networks. With NETWORK: also remove attachments that are alive, if they are in cnitool's own cache (--cache-dir)
    #[arg(long)]
    pub all: bool,
    /// Also remove what gc keeps: of this container, or with this name. Also ask this plugin of another maker for GC. May be repeated
    #[arg(long, value_name = "NAME")]
    pub force: Vec<String>,
    /// Keep attachments that are younger, as far as a cache knows: 90s, 30m, 1h, 2d
    #[arg(long, value_name = "AGE", value_parser = crate::commands::parse_age)]
    pub older_than: Option<std::time::Duration>,
    /// List what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Run again and again, each time after this pause, until SIGTERM or SIGINT: 30m, 1h
    #[arg(long, value_name = "PAUSE", value_parser = crate::commands::parse_age, conflicts_with = "dry_run")]
    pub every: Option<std::time::Duration>,
}

#[derive(Args, Debug)]
pub struct Names {
    /// The interface's name in the namespace [default: eth0]
    #[arg(short, long, env = "CNI_IFNAME", value_name = "NAME", hide_env_values = true)]
    pub ifname: Option<String>,
    /// The container's id [default: made from the namespace's path]
    #[arg(long, value_name = "ID")]
    pub container_id: Option<String>,
    /// Arguments for all plugins: KEY=VALUE;KEY=VALUE
    #[arg(long, env = "CNI_ARGS", value_name = "ARGS", hide_env_values = true)]
    pub args: Option<String>,
    /// Capability arguments, as a JSON object: {"portMappings": [...]}
    #[arg(long, env = "CAP_ARGS", value_name = "JSON", hide_env_values = true)]
    pub cap_args: Option<String>,
}

/// What the attachment is to have. A plugin that declares the capability gets it as a capability argument; addresses and the MAC
/// are in CNI_ARGS otherwise.
#[derive(Args, Debug)]
pub struct Asked {
    /// Forward a port of the host: [HOSTIP:]HOSTPORT:PORT[/PROTOCOL]
    #[arg(short, long, value_name = "PORTS", value_parser = crate::asked::port)]
    pub publish: Vec<String>,
    /// The container's address; may be given once for each family
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

/// The form of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Picture {
    /// For the terminal
    Text,
    /// For graphviz
    Dot,
    /// For browsers
    Svg,
}
