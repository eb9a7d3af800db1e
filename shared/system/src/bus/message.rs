//! Messages of D-Bus (the specification: "Message Protocol", "Type System").

/// Header of a message: byte order, type, flags, version, length of the body, serial, length of the fields.
const VERSION: u8 = 1;
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
/// Do not start a service to answer.
const NO_AUTO_START: u8 = 2;

/// Codes of header fields.
const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const DESTINATION: u8 = 6;
const SIGNATURE: u8 = 8;

/// Maximum size of a message in bytes. The specification allows 128 MiB; the answers here are short.
const LARGEST: usize = 1 << 20;

const CUT: &str = "a message is shorter than it says";

/// A method call with string arguments.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Name of the service on the bus.
    pub destination: &'a str,
    /// Path of the object.
    pub path: &'a str,
    /// Interface of the object.
    pub interface: &'a str,
    /// Name of the method.
    pub member: &'a str,
    /// Arguments.
    pub arguments: &'a [&'a str],
}

/// Result of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No value, or one of another type.
    Nothing,
    /// The first value, a string.
    Text(String),
    /// The first value, a boolean.
    Bool(bool),
}

impl Call<'_> {
    /// Encodes the call.
    ///
    /// # Errors
    /// If a string contains a NUL, which D-Bus does not allow.
    pub(super) fn encode(&self, serial: u32) -> Result<Vec<u8>, &'static str> {
        let texts = [self.destination, self.path, self.interface, self.member];
        if texts.iter().chain(self.arguments).any(|text| text.contains('\0')) {
            return Err("an argument has a NUL");
        }
        let mut body = Vec::new();
        self.arguments.iter().for_each(|text| put_text(&mut body, text));
        let mut fields = Vec::new();
        for (code, kind, text) in [
            (PATH, b'o', self.path),
            (INTERFACE, b's', self.interface),
            (MEMBER, b's', self.member),
            (DESTINATION, b's', self.destination),
        ] {
            pad(&mut fields, 8);
            fields.extend([code, 1, kind, 0]);
            put_text(&mut fields, text);
        }
        if !self.arguments.is_empty() {
            pad(&mut fields, 8);
            fields.extend([SIGNATURE, 1, b'g', 0, self.arguments.len() as u8]);
            fields.extend(self.arguments.iter().map(|_| b's'));
            fields.push(0);
        }
        let mut bytes = vec![b'l', METHOD_CALL, NO_AUTO_START, VERSION];
        for number in [body.len() as u32, serial, fields.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(fields);
        pad(&mut bytes, 8);
        bytes.extend(body);
        Ok(bytes)
    }
}

fn pad(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    pad(bytes, 4);
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.push(0);
}

/// Fixed part of a message header.
#[derive(Debug)]
pub(super) struct Head {
    is_big_endian: bool,
    kind: u8,
    fields: usize,
    body: usize,
}

/// Result of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Return(Answer),
    Error { name: String, message: String },
}

impl Head {
    /// Length of the fixed part in bytes.
    pub(super) const LENGTH: usize = 16;

    pub(super) fn parse(bytes: &[u8; Self::LENGTH]) -> Result<Self, &'static str> {
        let is_big_endian = match bytes[0] {
            b'l' => false,
            b'B' => true,
            _ => return Err("a message begins with no byte order"),
        };
        if bytes[3] != VERSION {
            return Err("a message is of another version");
        }
        let mut reader = Reader { bytes, at: 4, is_big_endian };
        let (body, _serial, fields) = (reader.number()?, reader.number()?, reader.number()?);
        let this = Self { is_big_endian, kind: bytes[1], fields: fields as usize, body: body as usize };
        if this.fields > LARGEST || this.body > LARGEST {
            return Err("a message is too long");
        }
        Ok(this)
    }

    /// Number of bytes after it.
    pub(super) fn rest(&self) -> usize {
        self.fields.next_multiple_of(8) + self.body
    }

    /// Decodes the answer to the call with `serial`. `None` for a signal or an answer to another call.
    pub(super) fn outcome(&self, rest: &[u8], serial: u32) -> Result<Option<Outcome>, &'static str> {
        if !matches!(self.kind, METHOD_RETURN | ERROR) {
            return Ok(None);
        }
        let fields = Fields::read(self.reader(rest.get(..self.fields).ok_or(CUT)?))?;
        if fields.reply_serial != Some(serial) {
            return Ok(None);
        }
        let mut body = self.reader(rest.get(self.fields.next_multiple_of(8)..).ok_or(CUT)?);
        let answer = match fields.signature.first() {
            Some(b's') => Answer::Text(body.text()?),
            Some(b'b') => match body.number()? {
                0 => Answer::Bool(false),
                1 => Answer::Bool(true),
                _ => return Err("a boolean is neither 0 nor 1"),
            },
            _ => Answer::Nothing,
        };
        Ok(Some(match (self.kind, answer) {
            (METHOD_RETURN, answer) => Outcome::Return(answer),
            (_, answer) => Outcome::Error {
                name: fields.error.ok_or("an error has no name")?,
                message: if let Answer::Text(text) = answer { text } else { String::new() },
            },
        }))
    }

    fn reader<'a>(&self, bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0, is_big_endian: self.is_big_endian }
    }
}

/// Header fields of an answer.
#[derive(Default)]
struct Fields {
    reply_serial: Option<u32>,
    error: Option<String>,
    signature: Vec<u8>,
}

impl Fields {
    fn read(mut reader: Reader<'_>) -> Result<Self, &'static str> {
        let mut this = Self::default();
        while reader.at < reader.bytes.len() {
            reader.align(8);
            let code = reader.byte()?;
            let kind = reader.signature()?;
            match (code, kind.as_slice()) {
                (REPLY_SERIAL, b"u") => this.reply_serial = Some(reader.number()?),
                (ERROR_NAME, b"s") => this.error = Some(reader.text()?),
                (SIGNATURE, b"g") => this.signature = reader.signature()?,
                (_, b"s" | b"o") => drop(reader.text()?),
                (_, b"g") => drop(reader.signature()?),
                (_, b"u") => drop(reader.number()?),
                _ => return Err("a header field has a type that none has"),
            }
        }
        Ok(this)
    }
}

/// Reads values in sequence within its bytes. Both parts of a message start at a multiple of 8, so each has its own alignment.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big_endian: bool,
}

impl Reader<'_> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Result<&[u8], &'static str> {
        let end = self.at.checked_add(count).ok_or(CUT)?;
        let taken = self.bytes.get(self.at..end).ok_or(CUT)?;
        self.at = end;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn number(&mut self) -> Result<u32, &'static str> {
        self.align(4);
        let is_big_endian = self.is_big_endian;
        let bytes = self.take(4)?.try_into().map_err(|_| CUT)?;
        Ok(if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn text(&mut self) -> Result<String, &'static str> {
        let length = self.number()? as usize;
        let text = String::from_utf8(self.take(length)?.to_vec()).map_err(|_| "a string is not UTF-8")?;
        if self.byte()? == 0 && !text.contains('\0') {
            Ok(text)
        } else {
            Err("a string does not end with NUL")
        }
    }

    fn signature(&mut self) -> Result<Vec<u8>, &'static str> {
        let length = self.byte()? as usize;
        let signature = self.take(length)?.to_vec();
        if self.byte()? == 0 { Ok(signature) } else { Err("a signature does not end with NUL") }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Encodes a body with its signature.
    pub(in super::super) fn body(signature: &str, bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
        (signature.into(), bytes.into())
    }

    /// Encodes an answer to a serial.
    pub(in super::super) fn message(
        kind: u8,
        serial: u32,
        (signature, body): &(Vec<u8>, Vec<u8>),
    ) -> Vec<u8> {
        let mut fields = vec![REPLY_SERIAL, 1, b'u', 0];
        fields.extend(serial.to_le_bytes());
        if kind == ERROR {
            fields.extend([ERROR_NAME, 1, b's', 0]);
            put_text(&mut fields, "org.example.Error");
            pad(&mut fields, 8);
        }
        fields.extend([SIGNATURE, 1, b'g', 0, signature.len() as u8]);
        fields.extend(signature);
        fields.push(0);
        let mut bytes = vec![b'l', kind, 1, VERSION];
        for number in [body.len() as u32, 7, fields.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(fields);
        pad(&mut bytes, 8);
        bytes.extend(body);
        bytes
    }

    pub(in super::super) fn read(bytes: &[u8], serial: u32) -> Result<Option<Outcome>, &'static str> {
        let (start, rest) = bytes.split_at_checked(Head::LENGTH).ok_or(CUT)?;
        let head = Head::parse(start.try_into().unwrap())?;
        head.outcome(rest.get(..head.rest()).ok_or(CUT)?, serial)
    }

    #[test]
    fn a_call_is_encoded_as_the_specification_says() {
        let call = Call {
            destination: "org.freedesktop.DBus",
            path: "/a",
            interface: "org.a.B",
            member: "Do",
            arguments: &["x"],
        };
        let bytes = call.encode(2).unwrap();
        assert_eq!(bytes[..16], [b'l', 1, 2, 1, 6, 0, 0, 0, 2, 0, 0, 0, 87, 0, 0, 0]);
        assert_eq!(bytes[16..27], *b"\x01\x01o\0\x02\0\0\0/a\0");
        assert_eq!(bytes.len() % 8, 6);
        assert_eq!(bytes[bytes.len() - 6..], *b"\x01\0\0\0x\0");
        assert!(Call { arguments: &["a\0b"], ..call }.encode(1).is_err());
    }

    #[test]
    fn answers_are_read() {
        let yes = body("b", &1_u32.to_le_bytes());
        let text = body("s", b"\x07\0\0\0trusted\0");
        for (kind, body, expected) in [
            (METHOD_RETURN, &yes, Outcome::Return(Answer::Bool(true))),
            (METHOD_RETURN, &text, Outcome::Return(Answer::Text("trusted".into()))),
            (METHOD_RETURN, &body("", b""), Outcome::Return(Answer::Nothing)),
            (METHOD_RETURN, &body("as", b"\0\0\0\0"), Outcome::Return(Answer::Nothing)),
            (ERROR, &text, Outcome::Error { name: "org.example.Error".into(), message: "trusted".into() }),
        ] {
            assert_eq!(read(&message(kind, 3, body), 3), Ok(Some(expected)));
            assert_eq!(read(&message(kind, 3, body), 4), Ok(None));
        }
    }

    #[test]
    fn an_answer_cut_off_anywhere_or_with_other_values_is_an_error() {
        let whole = message(METHOD_RETURN, 3, &body("s", b"\x07\0\0\0trusted\0"));
        for end in 0..whole.len() {
            assert!(read(&whole[..end], 3).is_err(), "{end}");
        }
        for wrong in [
            body("b", &2_u32.to_le_bytes()),
            body("s", b"\xff\xff\xff\xff"),
            body("s", b"\x01\0\0\0\xff\0"),
            body("s", b"\x01\0\0\0ab"),
            body("s", b"\x01\0\0\0\0\0"),
        ] {
            assert!(read(&message(METHOD_RETURN, 3, &wrong), 3).is_err(), "{wrong:?}");
        }
        let mut too_long = whole.clone();
        too_long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&too_long, 3), Err("a message is too long"));
    }
}
