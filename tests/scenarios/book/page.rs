//! A page: its code blocks, its links, and the anchors that links can lead to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// README.md, or a page below docs/.
pub struct Page {
    pub path: PathBuf,
    pub lines: Vec<String>,
    pub blocks: Vec<Block>,
}

/// A code block. A comment that begins with `sh` is a block that readers do not see.
pub struct Block {
    /// The line before its first line, counted from 1.
    pub line: usize,
    pub kind: Kind,
    pub text: String,
}

#[derive(Debug, PartialEq)]
pub enum Kind {
    /// Commands that the test runs.
    Script,
    /// Commands after `$ ` that the test runs, with their output.
    Session,
    Json,
    /// Commands that the test skips.
    Example,
    /// A picture, a file, or code of another language.
    Other,
}

impl Page {
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()));
        let mut this = Self { path: path.to_owned(), lines: Vec::new(), blocks: Vec::new() };
        let mut open: Option<(&str, Block)> = None;
        for (number, line) in (1..).zip(text.lines()) {
            match &mut open {
                Some((end, block)) if line.trim() != *end => block.text += &format!("{line}\n"),
                Some(_) => this.blocks.extend(open.take().map(|(_, block)| block)),
                None => {
                    open = opened(line)
                        .map(|(kind, end)| (end, Block { line: number, kind, text: String::new() }));
                    let prose = if open.is_some() { "" } else { line };
                    this.lines.push(prose.to_owned());
                }
            }
        }
        assert!(open.is_none(), "{}: a block has no end", path.display());
        this
    }

    pub fn name(&self) -> &str {
        self.path.file_name().unwrap().to_str().unwrap()
    }

    /// The networks that the page shows, each with the line of its block.
    pub fn networks(&self) -> Vec<(usize, Value)> {
        let blocks = self.blocks.iter().filter(|block| block.kind == Kind::Json);
        blocks.filter_map(|block| Some((block.line, block.network()?))).collect()
    }

    /// The targets of all links.
    pub fn links(&self) -> Vec<&str> {
        let lines = self.lines.iter().flat_map(|line| {
            let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            let reference = line.strip_prefix('[').and_then(|rest| Some(rest.split_once("]: ")?.1));
            inline.chain(reference)
        });
        lines.collect()
    }

    /// The fragments (after `#`) that a link to the page can have: headings, as GitHub names them, and anchors.
    pub fn anchors(&self) -> BTreeSet<String> {
        let mut anchors = BTreeSet::new();
        for line in &self.lines {
            let named = line.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
            anchors.extend(named.map(str::to_owned));
            let Some(heading) = line.strip_prefix('#') else { continue };
            let slug = slug(heading.trim_start_matches('#'));
            let again = (1..).map(|count| format!("{slug}-{count}"));
            let free = [slug.clone()].into_iter().chain(again).find(|slug| !anchors.contains(slug));
            anchors.extend(free);
        }
        anchors
    }
}

impl Block {
    /// The network's configuration, if the block has one: JSON with a name, and with plugins or a type.
    pub fn network(&self) -> Option<Value> {
        let value: Value = serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text));
        let is_network =
            value["name"].is_string() && (value["plugins"].is_array() || value["type"].is_string());
        is_network.then_some(value)
    }
}

/// If a line begins a block: its kind, and the line that ends it.
fn opened(line: &str) -> Option<(Kind, &'static str)> {
    if let Some(comment) = line.strip_prefix("<!-- ") {
        return (comment == "sh").then_some((Kind::Script, "-->"));
    }
    let kind = match line.trim_start().strip_prefix("```")? {
        "sh example" | "console example" => Kind::Example,
        "sh" => Kind::Script,
        "console" => Kind::Session,
        "json" => Kind::Json,
        _ => Kind::Other,
    };
    Some((kind, "```"))
}

fn slug(heading: &str) -> String {
    // Only the text of a link counts.
    let mut text = String::new();
    let mut rest = heading.trim();
    while let Some((before, link)) = rest.split_once("](") {
        text += &before.replacen('[', "", 1);
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    text += rest;
    let kept = text.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}
