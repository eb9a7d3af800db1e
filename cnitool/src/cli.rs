//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Drive CNI plugins by hand, as a container runtime would.
///
/// A network is a file of the configuration directory (*.conflist, *.conf, *.json), found by the name in it. Results
/// are kept where libcni keeps them, so attachments made by a runtime on this host are found too.
#[derive(Debug, Parser)]
#[command(name = "cnitool", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 a plugin failed, or gc would have taken from live containers; 2 wrong \
    usage; 3 the configuration is wrong or there is no such network or attachment; 11 try again later; 50 not available; \
    51 not available, and running containers may suffer. `cnitool explain CODE` tells more.";

const GC_EXAMPLES: &str = "Examples:\n  cnitool gc pods --dry-run   what would be removed?\n  cnitool gc pods             \
    remove what is left of containers that are gone\n  cnitool gc pods --all       empty the network";

const REPAIR_EXAMPLES: &str = "Examples:\n  cnitool repair pods          after `nft flush ruleset`\n  cnitool repair --all \
    --watch  as packaging/systemd/cni-repair.service does";

#[derive(Args, Debug)]
pub struct Common {
    /// Directory of network configurations
    #[arg(long, global = true, env = "NETCONFPATH", value_name = "DIR", hide_env_values = true)]
    pub conf_dir: Option<PathBuf>,
    /// Directories of plugins, separated by colons
    #[arg(long, global = true, env = "CNI_PATH", value_name = "DIRS", hide_env_values = true)]
    pub plugin_path: Option<String>,
    /// Directory in which results are kept
    #[arg(long, global = true, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Seconds that one run of one plugin may take
    #[arg(long, global = true, default_value_t = 120, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
    /// How to print
    #[arg(short, long, global = true, value_enum, value_name = "FORM")]
    pub output: Option<Form>,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub color: When,
    /// Tell each run of a plugin, and how long it took
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
    Add {
        #[command(flatten)]
        target: Target,
        /// Leave what a failed ADD has made, to look at it
        #[arg(long)]
        keep: bool,
    },
    /// Ask the plugins whether an attachment is as it was made
    Check {
        #[command(flatten)]
        target: ManyTargets,
    },
    /// Remove an attachment
    Del {
        #[command(flatten)]
        target: ManyTargets,
    },
    /// Remove what belongs to attachments whose namespaces are gone
    ///
    /// Valid is what the caches of this host's runtimes know, if its namespace is there: /var/lib/cni and the
    /// directories in it, beside --cache-dir. If links or leases of other containers that are alive would go, all are
    /// named and nothing is removed.
    #[command(after_help = GC_EXAMPLES)]
    Gc {
        /// The network's name
        network: String,
        /// Taken for the sake of older scripts, and not used
        #[arg(hide = true)]
        rest: Vec<String>,
        #[command(flatten)]
        options: GcOptions,
    },
    /// Bring back rules that somebody has flushed: masquerade, host ports, spoof check
    ///
    /// Of every attachment in the caches of this host's runtimes (/var/lib/cni and the directories in it, beside
    /// --cache-dir) whose namespace is there, plugins install what is missing, from the cached configuration and
    /// result. Links, addresses and leases are not touched. What is whole stays as it is, and plugins that are not
    /// Ferrule's are passed over.
    #[command(after_help = REPAIR_EXAMPLES)]
    Repair {
        /// The network's name
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        network: Option<String>,
        /// All networks
        #[arg(long)]
        all: bool,
        /// Stay, and repair whenever rules are removed, until SIGTERM or SIGINT
        #[arg(long)]
        watch: bool,
    },
    /// Ask whether networks could attach a container now
    Status {
        /// The network's name; all networks if left out
        network: Option<String>,
        /// Taken for the sake of older scripts, and not used
        #[arg(hide = true)]
        rest: Vec<String>,
    },
    /// Tell the versions of the protocol that cnitool, plugins, or a network's plugins speak
    Version {
        /// Names of plugins or networks
        names: Vec<String>,
    },
    /// Look for everything that is wrong with a configuration file
    Validate {
        /// The file; - for stdin
        file: PathBuf,
    },
    /// List networks and attachments
    List {
        /// Only these
        #[arg(value_enum)]
        what: Option<Listed>,
    },
    /// Show attachments: the result, and what is there now
    Show {
        /// What to show: names of networks, interfaces, namespaces, or the begin of a container's id
        words: Vec<String>,
    },
    /// Draw namespaces, interfaces, bridges, addresses and mapped ports
    Graph {
        /// Only attachments of this network
        network: Option<String>,
        /// The form of the picture
        #[arg(short, long, value_enum)]
        format: Option<Picture>,
        /// Write to this file; its extension (.svg, .dot) chooses the form
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Explain an error code, a plugin, or a key of a configuration (such as bridge.ipMasq)
    Explain {
        /// CODE, PLUGIN or PLUGIN.KEY; lists the plugins if left out
        topic: Option<String>,
    },
    /// Print the completion script for a shell
    Completion { shell: Shell },
    /// Print the manual page
    Man,
}

/// An attachment.
#[derive(Args, Debug)]
pub struct Target {
    /// The network's name
    pub network: String,
    /// The network namespace: a path, or a name below /run/netns
    pub netns: String,
    #[command(flatten)]
    pub names: Names,
    /// Taken for the sake of older scripts, and not used
    #[arg(hide = true)]
    pub rest: Vec<String>,
}

/// One attachment, or all of a network.
#[derive(Args, Debug)]
pub struct ManyTargets {
    /// The network's name
    pub network: String,
    /// The network namespace: a path, or a name below /run/netns
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub netns: Option<String>,
    /// All attachments of the network that are known on this host
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub names: Names,
    /// Taken for the sake of older scripts, and not used
    #[arg(hide = true)]
    pub rest: Vec<String>,
}

#[derive(Args, Debug)]
pub struct GcOptions {
    /// Remove all of the network's attachments in cnitool's own cache, too
    #[arg(long)]
    pub all: bool,
    /// Remove also what containers have that are alive and in none of the caches
    #[arg(long)]
    pub force: bool,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
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
