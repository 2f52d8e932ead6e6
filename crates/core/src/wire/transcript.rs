//! One line of a transcript file: `{"role","content","sender","message_id","ts"}`.

use serde::Serialize;
use serde_json::{Number, Value};

use super::stamp::instant;
use super::{WireError, json};
use crate::transcript::Line;

/// Reads a line, with or without the newline at its end.
pub fn parse(bytes: &[u8]) -> Result<Line, WireError> {
    let mut fields = json::parse(bytes)?;
    let mut take = |name| json::take(&mut fields, name);
    let text = |value, field, default: &str| match value {
        Some(value) => json::string(value, field),
        None => Ok(default.to_owned()),
    };
    Ok(Line {
        // Lines without a role exist; all seen so far were of people.
        role: text(take("role"), "role", "user")?,
        content: json::string(take("content").ok_or_else(|| WireError::missing("content"))?, "content")?,
        sender: text(take("sender"), "sender", "")?,
        // The sender in a file is the writer's own claim.
        author: None,
        message_id: match take("message_id") {
            Some(Value::Number(number)) => Some(number.to_string()),
            Some(value) => Some(json::string(value, "message_id")?),
            None => None,
        },
        ts: match take("ts") {
            Some(Value::Number(number)) => number.as_f64(),
            Some(value) => Some(instant(&value, "ts")?.as_microsecond() as f64 / 1e3),
            None => None,
        },
    })
}

/// Writes a line with its newline, which is the only one in it.
pub fn write(line: &Line) -> Result<Vec<u8>, WireError> {
    let written = FileLine {
        role: &line.role,
        content: &line.content,
        sender: &line.sender,
        message_id: line.message_id.as_deref(),
        ts: line.ts.and_then(whole_millis),
    };
    let mut text = serde_json::to_string(&written).map_err(|error| WireError::NotJson(error.to_string()))?;
    for (line_end, escape) in ESCAPED {
        if text.contains(line_end) {
            text = text.replace(line_end, escape);
        }
    }
    text.push('\n');
    Ok(text.into())
}

/// Characters beyond ASCII that end a line for readers in other languages, such as Python's `splitlines`. In JSON they
/// can only be in strings.
const ESCAPED: [(char, &str); 3] = [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];

#[derive(Serialize)]
struct FileLine<'a> {
    role: &'a str,
    content: &'a str,
    sender: &'a str,
    /// Written as `null` if there is none, since readers expect every field of the format.
    message_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<Number>,
}

/// The number without a decimal point if it is whole, as most writers have it.
pub(crate) fn whole_millis(ts: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if ts.fract() == 0.0 && ts.abs() <= EXACT { Some((ts as i64).into()) } else { Number::from_f64(ts) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::{arbitrary_bytes, mutated, retyped};
    use proptest::prelude::*;
    use serde_json::json;

    const SEED: &str =
        r#"{"role":"user","content":"继续","sender":"ou_123","message_id":"om_dc13","ts":1772706600123}"#;

    fn read(value: Value) -> Result<Line, WireError> {
        parse(value.to_string().as_bytes())
    }

    #[test]
    fn the_line_of_the_description_round_trips() {
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
    fn lines_of_other_programs_are_read() {
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
        fn lines_round_trip_and_stay_one_line(
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
        fn arbitrary_bytes_do_not_panic(bytes in arbitrary_bytes(), a in mutated(SEED), b in retyped(SEED)) {
            for bytes in [bytes, a, b] {
                if let Ok(line) = parse(&bytes) {
                    prop_assert_eq!(parse(&write(&line).unwrap()), Ok(line));
                }
            }
        }
    }
}
