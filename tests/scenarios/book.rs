//! Tests of README.md and docs/: their commands work word for word, their networks attach containers, their links have targets.
//! CONTRIBUTING.md ("Pages") lists the kinds of code blocks.

mod host;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use lab::{Feature, Lab, Tool, needs, plugins, repository, skip, together};
use serde_json::{Value, json};

use self::host::Host;
use self::page::{Block, Kind, Page};

/// README.md and the pages of docs/.
fn book() -> Vec<Page> {
    let mut paths: Vec<_> = fs::read_dir(docs()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.push(repository().join("README.md"));
    paths.sort();
    paths.iter().map(|path| Page::read(path)).collect()
}

fn docs() -> PathBuf {
    repository().join("docs")
}

/// The pages of docs/ in the order of the table of contents.
fn contents() -> Vec<String> {
    let contents = Page::read(&docs().join("README.md"));
    let links = contents.links().into_iter().filter(|link| link.ends_with(".md") && !link.contains('/'));
    links.map(str::to_owned).collect()
}

/// cnitool with Ferrule's plugins, even if the reference is under test.
fn ours(lab: &Lab) -> Tool {
    lab.cnitool().in_dir(&together())
}

#[track_caller]
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn commands_of_the_pages_work_word_for_word_and_print_the_shown_output() {
    needs!(NftNat, Ipv6);
    let faults: Vec<String> = book().iter().flat_map(walk).collect();
    assert_none(&faults);
}

/// Runs the commands of a page from top to end, and returns the failures.
fn walk(page: &Page) -> Vec<String> {
    if !page.blocks.iter().any(|block| [Kind::Script, Kind::Session].contains(&block.kind)) {
        return Vec::new();
    }
    let host = Host::new();
    if page.path == repository().join("README.md") {
        host.offer_archive();
    }
    let mut faults = Vec::new();
    for block in &page.blocks {
        let fault = match block.kind {
            Kind::Script => host.script(&block.text).err(),
            Kind::Session => session(&host, block),
            Kind::Json => {
                block.network().inspect(|network| host.configure(network));
                None
            }
            Kind::Example => None,
            Kind::Other => block
                .text
                .lines()
                .find(|line| line.starts_with("$ "))
                .map(|line| format!("{line}: is in no block of the kind console")),
        };
        faults.extend(fault.map(|fault| format!("{}:{}: {fault}", page.name(), block.line)));
    }
    faults
}

/// Runs the commands of a block, and returns those whose output differs from the block.
fn session(host: &Host, block: &Block) -> Option<String> {
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in block.text.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), String::new())),
            (None, Some((command, said))) if said.is_empty() && command.ends_with('\\') => {
                *command += &format!("\n{line}")
            }
            (None, Some((_, said))) => *said += &format!("{line}\n"),
            (None, None) => return Some("the block begins with no command".to_owned()),
        }
    }
    let wrong = steps.into_iter().filter_map(|(command, said)| {
        let printed = host.session(&command);
        let is_same = stable(&printed) == stable(&said);
        (!is_same).then(|| format!("$ {command}\nprints\n{printed}not\n{said}"))
    });
    let wrong: Vec<String> = wrong.collect();
    (!wrong.is_empty()).then(|| wrong.join("\n"))
}

/// Removes everything that differs between two runs: long hexadecimal names, MAC addresses, column widths, and warnings of plugins
/// about this host.
fn stable(text: &str) -> String {
    let is_hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    let differs = |word: &str| {
        let hash = word.strip_prefix("veth").unwrap_or(word);
        let mac = word.split(':').all(|byte| byte.len() == 2 && is_hex(byte)) && word.len() == 17;
        mac || hash.len() >= 8 && is_hex(hash)
    };
    let word = |word: &str| if differs(word) { "#".to_owned() } else { word.to_owned() };
    let line = |line: &str| {
        let words =
            line.split_whitespace().map(|part| part.split('-').map(word).collect::<Vec<_>>().join("-"));
        words.collect::<Vec<_>>().join(" ")
    };
    let warns = |line: &&str| {
        line.split_once(": warning: ").is_some_and(|(who, _)| plugins().iter().any(|name| name == who))
    };
    text.trim_end().lines().filter(|line| !warns(line)).map(line).collect::<Vec<_>>().join("\n")
}

/// Commands of the pages run in this directory, which other hosts do not have.
#[test]
fn pages_do_not_name_the_directory_of_the_lab() {
    let lab = Lab::new();
    let dir = lab.dir().to_str().unwrap();
    let named = book().into_iter().filter(|page| fs::read_to_string(&page.path).unwrap().contains(dir));
    let faults: Vec<String> = named.map(|page| format!("{} names {dir}", page.name())).collect();
    assert_none(&faults);
}

#[test]
fn three_commands_of_the_readme_install_plugins_that_attach_a_container_on_a_bare_host() {
    needs!(NftNat, Ipv6);
    let host = Host::new();
    host.offer_archive();
    let readme = Page::read(&repository().join("README.md"));
    let mut scripts = readme.blocks.iter().filter(|block| block.kind == Kind::Script);
    let install = &scripts.find(|block| block.text.contains("sha256sum -c")).unwrap().text;
    assert_eq!(install.lines().count(), 3, "{install}");
    let session = readme.blocks.iter().find(|block| block.kind == Kind::Session).unwrap();
    let add = session.text.lines().next().unwrap().strip_prefix("$ ").unwrap();
    host.script(
        "mkdir -p bare/proc bare/run bare/var/lib
         mv ferrule-linux-* bare
         for program in sh tar gzip mkdir sha256sum; do
             program=$(command -v $program)
             cp --parents -L $program $(ldd $program | grep -o '/[^ ]*') bare
         done
         mount -t proc proc bare/proc",
    )
    .unwrap();
    // The bare host has only what the archive contains.
    host.script(&format!("cat >bare/try <<'end'\n{install}{add}\nend\nchroot bare sh -eu /try")).unwrap();
    let inside = "nsenter --net=bare/run/netns/blue ip -br address show eth0";
    host.script(&format!("{inside} | grep 10.98.0.2/24 && test -x bare/opt/cni/bin/bridge")).unwrap();
    host.script("nft list map inet ferrule hostport4 | grep '8080.*10.98.0.2 . 80'").unwrap();
}

#[test]
fn networks_on_the_pages_are_valid_and_attach_a_container() {
    needs!(NftNat, Ipv6);
    let (mut faults, mut left_out) = (Vec::new(), Vec::new());
    for page in book() {
        for (line, network) in page.networks() {
            let at = format!("{}:{line}", page.name());
            match attach(&network) {
                Ok(None) => {}
                Ok(Some(missing)) => left_out.push(format!("{at} (no {missing})")),
                Err(fault) => faults.push(format!("{at}: {fault}")),
            }
        }
    }
    assert_none(&faults);
    if !left_out.is_empty() {
        skip(&format!("networks that are only validated: {}", left_out.join(", ")));
    }
}

/// Calls ADD and DEL. If kernel or lab lack something, the network is only validated.
fn attach(network: &Value) -> Result<Option<String>, String> {
    let lab = Lab::new();
    let name = network["name"].as_str().unwrap();
    let kind = if network["plugins"].is_array() { "conflist" } else { "conf" };
    lab.configure(&format!("{name}.{kind}"), network);
    let run = |line: &str| {
        let outcome = ours(&lab).run(line);
        if outcome.succeeded() { Ok(()) } else { Err(format!("{outcome:#?}")) }
    };
    // The pages need network cards, and the file that flanneld writes.
    for card in ["eth1", "ens3", "ens5"] {
        lab.host().sh(&format!("ip link add {card} type veth peer name at-{card}; ip link set at-{card} up"));
        lab.host().sh(&format!("ip link set {card} up"));
    }
    fs::create_dir_all("/run/flannel").unwrap();
    fs::write(
        "/run/flannel/subnet.env",
        "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.7.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n",
    )
    .unwrap();
    let validated = ours(&lab).run(&format!("validate /etc/cni/net.d/{name}.{kind}"));
    // It warns of keys that no plugin knows.
    if !validated.succeeded() || validated.stdout.contains("warning") {
        return Err(format!("{validated:#?}"));
    }
    if let Some(missing) = missing(network) {
        return Ok(Some(missing));
    }
    lab.container("blue").sh("ip link set lo up");
    for command in ["add", "del"] {
        run(&format!("{command} {name} blue"))?;
    }
    Ok(None)
}

/// What the network's plugins need, and this kernel or the lab lacks.
fn missing(network: &Value) -> Option<String> {
    let outside = [("\"type\":\"dhcp\"", "DHCP server"), ("deviceID", "PCI bus")];
    let kernel = [
        ("bandwidth", Feature::TrafficControl),
        ("dummy", Feature::Dummy),
        ("ipvlan", Feature::Ipvlan),
        ("macvlan", Feature::Macvlan),
        ("tap", Feature::Tap),
        ("vlan", Feature::Vlan),
        ("vrf", Feature::Vrf),
        ("portmap", Feature::NftNat),
    ];
    let text = network.to_string();
    let uses = |plugin: &str| text.contains(&format!("\"type\":\"{plugin}\""));
    let outside = outside.into_iter().find(|(word, _)| text.contains(word));
    let kernel = kernel.into_iter().find(|(plugin, feature)| uses(plugin) && !feature.is_there());
    outside.map(|(_, what)| what.to_owned()).or_else(|| kernel.map(|(_, feature)| feature.to_string()))
}

#[test]
fn links_on_the_pages_have_targets() {
    let mut pages = book();
    pages.extend(
        ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| Page::read(&repository().join(name))),
    );
    let anchors: BTreeMap<PathBuf, _> =
        pages.iter().map(|page| (page.path.canonicalize().unwrap(), page.anchors())).collect();
    let mut faults = Vec::new();
    let mut followed = 0;
    for page in &pages {
        for link in page.links().into_iter().filter(|link| !link.contains("://")) {
            followed += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.path.clone() } else { page.path.with_file_name(file) };
            let found = target.canonicalize().ok();
            let leads = found.is_some_and(|path| {
                anchor.is_empty() || anchors.get(&path).is_some_and(|known| known.contains(anchor))
            });
            if !leads {
                faults.push(format!("{}: {link} leads nowhere", page.name()));
            }
        }
    }
    assert_none(&faults);
    assert!(followed > 100, "only {followed} links were found");
}

#[test]
fn each_page_is_in_the_contents_names_its_readers_and_links_to_the_next() {
    let contents = contents();
    let mut faults = Vec::new();
    for page in book().iter().filter(|page| page.path.starts_with(docs()) && page.name() != "README.md") {
        let Some(place) = contents.iter().position(|name| name == page.name()) else {
            faults.push(format!("{} is not in docs/README.md", page.name()));
            continue;
        };
        let first = page.lines.iter().skip(1).find(|line| !line.is_empty()).unwrap();
        if !page.lines[0].starts_with("# ") || !first.starts_with("For ") {
            faults.push(format!("{} does not say in its first sentence whom it is for", page.name()));
        }
        let next = contents.get(place + 1).map_or("README.md", String::as_str);
        let last = page.lines.iter().rfind(|line| !line.is_empty()).unwrap();
        if !last.starts_with("Next: [") || !last.ends_with(&format!("]({next})")) {
            faults.push(format!("{} does not end with the link to the next page, {next}", page.name()));
        }
    }
    assert_none(&faults);
}

#[test]
fn the_errors_page_agrees_with_cnitool_explain() {
    let lab = Lab::new();
    let page = fs::read_to_string(docs().join("errors.md")).unwrap();
    let listed = ours(&lab).says("explain");
    let (_, codes) = listed.rsplit_once('(').unwrap();
    let codes: Vec<&str> = codes.trim_end().trim_end_matches(')').split(", ").collect();
    assert!(codes.len() > 10, "{listed}");
    let row = |code: &&str| {
        let explained = ours(&lab).json(&format!("explain {code}"));
        let [meaning, advice] = ["meaning", "advice"].map(|key| explained[key].as_str().unwrap().to_owned());
        format!("| {code} | {meaning} | {advice} |")
    };
    let wrong: Vec<String> = codes.iter().map(row).filter(|row| !page.contains(row)).collect();
    assert_none(&wrong);
}

#[test]
fn messages_on_the_page_of_errors_are_those_of_the_plugins() {
    let page = Page::read(&docs().join("errors.md"));
    let section = page.lines.iter().skip_while(|line| !line.starts_with("## Messages")).skip(1);
    let rows = section.take_while(|line| !line.starts_with("## "));
    let said: Vec<_> = rows.filter_map(|row| row.split(" | ").nth(1)?.split('`').nth(1)).collect();
    assert!(said.len() > 5, "only {said:?} were found");
    let mut sources = Vec::new();
    for directory in ["shared", "plugins", "ipam", "meta"] {
        read_sources(&repository().join(directory), &mut sources);
    }
    let unknown: Vec<String> = said
        .iter()
        .filter(|words| !sources.iter().any(|source| source.contains(**words)))
        .map(|words| format!("no plugin says {words:?}"))
        .collect();
    assert_none(&unknown);
}

/// The text of each source file below a directory.
fn read_sources(directory: &Path, sources: &mut Vec<String>) {
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(fs::read_to_string(&path).unwrap());
        }
    }
}

/// The page names them as `module::function`, `Type::function` or `crate::Type::function`.
#[test]
fn functions_on_the_page_of_new_plugins_exist() {
    let page = Page::read(&docs().join("new-plugin.md"));
    let code = page.lines.iter().flat_map(|line| line.split('`').skip(1).step_by(2));
    let paths = code.filter_map(|text| text.rsplit_once("::"));
    let functions: BTreeSet<_> = paths.filter(|(_, name)| name.starts_with(char::is_lowercase)).collect();
    assert!(functions.len() > 10, "only {functions:?} were found");
    let mut sources = Vec::new();
    for directory in ["shared", "tests/seeds"] {
        read_sources(&repository().join(directory), &mut sources);
    }
    let has = |(owner, name): &(&str, &str)| {
        let owner = owner.rsplit("::").next().unwrap_or(owner);
        let of_owner =
            if owner.starts_with(char::is_uppercase) { format!("impl {owner} {{") } else { String::new() };
        let items = [format!("fn {name}("), format!("fn {name}<"), format!("mod {name};")];
        sources.iter().any(|text| text.contains(&of_owner) && items.iter().any(|item| text.contains(item)))
    };
    let unknown: Vec<String> = functions
        .into_iter()
        .filter(|function| !has(function))
        .map(|(owner, name)| format!("{owner}::{name} does not exist"))
        .collect();
    assert_none(&unknown);
}

#[test]
fn the_picture_in_the_readme_is_the_output_of_graph() {
    needs!(NftNat, Ipv6);
    let lab = Lab::new();
    let ptp = json!({"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.99.0.0/16"}});
    lab.configure("cells.conflist", &json!({"cniVersion": "1.0.0", "name": "cells", "plugins": [ptp]}));
    let web = repository().join("packaging/web.conflist");
    fs::copy(web, "/etc/cni/net.d/web.conflist").unwrap();
    for line in [
        "web blue --container-id blue -p 8080:80",
        "web green --container-id green -p 8443:443 -p 5353:53/udp",
        "cells green --container-id green -i eth1",
        "cells red --container-id red",
    ] {
        ours(&lab).says(&format!("add --create {line}"));
    }
    lab.host().wait_for_bridges();
    let drawn = ours(&lab).says("graph --format svg");
    if drawn != fs::read_to_string(docs().join("graph.svg")).unwrap() {
        let new = std::env::temp_dir().join("graph.svg");
        fs::write(&new, drawn).unwrap();
        panic!("docs/graph.svg is old: look at {}, and put it in its place", new.display());
    }
}
