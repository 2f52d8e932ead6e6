//! Timestamps of other systems: texts in several forms, numbers in several units. The original form is kept.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};
use serde_json::{Number, Value};

use super::WireError;
use super::json::wrong_type;

/// An instant with the form in which it was written, so that writing it back changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Stamp {
    at: Timestamp,
    original: StampForm,
}

#[derive(Debug, Clone, PartialEq)]
enum StampForm {
    /// A timestamp of ours, written by [`strict`].
    Strict,
    Text(Box<str>),
    Number(Number),
}

impl Stamp {
    /// A timestamp of ours for this instant.
    pub fn now(at: Timestamp) -> Self {
        Self { at, original: StampForm::Strict }
    }

    /// The instant.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Parses a string or a number.
    pub fn from_value(value: &Value) -> Option<Self> {
        let (at, original) = match value {
            Value::String(text) => (parse_text(text)?, StampForm::Text(text.as_str().into())),
            Value::Number(number) => (parse_number(number)?, StampForm::Number(number.clone())),
            _ => return None,
        };
        Some(Self { at, original })
    }
}

/// The instant of a field.
pub(crate) fn instant(value: &Value, field: &'static str) -> Result<Timestamp, WireError> {
    let at = match value {
        Value::String(text) => parse_text(text),
        Value::Number(number) => parse_number(number),
        other => return Err(wrong_type(other, field, "a timestamp")),
    };
    at.ok_or_else(|| WireError::field(field, "should be a timestamp such as 2026-04-26T10:00:00Z or unix seconds"))
}

/// Parses RFC 3339 with `Z` or an offset, the same without an offset (taken as UTC, as Python's naive `isoformat()`
/// writes it), or a unix time in digits.
fn parse_text(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(at) = text.parse() {
        return Some(at);
    }
    if let Some(digits) = text.split('.').next()
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
    {
        return if digits.len() == text.len() { parse_digits(digits) } else { parse_float(text.parse().ok()?) };
    }
    Offset::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok()
}

/// Parses unix seconds, milliseconds, microseconds or nanoseconds, by the count of digits.
fn parse_number(number: &Number) -> Option<Timestamp> {
    match number.as_i64() {
        Some(whole) => in_unit_of(whole, whole.unsigned_abs().checked_ilog10().map_or(1, |digits| digits + 1)),
        None => parse_float(number.as_f64()?),
    }
}

/// Parses the digits of a field or a file name. Leading zeros count: our own file names have them before 2001.
pub(crate) fn parse_digits(digits: &str) -> Option<Timestamp> {
    in_unit_of(digits.parse().ok()?, u32::try_from(digits.len()).ok()?)
}

fn in_unit_of(value: i64, digits: u32) -> Option<Timestamp> {
    match digits {
        0..=11 => Timestamp::from_second(value).ok(),
        12..=14 => Timestamp::from_millisecond(value).ok(),
        15..=17 => Timestamp::from_microsecond(value).ok(),
        _ => Timestamp::from_nanosecond(i128::from(value)).ok(),
    }
}

fn parse_float(value: f64) -> Option<Timestamp> {
    let nanos_per_unit = match value.abs() {
        v if v < 1e11 => 1e9,
        v if v < 1e14 => 1e6,
        v if v < 1e17 => 1e3,
        v if v < 1e19 => 1.0,
        _ => return None,
    };
    // Whole and fraction separately: a product of both would lose the last digits.
    let whole = value.trunc() as i128 * nanos_per_unit as i128;
    // A float of unix seconds is exact to a fraction of a microsecond; smaller digits are noise.
    let fraction = (value.fract() * nanos_per_unit / 1e3).round() as i128 * 1_000;
    Timestamp::from_nanosecond(whole + fraction).ok()
}

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, ser: S) -> Result<S::Ok, S::Error> {
        match &self.original {
            StampForm::Strict => strict(&self.at, ser),
            StampForm::Text(text) => ser.serialize_str(text),
            StampForm::Number(number) => number.serialize(ser),
        }
    }
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(de)?;
        Self::from_value(&value).ok_or_else(|| D::Error::custom("a timestamp was expected"))
    }
}

/// Serializes an instant in the one form that we write: RFC 3339 in UTC with `Z`, and 0, 3, 6 or 9 digits of a second,
/// so that readers that know only milliseconds or microseconds understand it whenever that is enough.
pub(crate) fn strict<S: Serializer>(at: &Timestamp, ser: S) -> Result<S::Ok, S::Error> {
    let digits = match at.subsec_nanosecond() {
        0 => 0,
        nanos if nanos % 1_000_000 == 0 => 3,
        nanos if nanos % 1_000 == 0 => 6,
        _ => 9,
    };
    ser.collect_str(&format_args!("{at:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn ts(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn every_form_of_an_instant_is_parsed_and_kept() {
        let at = ts("2026-04-26T10:00:00Z");
        for value in [
            json!("2026-04-26T10:00:00Z"),
            json!("2026-04-26T10:00:00+00:00"),
            json!("2026-04-26T12:00:00+02:00"),
            json!("2026-04-26T04:30:00-05:30"),
            json!("2026-04-26 10:00:00Z"),
            json!("2026-04-26T10:00:00"),
            json!("2026-04-26T10:00:00.000000+00:00"),
            json!(1777197600),
            json!(1777197600.0),
            json!(1777197600000_i64),
            json!(1777197600000000_i64),
            json!(1777197600000000000_i64),
            json!("1777197600"),
            json!("1777197600.0"),
            json!("1777197600000"),
            json!("1777197600000000"),
        ] {
            let stamp = Stamp::from_value(&value).unwrap_or_else(|| panic!("{value} does not parse"));
            assert_eq!(stamp.at(), at, "{value}");
            assert_eq!(serde_json::to_value(&stamp).unwrap(), value);
            assert_eq!(serde_json::from_value::<Stamp>(value).unwrap(), stamp);
        }
    }

    #[test]
    fn fractions_are_kept_to_their_last_digit() {
        let whole = ts("2026-11-15T19:41:13.620167Z");
        for value in [json!("2026-11-15T19:41:13.620167+00:00"), json!(1794771673.620167), json!(1794771673620.167)] {
            assert_eq!(Stamp::from_value(&value).unwrap().at(), whole, "{value}");
        }
        assert_eq!(Stamp::from_value(&json!(1794771673620_u64)).unwrap().at(), ts("2026-11-15T19:41:13.620Z"));
    }

    #[test]
    fn other_values_are_refused() {
        for value in [
            json!("yesterday"),
            json!(""),
            json!("."),
            json!(null),
            json!([1]),
            json!(1e300),
            json!("2026-13-01T00:00:00Z"),
        ] {
            assert!(Stamp::from_value(&value).is_none(), "{value}");
        }
    }

    #[test]
    fn our_own_form_is_utc_with_as_many_digits_as_needed() {
        for text in [
            "2026-04-26T10:00:00Z",
            "2026-04-26T10:00:00.120Z",
            "2026-04-26T10:00:00.000120Z",
            "2026-04-26T10:00:00.000000120Z",
            "0001-01-01T00:00:00Z",
        ] {
            assert_eq!(serde_json::to_value(Stamp::now(ts(text))).unwrap(), json!(text));
        }
    }

    proptest! {
        #[test]
        fn our_own_form_round_trips(seconds in -377_000_000_000_i64..253_000_000_000, nanos in 0..1_000_000_000_i32) {
            let at = Timestamp::new(seconds, nanos).unwrap();
            prop_assert_eq!(Stamp::from_value(&json!(Stamp::now(at))).unwrap().at(), at);
        }

        #[test]
        fn arbitrary_texts_and_numbers_do_not_panic(text in ".{0,40}", number in any::<f64>(), whole in any::<i64>()) {
            let _ = Stamp::from_value(&json!(text));
            let _ = Stamp::from_value(&json!(number.to_string()));
            let _ = Stamp::from_value(&json!(whole));
            let _ = Stamp::from_value(&json!(number));
        }
    }
}
