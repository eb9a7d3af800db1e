//! Base64 with padding (RFC 4648, section 4): libcni keeps a network's configuration in it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = (0..3).fold(0, |group, i| group << 8 | usize::from(chunk.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let digit = char::from(ALPHABET[group >> (18 - 6 * i) & 63]);
            text.push(if i <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

/// None for what is not Base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in digits.as_bytes().chunks(4) {
        let mut group = 0_u32;
        for i in 0..4 {
            let digit = chunk.get(i).map_or(Some(0), |c| ALPHABET.iter().position(|a| a == c))?;
            group = group << 6 | u32::try_from(digit).ok()?;
        }
        let [_, three @ ..] = group.to_be_bytes();
        bytes.extend_from_slice(&three[..chunk.len().saturating_sub(1)]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rfcs_own_examples_come_out_and_go_back_in() {
        let examples = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in examples {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded).unwrap(), plain.as_bytes());
        }
        assert_eq!(decode(&encode(&[0xff, 0xfe, 0])).unwrap(), [0xff, 0xfe, 0]);
    }

    #[test]
    fn what_is_not_base64_is_none() {
        for bad in ["Zg", "Zg=", "====", "Z===", "Zm9*", "Zm=v", "é==="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
