use proptest::prelude::*;

use super::*;

fn problems(text: &str) -> Vec<String> {
    parse(text).1.iter().map(|p| format!("{}:{} {}", p.at.line, p.at.column, p.text)).collect()
}

#[test]
fn valid_json_has_no_problem_and_every_value_has_a_position() {
    let text = "{\n  \"a\": [1, \"x\\n\", null],\n  \"B\": {\"é\": true}\n}";
    let (root, problems) = parse(text);
    let root = root.unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(root.get("a").unwrap().items()[1].at, Position { line: 2, column: 12 });
    assert_eq!(root.get("a").unwrap().items()[1].as_str(), Some("x\n"));
    assert_eq!(root.get("b").unwrap().get("é").unwrap().at, Position { line: 3, column: 14 });
}

#[test]
fn all_comments_and_superfluous_or_missing_commas_are_found_in_one_run() {
    let text = "{\n  // a comment\n  \"a\": [1, 2,],\n  \"b\": 1 /* two\n lines */\n  \"c\": 2,\n}";
    assert_eq!(
        problems(text),
        [
            "2:3 JSON has no comments",
            "3:13 a comma before the closing ']' is not JSON",
            "4:9 a comma is missing here",
            "4:10 JSON has no comments",
            "6:9 a comma before the closing '}' is not JSON",
        ]
    );
    assert!(parse(text).0.unwrap().get("c").is_some());
}

#[test]
fn an_unclosed_bracket_or_string_is_reported_with_its_opening_line() {
    assert_eq!(
        problems("{\n\"a\": ["),
        ["2:7 the text ends, but the bracket opened in line 2 is not closed"]
    );
    assert_eq!(problems("{\n\"a\": [1}\n"), ["2:8 expected ']' for the bracket opened in line 2"]);
    assert_eq!(problems("{\"a\": \"x\n\"}"), ["1:7 this string has no closing quote"]);
    assert_eq!(problems(" "), ["1:2 the document is empty, expected an object"]);
    assert_eq!(problems("{} {}"), ["1:4 unexpected text after the end of the document"]);
}

#[test]
fn a_repeated_key_and_an_invalid_value_are_reported() {
    assert_eq!(problems("{\"a\": 1, \"a\": 2}"), ["1:10 the key \"a\" is already in line 1"]);
    assert_eq!(
        problems("{\"a\": True, \"b\": 01}"),
        ["1:7 \"True\" is not JSON; a string must be in double quotes", "1:18 \"01\" is not a JSON number"]
    );
    assert_eq!(problems("{\"a\" 1}"), ["1:6 the key \"a\" has no value: expected a colon"]);
}

#[test]
fn a_document_with_too_deep_nesting_is_refused() {
    assert!(parse(&"[".repeat(1 << 20)).0.is_none());
}

/// Parts of valid JSON, and parts that make it invalid.
const PIECES: [&str; 27] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"a\"",
    "\"b\\n\"",
    "1",
    "-2.5e3",
    "01",
    "-",
    "true",
    "null",
    "nul",
    " ",
    "\n",
    "\t",
    "//x\n",
    "/*y*/",
    "#z\n",
    "\"",
    "\\",
    "'",
    "é",
    "\u{1}",
    "\"\u{7f}\"",
];

proptest! {
    #[test]
    fn a_problem_is_found_exactly_if_the_strict_parser_refuses_the_text(
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24),
    ) {
        let source = pieces.concat();
        let strict = serde_json::from_str::<serde_json::Value>(&source).is_ok();
        let twice = |problem: &Problem| problem.text.contains("is already in line");
        let (root, problems) = parse(&source);
        prop_assert_eq!(strict, problems.iter().all(twice), "{:?}: {:?}", source, problems);
        prop_assert!(root.is_some() || !problems.is_empty());
    }

    #[test]
    fn arbitrary_text_causes_no_panic(source in ".*") {
        let (_, problems) = parse(&source);
        let lines = source.split('\n').count();
        prop_assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.at.line)));
    }
}
