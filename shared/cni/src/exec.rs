//! Finding plugins, and understanding their output. For delegation, and for runtimes.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use system::child::{IoStop, Limits, Stopped};

use crate::{Code, Command, Error, PluginType, Result, json};

/// Limits of a delegated plugin. Without a timeout: the runtime has its own, and stops this plugin.
pub(crate) const LIMITS: Limits = Limits { bytes: json::MAX_BYTES, ..Limits::NONE };

/// Finds the first executable of that name in the directories of `CNI_PATH`.
///
/// # Errors
/// Code 7, naming the directories.
pub fn find(kind: &PluginType, path: &[PathBuf]) -> Result<PathBuf> {
    let mut unusable = None;
    for file in path.iter().map(|dir| dir.join(kind.as_str())) {
        match why_unusable(&file) {
            Ok(()) => return Ok(file),
            Err(why) => unusable = unusable.or(why.map(|why| format!("{}: {why}", file.display()))),
        }
    }
    let dirs: Vec<_> = path.iter().map(|dir| dir.display().to_string()).collect();
    let install = || "install it in one of the directories of CNI_PATH".to_owned();
    Err(Error::config(format!("no plugin {:?} in {}", kind.as_str(), dirs.join(":")))
        .detail(unusable.unwrap_or_else(install)))
}

/// Why a file cannot be executed. `None` if it does not exist.
fn why_unusable(file: &Path) -> std::result::Result<(), Option<String>> {
    match fs::metadata(file) {
        Ok(found) if !found.is_file() => Err(Some("not a file".to_owned())),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            Err(Some("not executable (chmod +x)".to_owned()))
        }
        Ok(_) => Ok(()),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Err(None),
        Err(e) => Err(Some(e.to_string())),
    }
}

/// The error of a failed plugin: its error object, or a description without one.
pub fn failure(command: Command, status: ExitStatus, out: &[u8]) -> Error {
    let error = error_object(out).unwrap_or_else(|| {
        let end = match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "failed".to_owned(),
        };
        Error::new(Code::Decoding, format!("{command} {end} and printed no error object"))
            .detail(excerpt(out))
    });
    let is_marked = json::parse(out, "its error object").is_ok_and(|object| object.get(MARK).is_some());
    if status.code().is_some() && !is_marked { error.unmarked() } else { error }
}

/// The key that error objects of Ferrule's plugins have if the request is not in the specification.
const MARK: &str = "ferrule";

/// Whether this is the error of a plugin of another vendor that refused a request which is not in the specification: it exited, and its
/// error, if any, has no [`MARK`]. The code says nothing: with the package skel of CNI before 0.8, it is 100.
pub fn refused_request(error: &Error) -> bool {
    error.is_unmarked()
}

/// The error of a plugin that reached a limit.
pub fn unfinished(stopped: &Stopped, command: Command, limits: Limits) -> Error {
    let error = match &stopped.why {
        IoStop::Late => {
            let limit = limits.time.unwrap_or_default();
            Error::new(Code::Internal, format!("{command} did not finish within {limit:?} and was killed"))
        }
        IoStop::Endless => {
            Error::new(Code::Decoding, format!("{command} printed more than {} bytes", limits.bytes))
        }
        IoStop::System(operation, e) => Error::io(operation, e),
    };
    error.detail(stopped.remains.as_deref().unwrap_or_default())
}

/// Parses an error object (SPEC.md, section 5, "Error").
pub fn error_object(out: &[u8]) -> Option<Error> {
    json::decode(&json::parse(out, "its error object").ok()?).ok()
}

/// Shortens a plugin's output for an error's details.
pub fn excerpt(out: &[u8]) -> String {
    const LENGTH: usize = 200;
    match out.trim_ascii() {
        [] => "it printed nothing on stdout".to_owned(),
        text => format!("it printed {:?}", String::from_utf8_lossy(&text[..text.len().min(LENGTH)])),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn the_first_executable_file_in_the_search_path_is_used() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let path: Vec<PathBuf> = dirs.iter().map(|dir| dir.path().to_owned()).collect();
        let kind = PluginType::parse("bridge").unwrap();
        fs::create_dir(path[0].join("bridge")).unwrap();
        for dir in &path[1..] {
            fs::write(dir.join("bridge"), "").unwrap();
        }
        let error = find(&kind, &path).unwrap_err();
        assert!(error.code() == 7 && error.msg().contains(path[2].to_str().unwrap()), "{error}");
        assert_eq!(error.details(), format!("{}/bridge: not a file", path[0].display()));
        let error = find(&kind, &path[1..]).unwrap_err();
        assert_eq!(error.details(), format!("{}/bridge: not executable (chmod +x)", path[1].display()));
        let error = find(&PluginType::parse("tap").unwrap(), &path).unwrap_err();
        assert!(error.details().contains("CNI_PATH"), "{error}");
        std::os::unix::fs::symlink("loop", path[1].join("loop")).unwrap();
        let error = find(&PluginType::parse("loop").unwrap(), &path).unwrap_err();
        assert!(error.details().contains("symbolic links"), "{error}");
        fs::set_permissions(path[2].join("bridge"), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(&kind, &path).unwrap(), path[2].join("bridge"));
    }

    #[test]
    fn a_failure_without_an_error_object_reports_how_the_plugin_ended() {
        let killed = failure(Command::Add, ExitStatus::from_raw(9), b"");
        assert!(killed.msg().contains("ADD was killed by signal 9"), "{killed}");
        let said = failure(Command::Del, ExitStatus::from_raw(1 << 8), b"panic: oh");
        assert!(said.msg().contains("exit code 1") && said.details().contains("panic: oh"), "{said}");
        let own = failure(Command::Del, ExitStatus::from_raw(1 << 8), br#"{"code": 11, "msg": "later"}"#);
        assert_eq!((own.code(), own.msg()), (11, "later"));
    }

    #[test]
    fn an_error_without_ferrules_mark_is_a_refusal_whatever_its_code_is() {
        let exited = ExitStatus::from_raw(1 << 8);
        for code in [0, 4, 7, 100, 999] {
            let out = format!(r#"{{"code": {code}, "msg": "required env variables missing"}}"#);
            assert!(refused_request(&failure(Command::Collect, exited, out.as_bytes())), "{code}");
        }
        assert!(refused_request(&failure(Command::Collect, exited, b"usage: plugin")));
        let own = Error::new(Code::InvalidEnvironment, "CNI_PATH is missing").to_marked_json();
        let own = failure(Command::Collect, exited, own.as_bytes());
        assert!(!refused_request(&own) && own.code() == 4, "{own:?}");
        assert!(!refused_request(&failure(Command::Collect, ExitStatus::from_raw(9), b"")));
    }
}
