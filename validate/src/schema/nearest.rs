//! Suggestions for misspelt names: "did you mean".

/// The name that was probably intended: at most a third of its letters differ.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_ascii_lowercase();
    let near = known.into_iter().map(|other| (distance(&lower, &other.to_ascii_lowercase()), other));
    near.filter(|(distance, other)| *distance <= 1 + name.len().max(other.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, other)| other)
}

/// The equivalent key, for names that other plugins or capability arguments use.
pub fn synonym(name: &str) -> Option<&'static str> {
    let same = [("deviceID", "pciBusID"), ("parent", "master"), ("vlanID", "vlanId"), ("isMasq", "ipMasq")];
    same.into_iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, key)| key)
}

/// The number of letters that must be changed, added, removed, or swapped with the next one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_suggested_for_a_misspelt_key_and_none_for_an_unknown_one() {
        let known = ["isGateway", "isDefaultGateway", "ipMasq", "mtu", "subnet"];
        assert_eq!(nearest("isgatway", known), Some("isGateway"));
        assert_eq!(nearest("ipMsaq", known), Some("ipMasq"));
        assert_eq!(nearest("ipmasquerade", known), None);
        assert_eq!(nearest("subnets", known), Some("subnet"));
        assert_eq!(nearest("colour", known), None);
    }
}
