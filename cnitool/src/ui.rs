//! Output for people (text, tables) and for programs (JSON).

use std::env;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};

use runtime::{Error, Failure, Result};
use serde_json::{Value, json};

use crate::cli::{Common, Form, When};

/// A colour's or weight's number (ECMA-48, SGR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Warning,
    Name,
}

/// How to print.
#[derive(Clone, Copy, Debug)]
pub struct Ui {
    form: Option<Form>,
    terminal: bool,
    color: bool,
    color_err: bool,
}

impl Ui {
    pub fn new(common: &Common) -> Self {
        let has_color = |terminal: bool| match common.color {
            When::Always => true,
            When::Never => false,
            When::Auto => terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        let terminal = stdout().is_terminal();
        Self {
            form: common.output,
            terminal,
            color: has_color(terminal),
            color_err: has_color(stderr().is_terminal()),
        }
    }

    /// Whether the user selected JSON.
    pub fn json(&self) -> bool {
        self.form == Some(Form::Json)
    }

    /// Whether to print JSON for commands whose output is JSON in the reference's cnitool: if the user selected JSON,
    /// or selected nothing and stdout is not a terminal.
    pub fn json_unless_seen(&self) -> bool {
        self.form.map_or(!self.terminal, |form| form == Form::Json)
    }

    /// Whether stdout is a terminal.
    pub fn is_seen(&self) -> bool {
        self.terminal
    }

    pub fn styled(&self, style: Style, text: &str) -> String {
        paint(self.color, style, text)
    }

    /// Prints a text with line breaks. Succeeds if the reader closes stdout early.
    ///
    /// # Errors
    /// Code 5 if writing fails.
    pub fn print(&self, text: &str) -> Result<()> {
        self.write(text)
            .or_else(|e| if e.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(unwritten(&e)) })
    }

    /// Like [`Ui::print`], but fails if the reader has closed stdout: the reader needs the text.
    ///
    /// # Errors
    /// Code 5 if writing fails.
    pub fn deliver(&self, text: &str) -> Result<()> {
        self.write(text).map_err(|e| unwritten(&e))
    }

    fn write(&self, text: &str) -> io::Result<()> {
        stdout().write_all(with_styles(text, self.color).as_bytes())?;
        stdout().flush()
    }

    /// If stdout cannot be written.
    pub fn print_json(&self, value: &Value) -> Result<()> {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        self.print(&format!("{text}\n"))
    }

    /// Prints JSON or text.
    pub fn either(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Result<()> {
        if self.json() { self.print_json(&json()) } else { self.print(&text()) }
    }

    /// Prints a warning. In JSON, as an object on one line, so that programs can tell it from the error.
    pub fn warn(&self, text: &str) {
        if self.json() {
            return self.tell(&format!("{}\n", json!({"warning": text})));
        }
        self.tell(&format!("{} {text}\n", paint(self.color_err, Style::Warning, "warning:")));
    }

    /// Prints the progress of a long operation, which the next line replaces. Only on a terminal.
    pub fn progress(&self, text: &str) {
        if stderr().is_terminal() {
            stderr().write_all(format!("\r\x1b[K{}", escaped(text)).as_bytes()).ok();
        }
    }

    /// Reports a failure. In JSON, as an object on the last line.
    pub fn fail(&self, error: &Error) {
        if self.json() {
            let failures: Vec<Value> = error.failures().map(failure).collect();
            let text = json!({"code": error.code(), "msg": error.to_string(), "failures": failures});
            return self.tell(&format!("{text}\n"));
        }
        for Failure { plugin, error } in error.failures() {
            let culprit =
                plugin.as_ref().map(|(kind, command)| format!("{kind} {command}: ")).unwrap_or_default();
            let head = paint(self.color_err, Style::Bad, &format!("error {}:", error.code()));
            self.tell(&format!("{head} {culprit}{}\n", error.msg()));
            for detail in error.details().split("; ").filter(|detail| !detail.is_empty()) {
                self.tell(&format!("  {}\n", paint(self.color_err, Style::Dim, detail)));
            }
        }
    }

    fn tell(&self, text: &str) {
        stderr().write_all(with_styles(text, self.color_err).as_bytes()).ok();
    }
}

/// A text with its control characters and those that reverse the direction of text as escapes, as in JSON. They come
/// from names and files of other programs, and would change the terminal.
pub fn escaped(text: &str) -> String {
    let changes_terminal = |c: char| match c {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => c.is_control(),
    };
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if changes_terminal(c) {
            escaped += &format!("\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Like [`escaped`], but keeps the sequences of [`paint`] if there is colour.
fn with_styles(text: &str, color: bool) -> String {
    let is_style = |rest: &str| {
        let code = rest.strip_prefix('[').and_then(|rest| rest.split_once('m'));
        color && code.is_some_and(|(code, _)| ["0", "1", "2", "32", "1;31", "33", "36"].contains(&code))
    };
    let mut parts = text.split('\x1b');
    let first = escaped(parts.next().unwrap_or_default());
    parts.fold(first, |shown, part| shown + if is_style(part) { "\x1b" } else { "\\u001b" } + &escaped(part))
}

fn unwritten(error: &io::Error) -> Error {
    cni::Error::io("write to stdout", error).into()
}

fn failure(Failure { plugin, error }: &Failure) -> Value {
    let (kind, command) = match plugin {
        Some((kind, command)) => (Some(kind.as_str()), Some(command.as_str())),
        None => (None, None),
    };
    json!({
        "plugin": kind, "command": command,
        "code": error.code(), "msg": error.msg(), "details": error.details(),
    })
}

fn paint(color: bool, style: Style, text: &str) -> String {
    let code = match style {
        Style::Plain => return text.to_owned(),
        Style::Bold => "1",
        Style::Dim => "2",
        Style::Good => "32",
        Style::Bad => "1;31",
        Style::Warning => "33",
        Style::Name => "36",
    };
    if color && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// A number of things: `1 network`, `2 networks`.
pub fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_except_for_line_breaks_tabs_and_own_styles() {
        let all = [Style::Bold, Style::Dim, Style::Good, Style::Bad, Style::Warning, Style::Name];
        let painted: String = all.iter().map(|style| paint(true, *style, "x\ty\n")).collect();
        assert_eq!(with_styles(&painted, true), painted);
        assert!(!with_styles(&painted, false).contains('\x1b'));
        let hostile = "\x1b[2J\r\x07\u{7f}\u{9b}\u{202e}\u{2066}é";
        assert_eq!(with_styles(hostile, true), r"\u001b[2J\u000d\u0007\u007f\u009b\u202e\u2066é");
    }
}
