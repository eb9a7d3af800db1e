//! `make judges`: Debian's packages of container runtimes attach real containers with the plugins that `make install` installs, and then
//! with the reference's. The checks test what matters to operators: traffic arrives, and nothing is left afterwards.
//!
//! scripts/judges unpacks the runtimes, and starts this program in separate namespaces.
#![allow(clippy::expect_used, reason = "a check that cannot continue has failed")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the program prints its results")]

mod check;
mod checks;
mod containerd;
mod cri;
mod gate;
mod host;
mod libcni;
mod podman;
mod podman5;
mod process;
mod report;
mod side;
mod soon;

use std::env;
use std::process::ExitCode;

use report::Report;
use side::Side;

const USAGE: &str = "usage: scripts/judges [--plugins ours|reference] [TEXT]
  --plugins SIDE  only with these plugins, in place of both
  TEXT            only the checks that have TEXT in \"PROGRAM: NAME\"";

/// The command line.
struct Options {
    sides: Vec<Side>,
    filter: String,
}

impl Options {
    /// `None` if the words are invalid, or for `--help`.
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { sides: Side::ALL.to_vec(), filter: String::new() };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--plugins" => options.sides = vec![Side::called(&words.next()?)?],
                option if option.starts_with('-') => return None,
                text => options.filter = text.to_lowercase(),
            }
        }
        Some(options)
    }
}

fn main() -> ExitCode {
    if let Some(plugin) = gate::called() {
        return gate::pass(&plugin);
    }
    let Some(Options { sides, filter }) = Options::parse(env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let checks: Vec<_> = checks::all().into_iter().filter(|check| check.matches(&filter)).collect();
    if checks.is_empty() {
        eprintln!("no check has {filter:?} in \"PROGRAM: NAME\"");
        return ExitCode::from(2);
    }
    podman::configure();
    let mut report = Report::default();
    if let Some(release) = side::fallback() {
        println!("SKIP judges: the reference 1.9.1 cannot be had: {release} is compared instead");
        report.skip();
    }
    for check in &checks {
        let mut tried = Vec::new();
        for side in &sides {
            let verdict = check.run_with(*side);
            println!("{:9} {}: {}: {verdict}", side.to_string(), check.group, check.name);
            tried.push((*side, verdict));
        }
        report.add(check, &tried);
    }
    println!("\n{report}");
    ExitCode::from(u8::from(report.failed() > 0))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;

    use super::*;

    #[test]
    fn the_page_has_the_table_of_all_checks_with_what_is_known_of_the_reference() {
        let page = fs::read_to_string(lab::repository().join("docs/runtimes.md")).expect("read the page");
        let rows: Vec<_> =
            checks::all().iter().map(|check| check.row("yes", &check.known().to_string())).collect();
        let table = format!("\n\n{}\n{}\n\n", report::HEAD, rows.join("\n"));
        assert!(page.contains(&table), "docs/runtimes.md is to have this table:{table}");
    }

    #[test]
    fn a_run_with_another_release_of_the_reference_counts_as_skipped() {
        let mut report = Report::default();
        report.skip();
        assert!(report.to_string().ends_with("\n0 passed, 0 failed, 1 skipped"), "{report}");
    }

    #[test]
    fn no_two_checks_have_one_name() {
        let names: HashSet<_> = checks::all().iter().map(|check| (check.group, check.name)).collect();
        assert_eq!(names.len(), checks::all().len());
    }
}
