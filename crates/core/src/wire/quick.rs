//! The quick way to write a live message, and to read it in exactly that form, field after field. These are most of the
//! work of a process that passes many of them on.
//!
//! Whatever looks different is left to the general reader, which then decides; so reading here may refuse anything, but
//! must never read something else than that reader would. What is written is to the byte what serde writes.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use uuid::Uuid;

use super::WireError;
use super::inbox::InboxMessage;
use super::stamp::Strict;
use crate::id::GoalId;

/// Writes a message, piece by piece.
pub(super) fn write(message: &InboxMessage, mut put: impl FnMut(&[u8])) -> Result<(), WireError> {
    let uuid = &mut [0; 38];
    put(br#"{"from_agent_id":"#);
    put_string(&message.from_agent_id, &mut put)?;
    put(br#","from_goal_id":"#);
    put(quoted(message.from_goal_id.0, uuid));
    put(br#","to_agent_id":"#);
    put_string(&message.to_agent_id, &mut put)?;
    put(br#","body":"#);
    put_string(&message.body, &mut put)?;
    put(br#","sent_at":""#);
    let year = || WireError::field("sent_at", "should be in the years 0 to 9999");
    put(Strict(message.sent_at).write(&mut [0; 30]).ok_or_else(year)?.as_bytes());
    put(b"\"");
    if let Some(id) = message.correlation_id {
        put(br#","correlation_id":"#);
        put(quoted(id, uuid));
    }
    put(b"}");
    Ok(())
}

fn put_string(text: &str, put: &mut impl FnMut(&[u8])) -> Result<(), WireError> {
    if is_plain(text) && !text.contains('"') {
        put(b"\"");
        put(text.as_bytes());
        put(b"\"");
    } else {
        put(&serde_json::to_vec(text).map_err(|error| WireError::NotJson(error.to_string()))?);
    }
    Ok(())
}

fn quoted(id: Uuid, buffer: &mut [u8; 38]) -> &[u8] {
    buffer[0] = b'"';
    id.hyphenated().encode_lower(&mut buffer[1..37]);
    buffer[37] = b'"';
    buffer
}

/// Reads a message in our own form. `None` says nothing about the bytes.
pub(super) fn read(bytes: &[u8]) -> Option<InboxMessage> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (from_agent_id, text) = plain(text.strip_prefix(r#"{"from_agent_id":""#)?)?;
    let (from_goal_id, text) = plain(text.strip_prefix(r#","from_goal_id":""#)?)?;
    let (to_agent_id, text) = plain(text.strip_prefix(r#","to_agent_id":""#)?)?;
    let (body, text) = string(text.strip_prefix(r#","body":"#)?)?;
    let (sent_at, text) = plain(text.strip_prefix(r#","sent_at":""#)?)?;
    let (correlation_id, text) = match text.strip_prefix(r#","correlation_id":""#) {
        None => (None, text),
        Some(text) => {
            let (id, text) = plain(text)?;
            (Some(Uuid::try_parse(id).ok()?), text)
        }
    };
    (text == "}").then_some(())?;
    Some(InboxMessage {
        from_agent_id: from_agent_id.into(),
        from_goal_id: GoalId(Uuid::try_parse(from_goal_id).ok()?),
        to_agent_id: to_agent_id.into(),
        body,
        sent_at: instant(sent_at.as_bytes())?,
        correlation_id,
    })
}

/// What stands before the closing quote, if it stands there as it is, and what follows the quote.
fn plain(text: &str) -> Option<(&str, &str)> {
    let (inside, after) = text.split_once('"')?;
    is_plain(inside).then_some((inside, after))
}

/// A string from its opening quote on, escapes and all, and what follows it.
fn string(text: &str) -> Option<(String, &str)> {
    if let Some((inside, after)) = plain(text.strip_prefix('"')?) {
        return Some((inside.into(), after));
    }
    let mut strings = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let inside = strings.next()?.ok()?;
    Some((inside, text.get(strings.byte_offset()..)?))
}

/// Whether JSON leaves these characters as they are. All are looked at, which is quicker than stopping at the first.
fn is_plain(text: &str) -> bool {
    !text.bytes().fold(false, |found, byte| found | (byte < 0x20) | (byte == b'\\'))
}

/// `2026-04-30T14:00:00Z`, or with up to nine digits of a second's fraction.
fn instant(text: &[u8]) -> Option<Timestamp> {
    let (whole, fraction) = text.strip_suffix(b"Z")?.split_at_checked(19)?;
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', i0, i1, b':', s0, s1] = *whole else {
        return None;
    };
    let nanosecond = match fraction {
        [] => 0,
        [b'.', digits @ ..] if (1..=9).contains(&digits.len()) => {
            number(digits)? * 10_i32.pow(9 - u32::try_from(digits.len()).ok()?)
        }
        _ => return None,
    };
    let two = |tens: u8, ones: u8| number(&[tens, ones])?.try_into().ok();
    let year = number(&[y0, y1, y2, y3])?.try_into().ok()?;
    let at =
        DateTime::new(year, two(m0, m1)?, two(d0, d1)?, two(h0, h1)?, two(i0, i1)?, two(s0, s1)?, nanosecond).ok()?;
    Offset::UTC.to_timestamp(at).ok()
}

fn number(digits: &[u8]) -> Option<i32> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::testing::mutated;
    use proptest::prelude::*;

    const OURS: &str = r#"{"from_agent_id":"a","from_goal_id":"b91c2d3a-0000-4000-8000-000000000001","to_agent_id":"b","body":"one\n\"two\"","sent_at":"2026-04-30T14:00:00.250Z","correlation_id":"7a3b2f00-0000-4000-8000-000000000002"}"#;

    fn message() -> impl Strategy<Value = InboxMessage> {
        let id = || any::<u128>().prop_map(Uuid::from_u128);
        // The second half of this range has whole seconds, the rest fractions of all lengths.
        let at = (0_i64..4_000_000_000, prop_oneof![Just(0_i64), 0_i64..1_000_000_000, Just(500_000_000)]);
        ("[a-z\"\\\\é]{1,8}", id(), "[a-z]{1,8}", any::<String>(), at, proptest::option::of(id())).prop_map(
            |(from, goal, to, body, (second, nanosecond), correlation_id)| InboxMessage {
                from_agent_id: from,
                from_goal_id: GoalId(goal),
                to_agent_id: to,
                body,
                sent_at: Timestamp::new(second, nanosecond as i32).unwrap(),
                correlation_id,
            },
        )
    }

    #[test]
    fn our_own_form_is_read() {
        let message = read(OURS.as_bytes()).unwrap();
        assert_eq!(message.body, "one\n\"two\"");
        assert_eq!(message.sent_at.to_string(), "2026-04-30T14:00:00.25Z");
        assert_eq!(message.write().unwrap(), OURS.as_bytes());
    }

    proptest! {
        #[test]
        fn what_we_write_is_what_serde_writes_and_is_read_back(message in message()) {
            let written = message.write().unwrap();
            prop_assert_eq!(&written, &serde_json::to_vec(&message).unwrap());
            match read(&written) {
                Some(read) => prop_assert_eq!(read, message),
                None => prop_assert!(message.from_agent_id.contains(['"', '\\']), "only names with escapes are left"),
            }
        }

        #[test]
        fn what_it_reads_the_general_reader_reads_in_the_same_way(bytes in mutated(OURS)) {
            if let Some(message) = read(&bytes) {
                prop_assert_eq!(InboxMessage::parse_any(&bytes).unwrap(), message);
            }
        }
    }
}
