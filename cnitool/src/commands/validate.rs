//! `validate`: everything that is wrong with a file, at once.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use cni::json::{MAX_BYTES, MAX_VALUES, has_few_values};
use runtime::Result;
use runtime::text::{self, Problem};
use serde_json::{Value, json};

use crate::checks::{Finding, Level, Report};
use crate::settings::Settings;
use crate::ui::{Style, Ui};

/// Reports all findings; errors among them are exit code 3.
pub fn run(file: &Path, settings: &Settings, ui: &Ui) -> Result<ExitCode> {
    let source = read(file).map_err(|e| {
        cni::Error::io(format!("read {}", file.display()), &e).with_code(cni::Code::InvalidConfig)
    })?;
    let source = String::from_utf8_lossy(&source);
    let (root, problems) = text::parse(&source);
    let mut report = Report::new(&settings.path, is_list(file));
    for Problem { at, text } in problems {
        report.error(at, text);
    }
    if let Some(root) = &root {
        report.check(root);
    }
    let findings = report.finish();
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    if ui.json() {
        let list: Vec<Value> = findings.iter().map(Finding::json).collect();
        ui.print_json(&json!({"file": file, "valid": errors == 0, "findings": list}))?;
    } else {
        findings.iter().try_for_each(|finding| ui.print(&shown(finding, file, &source, ui)))?;
        ui.print(&verdict(file, errors, findings.len() - errors, ui))?;
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let source: Box<dyn Read> =
        if file == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(file)?) };
    let mut bytes = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
    }
    if !has_few_values(&bytes) {
        return Err(io::Error::other(format!("it has more than {MAX_VALUES} values")));
    }
    Ok(bytes)
}

/// A `.conf` of the directory NAME/ is a plugin's; whether it stands alone is not seen from the file.
fn is_list(file: &Path) -> bool {
    file.extension().is_none_or(|extension| extension == "conflist")
}

/// As compilers do: the place, what is wrong, and the line with a mark below.
fn shown(finding: &Finding, file: &Path, source: &str, ui: &Ui) -> String {
    let Finding { at, level, text, help } = finding;
    let style = if *level == Level::Error { Style::Bad } else { Style::Warning };
    let place = format!("{}:{}:{}:", file.display(), at.line, at.column);
    let mut shown = format!("{} {} {text}\n", ui.styled(Style::Bold, &place), ui.styled(style, level.name()));
    let line = source.lines().nth(at.line - 1).unwrap_or_default();
    let before: String =
        line.chars().take(at.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let number = at.line.to_string();
    let margin = " ".repeat(number.len());
    shown += &format!(" {} {line}\n", ui.styled(Style::Dim, &format!("{number} |")));
    shown += &format!(" {margin} {} {before}{}\n", ui.styled(Style::Dim, "|"), ui.styled(style, "^"));
    if let Some(help) = help {
        shown += &format!(" {margin} {} {help}\n", ui.styled(Style::Dim, "="));
    }
    shown
}

fn verdict(file: &Path, errors: usize, warnings: usize, ui: &Ui) -> String {
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let file = file.display();
    match (errors, warnings) {
        (0, 0) => format!("{} {file} is valid\n", ui.styled(Style::Good, "✓")),
        (0, _) => {
            format!("{} {file} is valid, with {}\n", ui.styled(Style::Good, "✓"), count(warnings, "warning"))
        }
        _ => {
            let verdict =
                format!("{file} is not valid: {}, {}", count(errors, "error"), count(warnings, "warning"));
            format!("{} {verdict}\n", ui.styled(Style::Bad, "✗"))
        }
    }
}
