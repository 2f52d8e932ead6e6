//! One line of a transcript file: `{"role","content","sender","message_id","ts"}`.

use serde::Serialize;
use serde_json::Number;

use super::json::{Json, Pick, known_fields};
use super::stamp::instant;
use super::{WireError, compact};
use crate::transcript::Line;

known_fields!(LineFields { role: "role", content: "content", sender: "sender", message_id: "message_id", ts: "ts" });

impl LineFields<'_> {
    fn into_line(self) -> Result<Line, WireError> {
        let text = |value: Option<Json<'_>>, field, otherwise: &str| match value {
            Some(value) => value.text(field).map(|text| text.into_owned()),
            None => Ok(otherwise.to_owned()),
        };
        Ok(Line {
            // Lines without a role exist; all seen so far were of people.
            role: text(self.role, "role", "user")?,
            content: self.content.ok_or_else(|| WireError::missing("content"))?.text("content")?.into_owned(),
            sender: text(self.sender, "sender", "")?,
            // The sender in a file is the writer's own claim.
            author: None,
            message_id: match self.message_id {
                Some(Json::Number(number)) => Some(number.to_string()),
                Some(value) => Some(value.text("message_id")?.into_owned()),
                None => None,
            },
            ts: match self.ts {
                Some(Json::Number(number)) => number.as_f64(),
                Some(value) => Some(instant(&value, "ts")?.as_microsecond() as f64 / 1e3),
                None => None,
            },
        })
    }
}

/// Reads a line, with or without the newline at its end.
pub fn parse(bytes: &[u8]) -> Result<Line, WireError> {
    LineFields::from_bytes(bytes)?.into_line()
}

/// Writes a line with its newline; there is none inside it.
pub fn write(line: &Line) -> Result<Vec<u8>, WireError> {
    let written = FileLine {
        role: &line.role,
        content: &line.content,
        sender: &line.sender,
        message_id: line.message_id.as_deref(),
        ts: line.ts.and_then(whole_millis),
    };
    ended(compact(&written, 160 + line.content.len() + line.content.len() / 8)?)
}

#[derive(Serialize)]
struct FileLine<'a> {
    role: &'a str,
    content: &'a str,
    sender: &'a str,
    /// Written as `null` where there is none: readers find every field of the format.
    message_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<Number>,
}

/// Whole milliseconds without a decimal point, as most writers have them.
pub(crate) fn whole_millis(ts: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if ts.fract() == 0.0 && ts.abs() <= EXACT { Some((ts as i64).into()) } else { Number::from_f64(ts) }
}

/// Ends a line, and escapes what would end it for readers in other languages (Python's `splitlines` treats three characters
/// beyond ASCII as line ends; in JSON they can only be in strings).
fn ended(mut bytes: Vec<u8>) -> Result<Vec<u8>, WireError> {
    const ENDS: [(&[u8], &[u8]); 3] =
        [(b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029")];
    let ends = |bytes: &[u8]| ENDS.iter().find(|(bare, _)| bytes.starts_with(bare));
    // Both lead bytes are rare in most texts, so this check is all the cost.
    if bytes.iter().enumerate().any(|(at, byte)| matches!(byte, 0xc2 | 0xe2) && ends(&bytes[at..]).is_some()) {
        let mut escaped = Vec::with_capacity(bytes.len() + 64);
        let mut rest = bytes.as_slice();
        while let Some(first) = rest.first() {
            match ends(rest) {
                Some((bare, escape)) => {
                    escaped.extend_from_slice(escape);
                    rest = &rest[bare.len()..];
                }
                None => {
                    escaped.push(*first);
                    rest = &rest[1..];
                }
            }
        }
        bytes = escaped;
    }
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{arbitrary_bytes, mutated, retyped};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const SEED: &str =
        r#"{"role":"user","content":"继续","sender":"ou_123","message_id":"om_dc13","ts":1772706600123}"#;

    fn read(value: Value) -> Result<Line, WireError> {
        parse(value.to_string().as_bytes())
    }

    #[test]
    fn the_seeds_line_is_read_and_written_back_with_nothing_lost() {
        let line = parse(SEED.as_bytes()).unwrap();
        assert_eq!((line.sender.as_str(), line.ts), ("ou_123", Some(1_772_706_600_123.0)));
        let expected = format!("{SEED}\n");
        assert_eq!(write(&line).unwrap(), expected.as_bytes());
    }

    #[test]
    fn a_line_without_an_id_still_has_every_field() {
        let (role, content, sender) = ("assistant".into(), "done".into(), "coder".into());
        let line = Line { role, content, sender, author: None, message_id: None, ts: Some(1_772_706_600_123.0) };
        let text = r#"{"role":"assistant","content":"done","sender":"coder","message_id":null,"ts":1772706600123}"#;
        assert_eq!(write(&line).unwrap(), format!("{text}\n").as_bytes());
        assert_eq!(parse(text.as_bytes()), Ok(line));
    }

    #[test]
    fn lines_of_other_programs_are_understood() {
        let line = read(json!({"content": "x"})).unwrap();
        assert_eq!((line.role.as_str(), line.sender.as_str(), line.message_id, line.ts), ("user", "", None, None));
        let line = read(json!({"content": "x", "role": null, "message_id": 7, "ts": 1772706600123.25})).unwrap();
        assert_eq!((line.message_id.as_deref(), line.ts), (Some("7"), Some(1_772_706_600_123.25)));
        assert_eq!(
            read(json!({"content": "x", "ts": "2026-03-05T10:30:00.123Z"})).unwrap().ts,
            Some(1_772_706_600_123.0)
        );
    }

    #[test]
    fn an_error_names_the_field() {
        assert_eq!(read(json!({"role": "user"})), Err(WireError::missing("content")));
        for field in ["role", "content", "sender", "message_id", "ts"] {
            let mut line = json!({"content": "x"});
            line[field] = json!([]);
            assert!(read(line).unwrap_err().to_string().contains(field));
        }
        for bad in [&b""[..], b"\n", b"null", b"{\"content\":\"cut"] {
            assert!(parse(bad).is_err());
        }
    }

    proptest! {
        #[test]
        fn a_line_written_is_the_line_read_and_stays_one_line(
            texts in prop::array::uniform3(any::<String>()), message_id in prop::option::of(any::<String>()),
            ts in prop::option::of(prop_oneof![-1e17..1e17, (0_i64..4_000_000_000_000).prop_map(|ms| ms as f64)]),
        ) {
            let [role, content, sender] = texts.map(|text| text + "\n\r\u{2028}\u{2029}\u{85}");
            let line = Line { role, content, sender, author: None, message_id, ts };
            let bytes = write(&line).unwrap();
            prop_assert_eq!(bytes.iter().filter(|b| matches!(b, b'\n' | b'\r')).count(), 1);
            let ends = ['\u{85}', '\u{2028}', '\u{2029}'];
            prop_assert!(!String::from_utf8_lossy(&bytes).contains(ends));
            prop_assert_eq!(&parse(&bytes).unwrap(), &line);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in arbitrary_bytes(), a in mutated(SEED), b in retyped(SEED)) {
            for bytes in [bytes, a, b] {
                if let Ok(line) = parse(&bytes) {
                    prop_assert_eq!(parse(&write(&line).unwrap()), Ok(line));
                }
            }
        }
    }
}
