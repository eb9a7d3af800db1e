//! docs/conformance.md and the README: every test that they name exists.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use lab::{Lab, plugins, under_test};
use serde_json::json;

/// Collects the names of test functions below a directory.
fn tests_below(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            tests_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let tests =
                source.split("#[test]").skip(1).filter_map(|rest| rest.split_once("fn ")?.1.split_once('('));
            names.extend(tests.map(|(name, _)| name.to_owned()));
        }
    }
}

/// The names of all tests.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let directories =
        ["cnitool", "ferrule", "ipam", "meta", "netavark-driver", "plugins", "shared", "tests", "validate"];
    for directory in directories {
        tests_below(&lab::repository().join(directory), &mut names);
    }
    names
}

/// Asserts that the last column of a row names existing tests, or says in italics why there is none.
fn assert_shown(row: &str, tests: &BTreeSet<String>) {
    let shown_by = row.trim_end_matches(" |").rsplit_once("| ").unwrap().1;
    let named: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
    let unknown: Vec<_> = named.iter().filter(|name| !tests.contains(**name)).collect();
    assert!(unknown.is_empty(), "no such tests: {unknown:?}\n{row}");
    assert!(!named.is_empty() || shown_by.starts_with('*'), "shown by nothing:\n{row}");
}

#[test]
fn the_conformance_page_names_existing_tests_for_every_requirement() {
    let tests = tests();
    let page = fs::read_to_string(lab::repository().join("docs/conformance.md")).unwrap();
    let rows = page.lines().filter(|line| ["| P", "| R", "| B"].iter().any(|who| line.starts_with(who)));
    let count = rows.inspect(|row| assert_shown(row, &tests)).count();
    assert!(count > 60, "only {count} rows were found");
}

/// The rows of the README's table of problems. Their last column is the names of tests.
fn problems() -> Vec<String> {
    let page = fs::read_to_string(lab::repository().join("README.md")).unwrap();
    let (_, part) = page.split_once("\n## Known problems").unwrap();
    let part = part.split("\n## ").next().unwrap();
    let rows: Vec<_> =
        part.lines().filter(|line| line.starts_with("| ")).skip(1).map(str::to_owned).collect();
    assert!(rows.len() >= 10, "only {} rows were found", rows.len());
    rows
}

#[test]
fn known_problems_are_shown_by_tests_that_exist() {
    let tests = tests();
    problems().iter().for_each(|row| assert_shown(row, &tests));
}

/// `scripts/mutants claims` applies each change in tests/scenarios/claims, which restores the problem, and expects the
/// test to fail. That takes long. Here, each change only has to match the sources.
#[test]
fn each_known_problem_has_a_change_that_reintroduces_it() {
    let mut faults = String::new();
    for row in problems() {
        let named = row.trim_end_matches(" |").rsplit_once("| ").unwrap().1;
        for name in named.split('`').skip(1).step_by(2) {
            let change = lab::repository().join(format!("tests/scenarios/claims/{name}.patch"));
            let mut patch = Command::new("patch");
            let patch = patch.args(["--dry-run", "--force", "-p1", "-d"]).arg(lab::repository()).arg("-i");
            let output = patch.arg(&change).output().unwrap();
            if !output.status.success() {
                let said = [output.stdout, output.stderr].concat();
                writeln!(faults, "{}: {}", change.display(), String::from_utf8_lossy(&said)).unwrap();
            }
        }
    }
    assert!(faults.is_empty(), "{faults}");
}

/// The README says so.
#[test]
fn each_plugin_and_cnitool_have_a_file_of_tests_with_its_name() {
    for plugin in plugins().iter().map(String::as_str).chain(["cnitool"]) {
        // `static` is a word of the language.
        let module = if plugin == "static" { "static_ipam" } else { plugin };
        let path = format!("tests/scenarios/{}.rs", module.replace('-', "_"));
        assert!(lab::repository().join(&path).exists(), "{path} does not exist");
    }
}

/// The rows of docs/testing.md say how many tests there are.
#[test]
fn the_page_of_tests_does_not_exaggerate() {
    let page = fs::read_to_string(lab::repository().join("docs/testing.md")).unwrap();
    let claimed = |row: &str| -> usize {
        let (_, rest) = page.split_once(&format!("\n| {row} |")).unwrap();
        let (_, number) = rest.split('\n').next().unwrap().split_once("more than ").unwrap();
        number.split(" |").next().unwrap().replace(' ', "").parse().unwrap()
    };
    let mut scenarios = BTreeSet::new();
    tests_below(&lab::repository().join("tests/scenarios"), &mut scenarios);
    assert!(scenarios.len() > claimed("[Scenarios](#scenarios)"), "{} scenarios", scenarios.len());
    let others = tests().len() - scenarios.len();
    assert!(others > claimed("Unit tests"), "{others} unit tests");
}

#[test]
fn version_lists_all_versions_of_the_specification() {
    let lab = Lab::new();
    for plugin in plugins() {
        let answer = lab.plugin(&plugin).stdin(r#"{"cniVersion": "1.1.0"}"#).run("VERSION").ok_result();
        if under_test().reference {
            // The reference's chained plugins start with 0.3.0, and 1.1.1 ends with 1.0.0.
            assert!(answer["supportedVersions"].as_array().unwrap().contains(&json!("1.0.0")), "{plugin}");
        } else {
            let all = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
            assert_eq!(answer["supportedVersions"], json!(all), "{plugin}");
        }
        assert!(answer["cniVersion"].is_string(), "{plugin}");
    }
}
