//! The names of message files: time and sender, in the two layouts. Sorted by the parsed time, never as text, since
//! timestamps of different lengths mix in one mailbox.

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;

use super::stamp::parse_digits;
use crate::name::AgentName;

/// The ending of a nanobot message file.
pub const NANOBOT_ENDING: &str = ".msg.json";
/// The ending of a chipset mail file.
pub const CHIPSET_ENDING: &str = ".json";

/// The parsed name of a message file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileName<'a> {
    /// When it was sent. Sort by this, then by the name.
    pub at: Timestamp,
    /// What follows the timestamp: the sender, for nanobot perhaps with a suffix that only makes the name unique.
    pub rest: &'a str,
}

impl FileName<'_> {
    /// Whether a message of this sender could have this file name. A name may itself end like a suffix, so the sender
    /// cannot be read from the file name alone, only compared with what the file says.
    pub fn is_from(&self, sender: &AgentName) -> bool {
        match self.rest.strip_prefix(sender.as_str()) {
            Some("") => true,
            Some(suffix) => suffix.strip_prefix('_').is_some_and(is_suffix),
            None => false,
        }
    }
}

fn is_suffix(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The name of a new nanobot message file: `{unix_ms}_{from}.msg.json`.
pub fn nanobot(at: Timestamp, from: &AgentName) -> String {
    // Thirteen digits also before 2001, so that they are not taken for seconds.
    format!("{:013}_{from}{NANOBOT_ENDING}", at.as_millisecond().max(0))
}

/// The name of a new nanobot message file if that one is taken: `{unix_ms}_{from}_{8 hex}.msg.json`.
pub fn nanobot_with_suffix(at: Timestamp, from: &AgentName, suffix: u32) -> String {
    format!("{:013}_{from}_{suffix:08x}{NANOBOT_ENDING}", at.as_millisecond().max(0))
}

/// Reads `{unix}_{from}[_{8 hex}].msg.json` with seconds, milliseconds or microseconds.
pub fn parse_nanobot(name: &str) -> Option<FileName<'_>> {
    let (digits, rest) = name.strip_suffix(NANOBOT_ENDING)?.split_once('_')?;
    if rest.is_empty() || digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(FileName { at: parse_digits(digits)?, rest })
}

/// The name of a new chipset mail file: `2026-03-05T10-30-00.123Z-{from}.json`.
///
/// `attempt` is 0 at first; when the name is taken, 1 gives more digits of the second, 2 all of them, and every further
/// one the next nanosecond, so that some attempt succeeds however full the mailbox is.
pub fn chipset(at: Timestamp, from: &AgentName, attempt: u32) -> String {
    let digits = match attempt {
        0 => 3,
        1 => 6,
        _ => 9,
    };
    let later = jiff::SignedDuration::from_nanos(i64::from(attempt.saturating_sub(2)));
    let at = at.checked_add(later).unwrap_or(at);
    let stamp = format!("{at:.digits$}").replace(':', "-");
    format!("{stamp}-{from}{CHIPSET_ENDING}")
}

/// Reads `{ISO stamp with dashes for colons}-{from}.json`, with or without a fraction of a second; `Z`, an offset or
/// neither (taken as UTC) may end the stamp.
pub fn parse_chipset(name: &str) -> Option<FileName<'_>> {
    let stem = name.strip_suffix(CHIPSET_ENDING)?;
    let bytes = stem.as_bytes();
    let number = |from: usize, len: usize| -> Option<i16> {
        let digits = bytes.get(from..from + len)?;
        let all = digits.iter().all(u8::is_ascii_digit);
        all.then(|| digits.iter().fold(0, |value, digit| value * 10 + i16::from(digit - b'0')))
    };
    let small = |from| i8::try_from(number(from, 2)?).ok();
    let divided = |at: usize, allowed: &[u8]| bytes.get(at).is_some_and(|b| allowed.contains(b));
    if !(divided(4, b"-") && divided(7, b"-") && divided(10, b"Tt_ ") && divided(13, b"-:") && divided(16, b"-:")) {
        return None;
    }
    let date = Date::new(number(0, 4)?, small(5)?, small(8)?).ok()?;
    let (mut nanos, mut end) = (0_i32, 19);
    if divided(end, b".,") {
        end += 1;
        let mut unit = 100_000_000;
        while let Some(digit) = bytes.get(end).filter(|b| b.is_ascii_digit()) {
            nanos += i32::from(digit - b'0') * unit;
            unit /= 10;
            end += 1;
        }
    }
    let time = Time::new(small(11)?, small(14)?, small(17)?, nanos).ok()?;
    let mut offset = Offset::UTC;
    if divided(end, b"Zz") {
        end += 1;
    } else if divided(end, b"+-") && divided(end + 3, b"-:") && divided(end + 6, b"-") {
        // `+02-00-mayor`. A sender whose name looks like an offset is misread only where the timestamp has no zone.
        if let (Some(hours), Some(minutes)) = (small(end + 1), small(end + 4)) {
            let seconds = i32::from(hours) * 3_600 + i32::from(minutes) * 60;
            offset = Offset::from_seconds(if divided(end, b"-") { -seconds } else { seconds }).ok()?;
            end += 6;
        }
    }
    // Everything up to here was ASCII, so this is a character boundary.
    let rest = stem.get(end..)?.strip_prefix('-').filter(|rest| !rest.is_empty())?;
    Some(FileName { at: offset.to_timestamp(date.to_datetime(time)).ok()?, rest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ts(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn name(text: &str) -> AgentName {
        text.parse().unwrap()
    }

    #[test]
    fn nanobot_names_of_ten_thirteen_and_sixteen_digits_sort_by_time() {
        let mut names = [
            "1745659202_coder.msg.json",
            "1745659201500000_coder.msg.json",
            "1745659201000_coder_1a2b3c4d.msg.json",
            "1745659200_coder.msg.json",
        ];
        names.sort_by_key(|name| parse_nanobot(name).unwrap().at);
        assert_eq!(names.map(|n| &n[..10]), ["1745659200", "1745659201", "1745659201", "1745659202"]);
        assert_eq!(parse_nanobot(names[0]).unwrap().at, ts("2025-04-26T09:20:00Z"));
    }

    #[test]
    fn a_file_name_is_compared_with_a_sender() {
        let plain = parse_nanobot("1745659200_my_agent-2.msg.json").unwrap();
        assert!(plain.is_from(&name("my_agent-2")) && !plain.is_from(&name("my")));
        let suffixed = parse_nanobot("1745659200000_coder_deadbeef.msg.json").unwrap();
        assert!(suffixed.is_from(&name("coder")) && suffixed.is_from(&name("coder_deadbeef")));
        assert!(!suffixed.is_from(&name("code")) && !suffixed.is_from(&name("coder_dead")));
    }

    #[test]
    fn a_taken_nanobot_name_gets_a_suffix() {
        let at = ts("2026-11-15T19:41:13.620167Z");
        assert_eq!(nanobot(at, &name("alpha")), "1794771673620_alpha.msg.json");
        assert_eq!(nanobot_with_suffix(at, &name("alpha"), 0xbeef), "1794771673620_alpha_0000beef.msg.json");
    }

    #[test]
    fn chipset_names_with_and_without_a_fraction_sort_by_time() {
        let mut names = ["2026-03-05T10-30-00.123Z-mayor-a1b2c.json", "2026-03-05T10-30-00Z-mayor-a1b2c.json"];
        names.sort_by_key(|name| parse_chipset(name).unwrap().at);
        assert!(names[0].contains("00Z"), "as text the fraction would come first");
        for (file, at, from) in [
            ("2026-03-05T10-30-00Z-mayor-a1b2c.json", "2026-03-05T10:30:00Z", "mayor-a1b2c"),
            ("2026-03-05T10-32-00.123456789Z-polecat-alpha.json", "2026-03-05T10:32:00.123456789Z", "polecat-alpha"),
            ("2026-03-05T12-30-00+02-00-witness.json", "2026-03-05T10:30:00Z", "witness"),
            ("2026-03-05T05-30-00.5-05-00-witness.json", "2026-03-05T10:30:00.5Z", "witness"),
            ("2026-03-05T10-30-00-3-amigos.json", "2026-03-05T10:30:00Z", "3-amigos"),
            ("2026-03-05T10:30:00Z-mayor.json", "2026-03-05T10:30:00Z", "mayor"),
            ("2026-03-05T10-30-00Z-2026-03-05.json", "2026-03-05T10:30:00Z", "2026-03-05"),
        ] {
            let parsed = parse_chipset(file).unwrap_or_else(|| panic!("{file}"));
            assert_eq!((parsed.at, parsed.rest), (ts(at), from), "{file}");
            assert!(parsed.is_from(&name(from)));
        }
    }

    #[test]
    fn a_taken_chipset_name_gets_more_digits() {
        let at = ts("2026-03-05T10:30:00.1234567Z");
        let names: Vec<_> = (0..4).map(|attempt| chipset(at, &name("mayor"), attempt)).collect();
        assert_eq!(
            names,
            [
                "2026-03-05T10-30-00.123Z-mayor.json",
                "2026-03-05T10-30-00.123456Z-mayor.json",
                "2026-03-05T10-30-00.123456700Z-mayor.json",
                "2026-03-05T10-30-00.123456701Z-mayor.json",
            ]
        );
        assert_eq!(chipset(ts("2026-03-05T10:30:00Z"), &name("mayor"), 0), "2026-03-05T10-30-00.000Z-mayor.json");
    }

    #[test]
    fn other_file_names_do_not_parse() {
        for file in [
            "",
            ".msg.json",
            "_.msg.json",
            "x_y.msg.json",
            "1745659200.msg.json",
            "1745659200_.msg.json",
            "1745659200_a.json",
        ] {
            assert!(parse_nanobot(file).is_none(), "{file}");
        }
        for file in [
            "",
            ".json",
            ".msg.tmp",
            "latest.json",
            "2026-03-05-mayor.json",
            "2026-13-05T10-30-00Z-a.json",
            "2026-03-05T10-30-00Z.json",
        ] {
            assert!(parse_chipset(file).is_none(), "{file}");
        }
    }

    proptest! {
        #[test]
        fn file_names_round_trip(
            seconds in 0_i64..60_000_000_000, nanos in 0..1_000_000_000_i32, from in "[a-z0-9A-Z][a-zA-Z0-9._-]{0,20}",
            suffix in any::<u32>(), attempt in 0_u32..5,
        ) {
            let (at, from) = (Timestamp::new(seconds, nanos).unwrap(), name(&from));
            for file in [nanobot(at, &from), nanobot_with_suffix(at, &from, suffix)] {
                let parsed = parse_nanobot(&file).unwrap();
                prop_assert_eq!(parsed.at.as_millisecond(), at.as_millisecond());
                prop_assert!(parsed.is_from(&from));
            }
            let file = chipset(at, &from, attempt);
            let parsed = parse_chipset(&file).unwrap();
            prop_assert_eq!(parsed.rest, from.as_str());
            let late = parsed.at.duration_since(at).abs();
            prop_assert!(late < jiff::SignedDuration::from_millis(1));
        }

        #[test]
        fn arbitrary_names_do_not_panic(name in ".{0,60}", near in "2026-03-05T10-30-00.{0,20}") {
            let _ = (parse_nanobot(&name), parse_chipset(&name));
            let _ = parse_chipset(&format!("{near}.json"));
            let _ = parse_nanobot(&format!("{near}.msg.json"));
        }
    }
}
