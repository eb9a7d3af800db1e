//! The daemon's command line. It has the flags of the reference's daemon, with one dash or two, and durations in Go's
//! syntax.

use std::ffi::OsString;
use std::iter;
use std::path::PathBuf;
use std::time::Duration;

use dhcp_client::Timing;

/// Default path of the daemon's socket.
pub const SOCKET: &str = "/run/cni/dhcp.sock";

/// The daemon's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// `-socketpath`. Ignored if systemd passed a socket.
    pub socket: PathBuf,
    /// `-hostprefix`: where the host's root directory is mounted, if the daemon runs in a container. Otherwise empty.
    pub host_prefix: PathBuf,
    /// `-pidfile`: the file for the daemon's process id. None: no file.
    pub pid_file: Option<PathBuf>,
    /// `-timeout`: how long the daemon waits for an answer to a message.
    pub timeout: Duration,
    /// `-resendmax`: the longest interval between two packets.
    pub resend_max: Duration,
    /// `-resendtimeout`: timeout of an ADD.
    pub resend_timeout: Duration,
    /// `-broadcast`: ask all servers to answer by broadcast.
    pub broadcast: bool,
    /// `-adopt`: request the addresses of attachments in libcni's cache that have no lease here.
    pub adopt: bool,
    /// Lines for the log about arguments that are ignored.
    pub warnings: Vec<String>,
}

impl Default for Args {
    fn default() -> Self {
        let Timing { timeout, resend_max, resend_timeout } = Timing::default();
        Self {
            socket: SOCKET.into(),
            host_prefix: PathBuf::new(),
            pid_file: None,
            timeout,
            resend_max,
            resend_timeout,
            broadcast: false,
            adopt: false,
            warnings: Vec::new(),
        }
    }
}

impl Args {
    /// Parses the arguments after `daemon`.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub fn parse(arguments: &[OsString]) -> Result<Self, String> {
        let mut this = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let text = argument.to_str().ok_or_else(|| format!("{argument:?} is not UTF-8"))?;
            // Arguments after it are ignored, as by the reference.
            if text == "--" {
                break;
            }
            // Go's flag package ends at the first argument that is not a flag, so existing units may have such arguments.
            let Some(flag) = text.strip_prefix('-').filter(|flag| !flag.is_empty()) else {
                let ignored: Vec<_> = iter::once(argument).chain(rest).collect();
                this.warnings.push(format!(
                    "ignores the arguments {ignored:?}, because {text:?} is not a flag; the value of a boolean is written \
                     as in -broadcast=false"
                ));
                break;
            };
            let flag = flag.strip_prefix('-').unwrap_or(flag);
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            let mut next = || {
                let value = value.or_else(|| rest.next()?.to_str());
                value.ok_or_else(|| format!("-{name}: its value is missing"))
            };
            match name {
                "socketpath" => this.socket = socket(next()?)?,
                "hostprefix" => this.host_prefix = next()?.into(),
                "pidfile" => this.pid_file = pid_file(next()?)?,
                "timeout" => {
                    this.timeout = duration(name, next()?, &mut this.warnings)?.unwrap_or(this.timeout)
                }
                "resendmax" => {
                    this.resend_max = duration(name, next()?, &mut this.warnings)?.unwrap_or(this.resend_max)
                }
                "resendtimeout" => {
                    this.resend_timeout =
                        duration(name, next()?, &mut this.warnings)?.unwrap_or(this.resend_timeout);
                }
                "broadcast" => this.broadcast = boolean(name, value)?,
                "adopt" => this.adopt = boolean(name, value)?,
                _ => return Err(format!("{text:?} is not a flag of the daemon")),
            }
        }
        Ok(this)
    }
}

/// An empty path means the default. A relative path is relative to the working directory.
fn socket(value: &str) -> Result<PathBuf, String> {
    let path = if value.is_empty() { SOCKET } else { value };
    std::path::absolute(path).map_err(|e| format!("-socketpath {value:?}: {e}"))
}

/// An empty path means no file.
fn pid_file(value: &str) -> Result<Option<PathBuf>, String> {
    match PathBuf::from(value) {
        path if path.as_os_str().is_empty() => Ok(None),
        path if path.is_absolute() => Ok(Some(path)),
        _ => Err(format!("-pidfile {value:?} is not an absolute path")),
    }
}

/// Parses a boolean as Go's flag package does: its value cannot be a separate argument.
fn boolean(name: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(other) => Err(format!("-{name}={other} is not a boolean")),
    }
}

/// Units of Go's durations, in nanoseconds. `ms` comes before `m`.
const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

/// None: the default, because the time is zero, or negative.
fn duration(name: &str, value: &str, warnings: &mut Vec<String>) -> Result<Option<Duration>, String> {
    let unsigned = value.strip_prefix(['+', '-']).unwrap_or(value);
    // Only zero needs no unit.
    let parsed = if unsigned == "0" { Some(0.0) } else { nanoseconds(unsigned) };
    let duration = parsed
        .and_then(|nanoseconds| Duration::try_from_secs_f64(nanoseconds / 1e9).ok())
        .ok_or_else(|| format!("-{name} {value:?} is not a time such as 10s or 1m30s"))?;
    let is_negative = value.starts_with('-') && !duration.is_zero();
    if is_negative {
        // The reference's daemon starts, too. With a negative -timeout, it never gets a lease.
        warnings.push(format!("uses the default of -{name}, because {value} is negative"));
    }
    Ok(Some(duration).filter(|duration| !is_negative && !duration.is_zero()))
}

fn nanoseconds(text: &str) -> Option<f64> {
    let (mut rest, mut sum) = (text, 0.0);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = rest.split_at(digits);
        let (name, factor) = UNITS.iter().find(|(name, _)| unit.starts_with(name))?;
        sum += number.parse::<f64>().ok()? * factor;
        rest = unit.strip_prefix(name)?;
    }
    Some(sum)
}

/// The output of `dhcp daemon -help`.
pub const HELP: &str = "usage: dhcp daemon [FLAGS]

Manages the DHCP leases of containers: it requests, renews and releases them.

  -socketpath PATH      socket (/run/cni/dhcp.sock); the directory of leases has the same path without .sock
  -hostprefix PATH      the host's root directory, a prefix for the paths of sockets, leases and namespaces
  -pidfile PATH         file for the process id
  -timeout TIME         timeout for the answer to one packet (10s)
  -resendmax TIME       longest interval between two packets (62s)
  -resendtimeout TIME   total timeout of one ADD (208s)
  -broadcast            ask servers to answer by broadcast
  -adopt                adopt the addresses in libcni's cache that have no lease
";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, String> {
        Args::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_parsed_as_in_go() {
        assert_eq!(parse("").unwrap(), Args::default());
        let args = parse(
            "-socketpath /a.sock --hostprefix=/host -pidfile /p --timeout 1m30s -resendmax=1.5s -resendtimeout 500ms --broadcast -adopt=0",
        );
        let expected = Args {
            socket: "/a.sock".into(),
            host_prefix: "/host".into(),
            pid_file: Some("/p".into()),
            timeout: Duration::from_secs(90),
            resend_max: Duration::from_millis(1500),
            resend_timeout: Duration::from_millis(500),
            broadcast: true,
            adopt: false,
            warnings: Vec::new(),
        };
        assert_eq!(args.unwrap(), expected);
        for empty in
            ["-pidfile= -socketpath= -timeout 0", "-timeout 0s -resendmax 0 -resendtimeout=0", "-- -no-flag"]
        {
            assert_eq!(parse(empty).unwrap(), Args::default(), "{empty}");
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(parse("-socketpath run/dhcp.sock").unwrap().socket, here.join("run/dhcp.sock"));
    }

    /// Go's flag package ends at the first argument that is not a flag.
    #[test]
    fn arguments_that_the_reference_ignores_are_ignored_with_a_warning() {
        for (line, ignored) in [
            ("-broadcast false", r#"["false"]"#),
            ("-broadcast=1 stray -adopt -no-flag", r#"["stray", "-adopt", "-no-flag"]"#),
            ("-broadcast -", r#"["-"]"#),
        ] {
            let args = parse(line).unwrap();
            assert!(args.broadcast && !args.adopt && args.warnings.len() == 1, "{args:?}");
            assert!(args.warnings[0].contains(ignored), "{line}: {args:?}");
        }
        for (line, flag) in
            [("-timeout -1s", "-timeout"), ("-resendmax=-1ms", "-resendmax"), ("-resendtimeout -5m", "-5m")]
        {
            let args = parse(line).unwrap();
            assert!(args.warnings[0].contains(flag), "{line}: {args:?}");
            assert_eq!(Args { warnings: Vec::new(), ..args }, Args::default(), "{line}");
        }
        assert_eq!(parse("-timeout -0 -resendmax -0s").unwrap(), Args::default());
    }

    #[test]
    fn an_unknown_flag_is_named() {
        for (line, culprit) in [
            ("-sock /a", "-sock"),
            ("-timeout", "-timeout"),
            ("-timeout 10", "10"),
            ("-timeout 10x", "10x"),
            ("-timeout s", "\"s\""),
            ("-timeout -5", "-5"),
            ("-timeout --5s", "--5s"),
            ("-timeout 1e400h", "1e400h"),
            ("-timeout 99999999999999999999999h", "99999999999999999999999h"),
            ("-timeout 1.2.3s", "1.2.3s"),
            ("-broadcast=maybe", "maybe"),
            ("-pidfile relative", "relative"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(culprit), "{line}: {error}");
        }
    }
}
