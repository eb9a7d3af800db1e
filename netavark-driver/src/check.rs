//! Checks a network with the checks of `cnitool validate`, before Podman stores the network.

use std::path::PathBuf;

use cni::{Error, Result};
use runtime::text::{self, Node, Position, Tree};
use validate::{Finding, Level, Report};

use crate::chain::origin_of;
use crate::document::Words;
use crate::source::Source;

/// Refuses a network that its plugins would refuse. Returns the warnings.
///
/// # Errors
/// Code 7 with each mistake, its position and its remedy.
pub fn check(source: &Source, options: &Words, plugin_path: &[PathBuf]) -> Result<Vec<String>> {
    let (root, problems) = text::parse(&source.text);
    // A file without the extension `.conflist` may be a single plugin's configuration.
    let is_list =
        source.file.as_ref().is_none_or(|file| file.extension().is_some_and(|ext| ext == "conflist"));
    let mut report = Report::new(plugin_path, is_list, source.chain.as_ref().ok());
    report.document(root.as_ref(), problems, &source.chain);
    let (errors, warnings): (Vec<_>, Vec<_>) =
        report.finish().into_iter().partition(|finding| finding.level == Level::Error);
    let in_words = |findings: Vec<Finding>| -> Vec<String> {
        findings.iter().map(|finding| words(finding, source, options, root.as_ref())).collect()
    };
    let errors = in_words(errors);
    if !errors.is_empty() {
        return Err(Error::config(errors.join("; ")));
    }
    if let Err(error) = &source.chain {
        return Err(crate::source::flat(error));
    }
    Ok(in_words(warnings))
}

fn words(finding: &Finding, source: &Source, options: &Words, root: Option<&Node>) -> String {
    let place = match &source.file {
        Some(file) => format!("{}:{}:{}", file.display(), finding.at.line, finding.at.column),
        None => origin(finding.at, source, options, root),
    };
    let help = remedy(finding, source).map(|help| format!(" ({help})")).unwrap_or_default();
    // The option's name ends with the key's name.
    let key = place.rsplit([' ', '.']).next().unwrap_or_default();
    let text = finding.text.strip_prefix(&format!("{key}: ")).unwrap_or(&finding.text);
    format!("{place}: {text}{help}")
}

/// The remedy in the terms of Podman's options.
fn remedy(finding: &Finding, source: &Source) -> Option<String> {
    let help = finding.help.as_deref()?;
    Some(match finding.text.strip_suffix(" is missing").filter(|_| source.file.is_none()) {
        _ if help.ends_with("CNI_PATH") => {
            "run `ferrule-install`, or name the directory by --opt plugin-path=DIR".to_owned()
        }
        Some(key) => format!("add --opt {key}=VALUE; {help}"),
        None => help.to_owned(),
    })
}

/// The option or the flag from which a position of the written chain comes.
fn origin(at: Position, source: &Source, options: &Words, root: Option<&Node>) -> String {
    let path = root.and_then(|root| path_to(root, at)).unwrap_or_default();
    let list = serde_json::from_str(&source.text).unwrap_or_default();
    origin_of(&path, &list, options).unwrap_or_else(|| "the options".to_owned())
}

/// The keys and indices from a node to the node at a position, or to the node whose key is at that position.
fn path_to(node: &Node, at: Position) -> Option<Vec<String>> {
    if node.at == at {
        return Some(Vec::new());
    }
    let below = |step: String, node: &Node| {
        let path = path_to(node, at)?;
        Some([vec![step], path].concat())
    };
    match &node.value {
        Tree::Object(members) => members.iter().find_map(|(key_at, key, value)| {
            if *key_at == at { Some(vec![key.clone()]) } else { below(key.clone(), value) }
        }),
        Tree::Array(items) => items.iter().enumerate().find_map(|(n, item)| below(n.to_string(), item)),
        _ => None,
    }
}
