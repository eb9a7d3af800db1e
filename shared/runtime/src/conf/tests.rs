use super::*;

fn load(text: &str) -> Result<Network> {
    Network::from_bytes(text.as_bytes())
}

fn refused(text: &str) -> String {
    load(text).unwrap_err().to_string()
}

#[test]
fn the_highest_version_that_both_sides_support_is_selected() {
    let version = |said: &str| load(&format!(r#"{{{said} "name": "n", "plugins": [{{"type": "t"}}]}}"#));
    let highest = |said| version(said).unwrap().version;
    assert_eq!(highest(r#""cniVersion": "0.4.0","#), Version::V0_4_0);
    assert_eq!(highest(r#""cniVersion": "0.4.0", "cniVersions": ["9.9.9", "1.0.0"],"#), Version::V1_0_0);
    assert_eq!(highest(r#""cniVersion": "1.1.0", "cniVersions": ["1.0.0"],"#), Version::V1_1_0);
    assert_eq!(highest(r#""cniVersion": "","#), Version::WHEN_ABSENT);
    assert_eq!(highest(""), Version::WHEN_ABSENT);
    assert_eq!(version(r#""cniVersion": "9.9.9","#).unwrap_err().code(), 1);
}

#[test]
fn flags_may_be_booleans_or_their_words() {
    let text = r#"{"name": "n", "disableCheck": "True", "disableGC": true, "loadOnlyInlinedPlugins": "false",
            "plugins": [{"type": "t"}]}"#;
    let network = load(text).unwrap();
    assert!(network.disable_check && network.disable_gc && !network.load_only_inlined_plugins);
    let error = refused(r#"{"name": "n", "disableGC": "yes", "plugins": [{"type": "t"}]}"#);
    assert!(error.contains("disableGC: \"yes\" is neither"), "{error}");
}

#[test]
fn a_single_plugins_configuration_is_a_list_of_one() {
    let text =
        r#"{"CNIVersion": "0.3.1", "name": "n", "Type": "ptp", "mtu": 9000, "id": 12345678901234567890123}"#;
    let network = load(text).unwrap();
    assert_eq!((network.version, network.plugins.len()), (Version::V0_3_1, 1));
    assert!(String::from_utf8_lossy(network.bytes()).contains(r#""id": 12345678901234567890123"#));
    let kept: Value = serde_json::from_slice(network.bytes()).unwrap();
    assert_eq!(kept["plugins"][0]["mtu"], 9000);
    assert_eq!(Network::from_bytes(network.bytes()).unwrap().plugins[0].kind.as_str(), "ptp");
}

#[test]
fn the_ipam_plugin_is_the_type_in_ipam() {
    let kinds = |plugin: &str| {
        let network = load(&format!(r#"{{"name": "n", "plugins": [{plugin}]}}"#)).unwrap();
        network.plugins[0].kinds().map(|kind| kind.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(r#"{"type": "bridge", "IPAM": {"Type": "host-local"}}"#), ["bridge", "host-local"]);
    for ipam in ["null", "{}", r#"{"type": "../x"}"#, "7"] {
        assert_eq!(kinds(&format!(r#"{{"type": "bridge", "ipam": {ipam}}}"#)), ["bridge"]);
    }
}

#[test]
fn an_error_in_json_shows_line_column_and_the_text_of_the_line() {
    let error = load("{\n  \"name\": \"n\",\n  \"plugins\": [{\"type\": \"bridge\"},]\n}").unwrap_err();
    assert_eq!(error.code(), 6);
    let error = error.to_string();
    assert!(error.contains("line 3, column 33: a comma before the closing ']' is not JSON"), "{error}");
    assert!(error.contains("the line is: \"plugins\": [{\"type\": \"bridge\"},]"), "{error}");
    assert!(refused("{ // net\n}").contains("line 1, column 3: JSON has no comments"));
    assert!(refused("[]").contains("not a JSON object"));
    assert!(Network::from_bytes(b"\xff\xfe").unwrap_err().to_string().contains("not UTF-8"));
}

#[test]
fn an_invalid_value_is_reported_with_its_key() {
    assert!(refused(r#"{"plugins": [{"type": "t"}]}"#).contains("name is missing"));
    assert!(refused(r#"{"name": "../n", "plugins": [{"type": "t"}]}"#).contains("name \"../n\""));
    assert!(refused(r#"{"name": "n", "plugins": []}"#).contains("plugins: the list is empty"));
    assert!(
        refused(r#"{"name": "n", "plugins": [{"type": "t"}, {}]}"#).contains("plugins[1]: type is missing")
    );
    assert!(
        refused(r#"{"name": "n", "plugins": [{"type": "../sh"}]}"#).contains("plugins[0]: type \"../sh\"")
    );
    assert!(refused(r#"{"name": "n", "loadOnlyInlinedPlugins": true}"#).contains("no list of plugins"));
    assert!(
        refused(r#"{"name": 7, "plugins": [{"type": "t"}]}"#).contains("name: expected a string, found 7")
    );
    assert!(refused(r#"{"name": "n", "plugins": {}}"#).contains("plugins: expected a list, found an object"));
    assert!(
        refused(r#"{"name": "n", "plugins": ["t"]}"#)
            .contains("plugins: expected an object, found the string \"t\"")
    );
    assert!(refused("[1]").contains("expected an object, found a list"));
}
