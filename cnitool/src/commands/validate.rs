//! `validate`: lists all mistakes in a configuration file in one run.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cni::Code;
use cni::json::{MAX_BYTES, MAX_VALUES, have_few_values};
use runtime::text::{self, Position};
use runtime::{ConfDir, Network, Result};
use serde_json::{Value, json};
use validate::{Finding, Level, Ranges, Report};

use crate::network_dirs;
use crate::settings::Settings;
use crate::ui::{Style, Ui, escaped, plural};

/// Reports all findings. If there are errors among them, the exit code is 3.
pub fn run(files: &[PathBuf], settings: &Settings, ui: &Ui) -> Result<ExitCode> {
    let others = on_this_host(settings);
    let files = expanded(files, settings)?;
    let judged: Vec<_> =
        files.iter().flat_map(|file| Judged::with_directory(file, &files, &others, settings)).collect();
    if ui.json() {
        // For one file, the JSON output is an object, as in earlier versions.
        let list: Vec<Value> = judged.iter().map(Judged::json).collect();
        ui.print_json(&if let [only] = &list[..] { only.clone() } else { list.into() })?;
    } else {
        judged.iter().try_for_each(|one| ui.print(&one.text(ui)))?;
    }
    Ok(if judged.iter().all(|one| one.errors() == 0) { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// The files in directories, and all other paths as given.
fn expanded(files: &[PathBuf], settings: &Settings) -> Result<Vec<PathBuf>> {
    let all = [settings.conf.path().to_owned()];
    let mut found = Vec::new();
    for file in if files.is_empty() { &all[..] } else { files } {
        if file.is_dir() {
            found.extend(ConfDir::new(file).load()?.into_iter().map(|file| file.file));
        } else if let Some(known) = file_of_network(file, settings) {
            let text = format!("validate needs files: there is no file {}", file.display());
            let help = format!("network {} is in {}", file.display(), known.display());
            return Err(cni::Error::new(Code::InvalidEnvironment, text).detail(help).into());
        } else {
            found.push(file.clone());
        }
    }
    if found.is_empty() {
        let dir = if files.is_empty() { &all[0] } else { &files[0] };
        return Err(cni::Error::config(format!("no network configuration in {}", dir.display())).into());
    }
    Ok(found)
}

/// The file of a network whose name was given instead of its file.
fn file_of_network(given: &Path, settings: &Settings) -> Option<PathBuf> {
    let name = given.to_str().filter(|_| !given.exists())?;
    settings.conf.find(name).ok()?.file
}

/// The networks in the directories of cnitool and of all runtimes.
pub fn on_this_host(settings: &Settings) -> Vec<Ranges> {
    let mut dirs = vec![settings.conf.clone()];
    dirs.extend(network_dirs::all().0.into_iter().filter(|dir| !dir.is(&settings.conf)).map(|dir| dir.conf));
    let files = dirs.iter().filter_map(|dir| dir.load().ok()).flatten();
    files.filter_map(|file| Some(Ranges::of(file.network.as_ref().ok()?, &real(&file.file)))).collect()
}

fn real(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}

/// A file and its findings.
pub struct Judged {
    pub file: PathBuf,
    source: String,
    pub findings: Vec<Finding>,
}

impl Judged {
    /// A network's file, and the files with plugins in the directory with the network's name.
    pub fn with_directory(
        file: &Path,
        files: &[PathBuf],
        others: &[Ranges],
        settings: &Settings,
    ) -> Vec<Self> {
        let own = Self::network(file, files, others, settings);
        // The streams have no directory.
        if is_stream(file) {
            return vec![own];
        }
        let mut all = vec![own];
        let Ok(mut network) = Network::from_bytes(all[0].source.as_bytes()) else { return all };
        let plugins = network.plugin_files(file).unwrap_or_default();
        all.extend(plugins.into_iter().map(|plugin| Self::plugin(plugin, &mut network, settings)));
        // The directory may be unreadable, or the network have no plugin.
        if all.iter().all(|one| one.errors() == 0)
            && let Err(e) = Network::from_file(file)
        {
            all[0].findings.insert(0, finding(&e));
        }
        all
    }

    /// A file with a plugin of a network's directory, which is appended to the network.
    fn plugin(file: PathBuf, network: &mut Network, settings: &Settings) -> Self {
        let source = match read(&file) {
            Ok(source) => String::from_utf8_lossy(&source).into_owned(),
            Err(e) => return Self::unread(file, &e),
        };
        let (root, problems) = text::parse(&source);
        let pushed = network.push_plugin(source.as_bytes());
        let mut report = Report::new(&settings.path, false, pushed.is_ok().then_some(network));
        report.directory_plugin(root.as_ref(), problems, &pushed);
        let findings = report.finish();
        Self { file, source, findings }
    }

    /// A file that cannot be read is a finding, so that the other files are still read.
    fn unread(file: PathBuf, e: &io::Error) -> Self {
        let why = cni::Error::io("the file cannot be read", e);
        let is_no_file = file.metadata().is_ok_and(|meta| !meta.is_file());
        let help = is_no_file.then(|| "it is not a regular file: move it out of the directory".to_owned());
        Self { file, source: String::new(), findings: vec![Finding { help, ..finding(why.msg()) }] }
    }

    fn network(file: &Path, files: &[PathBuf], others: &[Ranges], settings: &Settings) -> Self {
        let source = match read(file) {
            Ok(source) => String::from_utf8_lossy(&source).into_owned(),
            Err(e) => return Self::unread(file.to_owned(), &e),
        };
        let (root, problems) = text::parse(&source);
        let network = Network::from_bytes(source.as_bytes());
        let mut report = Report::new(&settings.path, is_list(file), network.as_ref().ok());
        report.document(root.as_ref(), problems, &network);
        if let (Some(root), Ok(network)) = (&root, &network) {
            // The report already has the error of a .conflist without plugins.
            if let Some(plugins) = root.get("plugins")
                && let Err(e) = network.check_file_name(file)
            {
                report.error(plugins.at, e.msg()).help = Some(e.details().to_owned());
            }
            // Plugins may also be in the directory NAME/ next to the file.
            if network.plugins.is_empty() && Network::from_file(file).is_err() {
                report.error(root.at, "plugins is missing: the network has no plugins").help =
                    Some(r#"set "plugins": [{"type": "bridge", ...}]"#.to_owned());
            }
            let own = Ranges::of(network, &real(file));
            let overlaps = |other: &Ranges| {
                other.file.parent() == own.file.parent() || files.iter().any(|file| real(file) == other.file)
            };
            let given = files
                .iter()
                .filter(|other| *other != file && !others.iter().any(|known| known.file == real(other)));
            let given =
                given.filter_map(|file| Some(Ranges::of(&Network::from_file(file).ok()?, &real(file))));
            let given: Vec<Ranges> = given.collect();
            report.among(root, &own, others, overlaps);
            report.among(root, &own, &given, overlaps);
        }
        let findings = report.finish();
        Self { file: file.to_owned(), source, findings }
    }

    fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.level == Level::Error).count()
    }

    fn json(&self) -> Value {
        let list: Vec<Value> = self.findings.iter().map(Finding::json).collect();
        json!({"file": self.file.to_string_lossy(), "valid": self.errors() == 0, "findings": list})
    }

    fn text(&self, ui: &Ui) -> String {
        let Self { file, source, findings } = self;
        let shown: String = findings.iter().map(|finding| shown(finding, file, source, ui)).collect();
        shown + &verdict(file, self.errors(), findings.len() - self.errors(), ui)
    }
}

/// An error of a whole file.
fn finding(text: impl ToString) -> Finding {
    let at = Position { line: 1, column: 1 };
    Finding { at, level: Level::Error, text: text.to_string(), help: None }
}

/// Whether a file is stdin (`-`) or a process substitution of a shell: bash names it in /dev/fd, zsh in /proc/self/fd.
fn is_stream(file: &Path) -> bool {
    file == Path::new("-") || file.starts_with("/dev") || file.starts_with("/proc/self/fd")
}

/// Reads a file as [`Network::from_file`] does, or a stream.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let bytes = match file {
        _ if file == Path::new("-") => read_stream(io::stdin())?,
        _ if is_stream(file) => read_stream(File::open(file)?)?,
        _ => system::file::read(file, MAX_BYTES)?,
    };
    if have_few_values(&[&bytes]) {
        Ok(bytes)
    } else {
        Err(io::Error::other(format!("it has more than {MAX_VALUES} values")))
    }
}

fn read_stream(stream: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// A `.conf` of the directory NAME/ is a plugin's configuration. The file itself does not show whether it is a
/// network.
fn is_list(file: &Path) -> bool {
    file.extension().is_none_or(|extension| extension == "conflist")
}

/// Prints a finding as compilers do: the location, the problem, and the line with a mark below.
fn shown(finding: &Finding, file: &Path, source: &str, ui: &Ui) -> String {
    let Finding { at, level, text, help } = finding;
    let style = if *level == Level::Error { Style::Bad } else { Style::Warning };
    let location = format!("{}:{}:{}:", file.display(), at.line, at.column);
    let mut shown =
        format!("{} {} {text}\n", ui.styled(Style::Bold, &location), ui.styled(style, level.name()));
    // A file that is empty or cannot be read.
    if source.is_empty() {
        return shown;
    }
    let line = source.lines().nth(at.line - 1).unwrap_or_default();
    let before: String = line.chars().take(at.column - 1).collect();
    let before: String = escaped(&before).chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
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
    let file = file.display();
    match (errors, warnings) {
        (0, 0) => format!("{} {file} is valid\n", ui.styled(Style::Good, "✓")),
        (0, _) => {
            format!("{} {file} is valid, with {}\n", ui.styled(Style::Good, "✓"), plural(warnings, "warning"))
        }
        _ => {
            let verdict =
                format!("{file} is not valid: {}, {}", plural(errors, "error"), plural(warnings, "warning"));
            format!("{} {verdict}\n", ui.styled(Style::Bad, "✗"))
        }
    }
}
