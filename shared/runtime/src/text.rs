//! Lenient JSON parser with positions, for messages that point at a line.
//!
//! The strict parser (serde_json) decides whether a text is JSON. This one continues after mistakes, such as comments, trailing and missing
//! commas, and records them, so that one run finds all.

use std::collections::HashMap;
use std::fmt;

/// Position in a text. Both numbers count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A problem at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Position.
    pub at: Position,
    /// The problem, as a sentence without a full stop.
    pub text: String,
}

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Position of its start.
    pub at: Position,
    /// The value.
    pub value: Tree,
}

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as written.
    Number(String),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Node>),
    /// An object: keys with their positions, in the order of the text. A key may occur twice.
    Object(Vec<(Position, String, Node)>),
}

impl Tree {
    /// Kind of value, with its article.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

impl Node {
    /// A member of an object, with a case-insensitive key. An exact match takes precedence.
    pub fn get(&self, key: &str) -> Option<&Node> {
        let Tree::Object(members) = &self.value else { return None };
        let exact = members.iter().find(|(_, k, _)| k == key);
        exact
            .or_else(|| members.iter().find(|(_, k, _)| k.eq_ignore_ascii_case(key)))
            .map(|(_, _, node)| node)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Tree::String(text) = &self.value { Some(text) } else { None }
    }

    /// Elements of an array; empty for other values.
    pub fn items(&self) -> &[Node] {
        if let Tree::Array(items) = &self.value { items } else { &[] }
    }
}

/// Parses a text as far as possible: the value, if any, and all problems.
pub fn parse(text: &str) -> (Option<Node>, Vec<Problem>) {
    let mut reader =
        Reader { text, next: 0, position: Position { line: 1, column: 1 }, problems: Vec::new() };
    let root = reader.document();
    reader.problems.sort_by_key(|problem| problem.at);
    (root.ok(), reader.problems)
}

/// A line of a text, trimmed. Empty if it does not exist.
pub fn line(text: &str, number: usize) -> &str {
    text.lines().nth(number.saturating_sub(1)).unwrap_or_default().trim()
}

/// Maximum nesting depth, as in the strict parser.
const DEPTH: usize = 127;

/// Parsing cannot continue. The problem is recorded.
struct Stop;

struct Reader<'a> {
    text: &'a str,
    next: usize,
    position: Position,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<Node, Stop> {
        self.skip()?;
        if self.peek().is_none() {
            return self.stop("the document is empty, expected an object");
        }
        let root = self.value(DEPTH)?;
        self.skip()?;
        if self.peek().is_some() {
            self.note(self.position, "unexpected text after the end of the document");
        }
        Ok(root)
    }

    fn value(&mut self, depth: usize) -> Result<Node, Stop> {
        let at = self.position;
        let value = match self.peek() {
            Some('{') => self.object(depth)?,
            Some('[') => self.array(depth)?,
            Some('"') => Tree::String(self.string()?),
            Some('\'') => return self.stop("a string must be in double quotes"),
            Some(c) if c == '-' || c.is_ascii_digit() => self.number(),
            Some(c) if c.is_alphabetic() => self.word()?,
            Some(c) => return self.stop(&format!("expected a value, found {c:?}")),
            None => return self.stop("expected a value, found the end of the text"),
        };
        Ok(Node { at, value })
    }

    fn object(&mut self, depth: usize) -> Result<Tree, Stop> {
        let mut members: Vec<(Position, String, Node)> = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        self.elements('}', depth, |this| {
            let at = this.position;
            if this.peek() != Some('"') {
                return this.stop("expected a key in double quotes");
            }
            let key = this.string()?;
            match lines.get(&key) {
                Some(line) => this.note(at, &format!("the key {key:?} is already in line {line}")),
                None => drop(lines.insert(key.clone(), at.line)),
            }
            this.skip()?;
            if this.peek() != Some(':') {
                return this.stop(&format!("the key {key:?} has no value: expected a colon"));
            }
            this.bump();
            this.skip()?;
            let value = this.value(depth - 1)?;
            members.push((at, key, value));
            Ok(())
        })?;
        Ok(Tree::Object(members))
    }

    fn array(&mut self, depth: usize) -> Result<Tree, Stop> {
        let mut items = Vec::new();
        self.elements(']', depth, |this| {
            items.push(this.value(depth - 1)?);
            Ok(())
        })?;
        Ok(Tree::Array(items))
    }

    /// Parses the elements between brackets, with commas.
    fn elements(
        &mut self,
        close: char,
        depth: usize,
        mut element: impl FnMut(&mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let opened = self.position;
        if depth == 0 {
            return self.stop("nested too deeply");
        }
        self.bump();
        let mut comma = None;
        let mut first = true;
        loop {
            let end_of_last = self.position;
            self.skip()?;
            match self.peek() {
                Some(c) if c == close => {
                    if let Some(at) = comma {
                        self.note(at, &format!("a comma before the closing {close:?} is not JSON"));
                    }
                    self.bump();
                    return Ok(());
                }
                Some(',') if comma.is_none() && !first => comma = Some(self.bump()),
                Some(',') => return self.stop("expected a value, found a comma"),
                Some('}' | ']') => {
                    return self
                        .stop(&format!("expected {close:?} for the bracket opened in line {}", opened.line));
                }
                Some(_) => {
                    if comma.take().is_none() && !first {
                        self.note(end_of_last, "a comma is missing here");
                    }
                    first = false;
                    element(self)?;
                }
                None => {
                    return self.stop(&format!(
                        "the text ends, but the bracket opened in line {} is not closed",
                        opened.line
                    ));
                }
            }
        }
    }

    fn string(&mut self) -> Result<String, Stop> {
        let (start, at) = (self.next, self.position);
        self.bump();
        loop {
            match self.peek() {
                Some('"') => {
                    self.bump();
                    break;
                }
                Some('\\') => {
                    self.bump();
                    self.bump();
                }
                None | Some('\n') => {
                    self.note(at, "this string has no closing quote");
                    return Err(Stop);
                }
                Some(_) => {
                    self.bump();
                }
            }
        }
        serde_json::from_str(&self.text[start..self.next]).or_else(|_| {
            self.note(at, "this string has a character or an escape that JSON does not allow");
            Ok(self.text[start + 1..self.next - 1].to_owned())
        })
    }

    fn number(&mut self) -> Tree {
        let at = self.position;
        let text = self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        if serde_json::from_str::<f64>(&text).is_err() {
            self.note(at, &format!("{text:?} is not a JSON number"));
        }
        Tree::Number(text)
    }

    fn word(&mut self) -> Result<Tree, Stop> {
        let at = self.position;
        match self.run(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).as_str() {
            "null" => Ok(Tree::Null),
            "true" => Ok(Tree::Bool(true)),
            "false" => Ok(Tree::Bool(false)),
            other => {
                self.note(at, &format!("{other:?} is not JSON; a string must be in double quotes"));
                Ok(Tree::String(other.to_owned()))
            }
        }
    }

    /// Skips white space, and comments, which JSON does not have.
    fn skip(&mut self) -> Result<(), Stop> {
        loop {
            self.run(|c| matches!(c, ' ' | '\t' | '\n' | '\r'));
            let rest = &self.text[self.next..];
            if rest.starts_with("//") || rest.starts_with('#') {
                self.note(self.position, "JSON has no comments");
                self.run(|c| c != '\n');
            } else if rest.starts_with("/*") {
                self.note(self.position, "JSON has no comments");
                let Some(length) = rest.find("*/") else { return self.stop("this comment has no end") };
                let end = self.next + length + 2;
                while self.next < end {
                    self.bump();
                }
            } else {
                return Ok(());
            }
        }
    }

    fn run(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let start = self.next;
        while self.peek().is_some_and(&belongs) {
            self.bump();
        }
        self.text[start..self.next].to_owned()
    }

    fn peek(&self) -> Option<char> {
        self.text[self.next..].chars().next()
    }

    /// Consumes a character and returns its position.
    fn bump(&mut self) -> Position {
        let at = self.position;
        if let Some(c) = self.peek() {
            self.next += c.len_utf8();
            self.position = match c {
                '\n' => Position { line: at.line + 1, column: 1 },
                _ => Position { column: at.column + 1, ..at },
            };
        }
        at
    }

    fn note(&mut self, at: Position, text: &str) {
        self.problems.push(Problem { at, text: text.to_owned() });
    }

    fn stop<T>(&mut self, text: &str) -> Result<T, Stop> {
        self.note(self.position, text);
        Err(Stop)
    }
}

#[cfg(test)]
mod tests;
