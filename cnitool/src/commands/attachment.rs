//! `add`, `check`, `del`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cni::{AddResult, Attachment, Command};
use runtime::{
    Added, AttachmentParameters, Cache, Entry, Error, Network, NetworkEntries, Result, Runtime,
    interrupted_by_signals, not_rolled_back,
};
use serde_json::{Value, json};

use crate::attach_args;
use crate::cli::{AddOptions, AttachArgs, ManyTargets, Target};
use crate::known::{self, Known};
use crate::named::Created;
use crate::settings::{Settings, refuse_ifname};
use crate::table::Table;
use crate::ui::{Style, Ui, plural};

/// Runs ADD. If ADD fails, a namespace that was created for it is deleted, unless another attachment uses it by now.
pub fn add(
    target: &Target,
    attach_args: &AttachArgs,
    options: AddOptions,
    settings: &Settings,
    ui: &Ui,
) -> Result<()> {
    let network = settings.network(&target.network)?;
    let mut runtime = settings.runtime.clone();
    if !options.keep {
        // From here on, a signal deletes the namespace too.
        runtime = runtime.interrupted_by(interrupted_by_signals()?);
    }
    let before = SystemTime::now();
    let created = if options.create { Some(Created::named(&target.netns)?) } else { None };
    let attach = attach_args::apply(attach_args, &network, settings.attach(&target.netns, &target.names)?)?;
    if let Some(path) = attach.netns.as_deref().filter(|path| !path.exists()) {
        let text = format!("network namespace {} does not exist", path.display());
        let error = cni::Error::new(cni::Code::UnknownContainer, text);
        return Err(error
            .detail("`ip netns list` lists those with a name; --create creates the namespace first")
            .into());
    }
    let done = add_and_print(&runtime, &network, &attach, options.keep, ui);
    if let Some(created) = created
        && (options.keep || done.is_ok() || is_used(&attach, before, settings))
    {
        created.keep();
    }
    done
}

/// Whether an attachment has been added to the namespace since a time, or may have been.
fn is_used(attach: &AttachmentParameters, since: SystemTime, settings: &Settings) -> bool {
    // /var/run is a link to /run.
    let real =
        |attach: &AttachmentParameters| attach.netns.as_ref().and_then(|path| path.canonicalize().ok());
    let is_in_it =
        |entry: &Entry| real(&entry.attach) == real(attach) && entry.added.is_none_or(|added| added >= since);
    known::read_caches(settings).map_or(true, |(entries, _)| entries.iter().any(is_in_it))
}

/// Runs ADD. Runs DEL if ADD fails, is interrupted, or its result cannot be printed, unless the container was attached before.
fn add_and_print(
    runtime: &Runtime,
    network: &Network,
    attach: &AttachmentParameters,
    keep: bool,
    ui: &Ui,
) -> Result<()> {
    let Added { result, earlier } = if keep {
        Added { result: runtime.add(network, attach)?, earlier: None }
    } else {
        runtime.add_or_roll_back(network, attach)?
    };
    let printed = if ui.json_unless_seen() {
        ui.deliver(&format!("{}\n", result.to_json(network.version)?))
    } else {
        ui.deliver(&summary(attach, network, &result, ui))
    };
    // The caller did not receive the result. It considers the ADD failed, and would not remove the attachment.
    printed.map_err(|error| match earlier {
        _ if keep => error,
        Some(file) => not_rolled_back(error, &attach.attachment, &file),
        None => match runtime.clone().uninterrupted().del(network, attach) {
            Ok(()) => error,
            Err(left) => error.and(left.context("roll back")),
        },
    })
}

/// Runs CHECK of one attachment, or of all.
pub fn check(target: &ManyTargets, settings: &Settings, ui: &Ui) -> Result<()> {
    if target.all {
        refuse_ifname("--all", settings);
    }
    let network = settings.network(&target.network)?;
    let mut disabled = Vec::new();
    let checked = each(Command::Check, target, &network, settings, ui, |attach| {
        let is_checked = settings.runtime.check(&network, attach)?;
        if !is_checked {
            disabled.push(attach.clone());
        }
        Ok(is_checked)
    });
    if !disabled.is_empty() {
        ui.warn(&format!(
            "CHECK of {} was skipped: the network's configuration has disableCheck",
            counted(&disabled, &network)
        ));
    }
    checked
}

/// Runs DEL of one attachment, or of all.
pub fn del(target: &ManyTargets, settings: &Settings, ui: &Ui) -> Result<()> {
    if target.all {
        refuse_ifname("--all", settings);
    }
    let known = Known::of(settings.network_or_cached(&target.network, ui)?, settings);
    let (network, settings) = (&known.network, &known.settings(settings));
    each(Command::Del, target, network, settings, ui, |attach| {
        if let Ok(None) = settings.runtime.results().load(&network.name, &attach.attachment) {
            ui.warn(&format!(
                "the cache does not contain {} on network {}: DEL may find nothing to remove. `cnitool list` lists \
                 the attachments",
                named(attach),
                network.name
            ));
        }
        settings.runtime.del(network, attach).map(|()| true)
    })
}

/// Runs the command for all targets, and reports the failures at the end. `run` returns whether it has done anything.
fn each(
    command: Command,
    target: &ManyTargets,
    network: &Network,
    settings: &Settings,
    ui: &Ui,
    mut run: impl FnMut(&AttachmentParameters) -> Result<bool>,
) -> Result<()> {
    if target.all {
        warn_of_other_caches(network, settings, ui);
    }
    let (targets, skipped) = targets(target, network, settings)?;
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for (index, attach) in targets.iter().enumerate() {
        if targets.len() > 1 {
            ui.progress(&format!("{command} {} of {}: {}", index + 1, targets.len(), named(attach)));
        }
        match run(attach) {
            Ok(true) => done.push(attach.clone()),
            Ok(false) => {}
            Err(error) if targets.len() > 1 => failed.push(error.context(named(attach))),
            Err(error) => failed.push(error),
        }
    }
    if targets.len() > 1 {
        ui.progress("");
    }
    failed.extend(skipped);
    if ui.json() && (failed.is_empty() || !done.is_empty()) {
        let done: Vec<Value> = done.iter().map(|attach| identity(attach, network)).collect();
        ui.print_json(&json!({"command": command.as_str(), "done": done}))?;
    } else if ui.is_seen() && (targets.is_empty() && failed.is_empty() || !done.is_empty()) {
        ui.print(&format!(
            "{} {command} of {} done\n",
            ui.styled(Style::Good, "✓"),
            counted(&done, network)
        ))?;
    }
    failed.into_iter().reduce(Error::and).map_or(Ok(()), Err)
}

/// The attachments that the command line means, and the failures of files in the cache that may contain others.
fn targets(
    target: &ManyTargets,
    network: &Network,
    settings: &Settings,
) -> Result<(Vec<AttachmentParameters>, Vec<Error>)> {
    if let Some(netns) = &target.netns {
        return Ok((vec![settings.attach(netns, &target.names)?], Vec::new()));
    }
    let cache = settings.runtime.results();
    let NetworkEntries { entries, ambiguous, unreadable, .. } = cache.of_network(&network.name)?;
    let of_others: BTreeSet<PathBuf> =
        ambiguous.iter().map(|entry| cache.path(&network.name, &entry.attach.attachment)).collect();
    let damaged = unreadable.iter().map(|path| damaged(path));
    let failures = damaged.chain(of_others.iter().map(|path| uncertain(path))).collect();
    Ok((entries.into_iter().map(|entry| entry.attach).collect(), failures))
}

/// Warns of the network's attachments in other caches of this host: `--all` includes only those of `--cache-dir`.
fn warn_of_other_caches(network: &Network, settings: &Settings, ui: &Ui) {
    let others = settings.runtime.results().others_of_host();
    for cache in others
        .inspect_err(|error| ui.warn(&format!("other caches are left out: {error}")))
        .unwrap_or_default()
    {
        let dir = cache.dir().display();
        match cache.of_network(&network.name) {
            Ok(NetworkEntries { entries, .. }) if entries.is_empty() => {}
            Ok(NetworkEntries { entries, .. }) => ui.warn(&format!(
                "the cache {dir} contains {} of network {} too: run the command again with --cache-dir {dir}",
                plural(entries.len(), "attachment"),
                network.name
            )),
            Err(error) => ui.warn(&format!("attachments in the cache {dir} are left out: {error}")),
        }
    }
}

/// The failure for a damaged file. A DEL of a wrong attachment would delete the file of a running container.
fn damaged(path: &Path) -> Error {
    let file = format!("the cache file {} is damaged", path.display());
    let (text, remedy) = match Cache::attachment_named(path) {
        Some(Attachment { container, ifname }) => {
            (file, format!("name its attachment with NETNS and `--container-id {container} -i {ifname}`"))
        }
        None => {
            let remedy = "stop its container and delete the file; `cnitool gc NETWORK` then removes the rest of the attachment";
            (format!("{file}, and may be of another network"), remedy.to_owned())
        }
    };
    cni::Error::new(cni::Code::Io, text).detail(remedy).into()
}

/// The failure for a file in libcni's earliest format whose network is unknown.
fn uncertain(path: &Path) -> Error {
    let text = format!(
        "the cache file {} may be of another network, because only its name shows the network",
        path.display()
    );
    let remedy = "if it is of this one, name its attachment with NETNS, --container-id and -i: the file's name is NETWORK-CONTAINER-INTERFACE";
    cni::Error::new(cni::Code::Io, text).detail(remedy).into()
}

fn counted(targets: &[AttachmentParameters], network: &Network) -> String {
    match targets {
        [one] => format!("{} on network {}", named(one), network.name),
        many => format!("{} of network {}", plural(many.len(), "attachment"), network.name),
    }
}

fn named(attach: &AttachmentParameters) -> String {
    format!("{} of container {}", attach.attachment.ifname, attach.attachment.container)
}

fn identity(attach: &AttachmentParameters, network: &Network) -> Value {
    json!({
        "network": network.name.as_str(),
        "containerID": attach.attachment.container.as_str(),
        "ifname": attach.attachment.ifname.as_str(),
    })
}

fn summary(attach: &AttachmentParameters, network: &Network, result: &AddResult, ui: &Ui) -> String {
    let title = format!("{} {} on network {}\n", ui.styled(Style::Good, "✓"), named(attach), network.name);
    let mut table = Table::new(["INTERFACE", "MAC", "MTU", "ADDRESSES", "GATEWAY"]);
    for interface in &result.interfaces {
        let ips: Vec<_> = result.ips.iter().filter(|ip| result.interface_of(ip) == Some(interface)).collect();
        let addresses: Vec<String> = ips.iter().map(|ip| ip.address.to_string()).collect();
        let gateways: Vec<String> = ips.iter().filter_map(|ip| ip.gateway).map(|ip| ip.to_string()).collect();
        table.row([
            (interface.name.clone(), Style::Name),
            (interface.mac.clone().unwrap_or_default(), Style::Plain),
            (interface.mtu.map(|mtu| mtu.to_string()).unwrap_or_default(), Style::Plain),
            (addresses.join("\n"), Style::Plain),
            (gateways.join("\n"), Style::Plain),
        ]);
    }
    title + &table.render(ui, "  ")
}
