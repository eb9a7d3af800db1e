//! Multi-call executable with all plugins, and Podman's network driver `cni`, selected by the name under which it is called.

use std::env;
use std::process::ExitCode;

use cni::multicall::{self, Entry};

macro_rules! entries {
    ($($plugin:ident::$name:ident,)*) => {
        &[$(Entry::of::<all_plugins::$plugin::$name>(),)*]
    };
}

const PLUGINS: &[Entry] = all_plugins::for_each_plugin!(entries);

#[global_allocator]
static HEAP: heap::Arena = heap::Arena::new();

fn main() -> ExitCode {
    if env::args_os().next().is_some_and(|name| netavark_driver::is_called(&name)) {
        return netavark_driver::main();
    }
    multicall::main(PLUGINS).unwrap_or_else(by_its_own_name)
}

/// A person started it manually.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "someone looks at the terminal")]
fn by_its_own_name() -> ExitCode {
    let argument = env::args_os().nth(1);
    match argument.as_ref().map(|argument| argument.to_string_lossy()).as_deref() {
        None | Some("--help" | "-h") => print!("{}", help()),
        Some("--version" | "-V") => println!("ferrule {}", env!("CARGO_PKG_VERSION")),
        Some("--list") => PLUGINS.iter().for_each(|plugin| println!("{}", plugin.name())),
        Some(other) => {
            eprintln!("ferrule: unknown argument {other:?}; run `ferrule --help`");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn help() -> String {
    let names: Vec<&str> = PLUGINS.iter().map(Entry::name).collect();
    format!(
        "ferrule {version}: CNI plugins in one executable

It is the plugin by whose name it is called. Link it in the directory of the plugins, once for each plugin:

  ln ferrule bridge

A longer name that ends in -bridge, such as buildkit-cni-bridge, is the plugin bridge too.
As cni, it is the network driver of Podman 5 (netavark): link it in /usr/local/libexec/netavark.

Plugins: {names}

Options:
  --list     print the plugins' names, one on each line
  --version  print the version
  --help     print this text
",
        version = env!("CARGO_PKG_VERSION"),
        names = names.join(", ")
    )
}
