//! `explain`: error codes, plugins, and keys.

use cni::Code;
use runtime::Result;
use serde_json::{Value, json};
use validate::schema::{self, Key, LIST, PLUGIN, Plugin};

use crate::codes::{self, Explained};
use crate::settings::Settings;
use crate::table::Table;
use crate::ui::{Style, Ui};

/// Explains a code, a plugin, or a plugin's key. Without a name, lists the names.
pub fn run(topic: Option<&str>, settings: &Settings, ui: &Ui) -> Result<()> {
    let Some(topic) = topic else {
        return ui.either(|| schema::plugins().map(|plugin| plugin.name).collect(), || overview(ui));
    };
    if let Ok(number) = topic.parse::<u32>() {
        let code = codes::explain(number);
        return ui.either(|| code.json(), || code_text(&code, ui));
    }
    let (name, path) = topic.split_once('.').map_or((topic, None), |(name, path)| (name, Some(path)));
    let subject = subject(name)?;
    match path {
        None => ui.either(|| subject.json(), || subject.text(settings, ui)),
        Some(path) => {
            let key = subject.key(path)?;
            ui.either(|| key_json(key), || key_text(topic, key, ui))
        }
    }
}

/// Explains a plugin, or the keys that all networks have.
enum Subject {
    Network,
    Plugin(&'static Plugin),
}

fn subject(name: &str) -> Result<Subject> {
    if name == "network" {
        return Ok(Subject::Network);
    }
    schema::plugin(name).map(Subject::Plugin).ok_or_else(|| {
        let text = format!("{name:?} is neither a plugin of Ferrule nor an error code");
        let error = cni::Error::new(Code::InvalidEnvironment, text);
        let near = schema::nearest(name, schema::plugins().map(|plugin| plugin.name));
        error.detail(advice(near, "`cnitool explain` lists the plugins and the error codes")).into()
    })
}

/// The similar name, or else where all names are.
fn advice(near: Option<&str>, list: &str) -> String {
    near.map_or_else(|| list.to_owned(), |near| format!("did you mean {near:?}?"))
}

impl Subject {
    fn name(&self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Plugin(plugin) => plugin.name,
        }
    }

    fn keys(&self) -> Vec<&'static Key> {
        match self {
            Self::Network => LIST.iter().collect(),
            Self::Plugin(plugin) => plugin.keys.iter().collect(),
        }
    }

    /// Finds a key by its path, such as `ranges.subnet`. Indices may be omitted.
    fn key(&self, path: &str) -> Result<&'static Key> {
        let mut keys: Vec<&'static Key> = self.keys();
        keys.extend(
            PLUGIN.iter().filter(|key| !keys.iter().any(|own| own.name == key.name)).collect::<Vec<_>>(),
        );
        let mut found: Option<&'static Key> = None;
        // The keys of an IPAM plugin are in `ipam`.
        let path = path.strip_prefix("ipam.").unwrap_or(path);
        for step in path.split('.') {
            let step = step.split('[').next().unwrap_or_default();
            let key = keys.iter().find(|key| key.name.eq_ignore_ascii_case(step)).copied();
            let key = key.ok_or_else(|| {
                let near = schema::nearest(step, keys.iter().map(|key| key.name));
                let name = self.name();
                cni::Error::new(Code::InvalidEnvironment, format!("{name} has no key {step:?}"))
                    .detail(advice(near, &format!("`cnitool explain {name}` lists the keys")))
            })?;
            keys = key.takes.keys().iter().collect();
            found = Some(key);
        }
        Ok(found.ok_or_else(|| cni::Error::config(format!("no key of {} is named", self.name())))?)
    }

    fn json(&self) -> Value {
        let keys: Vec<Value> = self.keys().into_iter().map(key_json).collect();
        match self {
            Self::Network => json!({"keys": keys}),
            Self::Plugin(plugin) => json!({
                "plugin": plugin.name, "role": plugin.role_name(), "about": plugin.about,
                "keys": keys, "capabilities": plugin.capabilities,
                "args": plugin.args.iter().map(key_json).collect::<Vec<_>>(),
            }),
        }
    }

    fn text(&self, settings: &Settings, ui: &Ui) -> String {
        let mut text = match self {
            Self::Network => format!(
                "{}: a file of {}\n",
                ui.styled(Style::Name, "network"),
                settings.conf.path().display()
            ),
            Self::Plugin(plugin) => {
                format!("{}, {}\n{}\n", ui.styled(Style::Name, plugin.name), plugin.role_name(), plugin.about)
            }
        };
        let keys = self.keys();
        if !keys.is_empty() {
            text += &format!("\n{}", key_table(&keys).render(ui, ""));
        }
        if let Self::Plugin(plugin) = self {
            text += &line("Capability arguments", plugin.capabilities.iter().copied());
            text += &line("Keys of args.cni", plugin.args.iter().map(|key| key.name));
        }
        text
    }
}

/// A list on a line. None if the list is empty.
fn line(title: &str, names: impl Iterator<Item = &'static str>) -> String {
    match names.collect::<Vec<_>>()[..] {
        [] => String::new(),
        ref names => format!("\n{title}: {}\n", names.join(", ")),
    }
}

fn overview(ui: &Ui) -> String {
    let mut table = Table::new(["PLUGIN", "WHAT IT IS", "WHAT IT DOES"]);
    for plugin in schema::plugins() {
        table.row([
            (plugin.name.to_owned(), Style::Name),
            (plugin.role_name().to_owned(), Style::Dim),
            (plugin.about.to_owned(), Style::Plain),
        ]);
    }
    let codes: Vec<String> = codes::ALL.iter().map(|known| known.code.to_string()).collect();
    let more =
        format!("\nMore: a plugin, PLUGIN.KEY, network.KEY, or an error code ({})\n", codes.join(", "));
    table.render(ui, "") + &more
}

fn key_table(keys: &[&Key]) -> Table {
    let mut table = Table::new(["KEY", "DEFAULT", "WHAT IT DOES"]);
    for key in keys {
        let default =
            if key.is_required() { ("required", Style::Warning) } else { (key.default, Style::Dim) };
        let (name, about) = (key.name.to_owned(), first_sentence(key.about));
        table.row([(name, Style::Name), (default.0.to_owned(), default.1), (about, Style::Plain)]);
    }
    table
}

/// The part of a description that fits into a line. If the user names a key, its description is printed in full.
fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or(text.to_owned(), |(first, _)| format!("{first}."))
}

fn key_json(key: &Key) -> Value {
    let inner: Vec<Value> = key.takes.keys().iter().map(key_json).collect();
    json!({
        "key": key.name, "takes": key.takes.describe(), "required": key.is_required(),
        "default": Some(key.default).filter(|default| !default.is_empty()), "about": key.about, "keys": inner,
    })
}

fn key_text(topic: &str, key: &Key, ui: &Ui) -> String {
    let default = if key.is_required() { "none: it is required" } else { key.default };
    let mut text = format!("{}\n{}\n\n", ui.styled(Style::Name, topic), key.about);
    text += &format!("  accepts  {}\n  default  {default}\n", key.takes.describe());
    let inner: Vec<&Key> = key.takes.keys().iter().collect();
    if !inner.is_empty() {
        text += &format!("\n{}", key_table(&inner).render(ui, ""));
    }
    text
}

fn code_text(code: &Explained, ui: &Ui) -> String {
    let title = ui.styled(Style::Bold, &format!("Code {}: {}", code.code, code.meaning));
    format!("{title}\n{}\n", code.advice)
}
