//! JSON of other programs: strings borrowed from the bytes, and the fields that a format knows picked from an object.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::WireError;
use crate::Object;

/// One JSON value. Strings without escapes are not copied.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    Text(Cow<'a, str>),
    /// An array.
    List(Vec<Json<'a>>),
    /// An object.
    Map(Fields<'a>),
}

/// The fields of an object, in the order of the file. Of two with one name the later counts, as in most readers.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Fields<'a>(pub(crate) Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> Fields<'a> {
    /// Reads an object. A byte order mark before it is skipped.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        match serde_json::from_str(text(bytes)?).map_err(|error| WireError::NotJson(error.to_string()))? {
            Json::Map(fields) => Ok(fields),
            other => Err(WireError::NotAnObject(other.what())),
        }
    }

    /// The value of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&Json<'a>> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Takes a field out and leaves `null` in its place.
    pub(crate) fn take(&mut self, name: &str) -> Option<Json<'a>> {
        let (_, value) = self.0.iter_mut().rev().find(|(key, _)| key == name)?;
        Some(std::mem::replace(value, Json::Null))
    }

    /// Converts it to a serde_json object.
    pub(crate) fn into_object(self) -> Object {
        self.0.into_iter().map(|(key, value)| (key.into_owned(), value.into_value())).collect()
    }
}

impl<'a> Json<'a> {
    /// The name of its type, for an error message.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::Text(_) => "a string",
            Json::List(_) => "an array",
            Json::Map(_) => "an object",
        }
    }

    /// The string, if it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Converts it to a serde_json value.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(value),
            Json::Number(number) => Value::Number(number),
            Json::Text(text) => Value::String(text.into_owned()),
            Json::List(items) => Value::Array(items.into_iter().map(Json::into_value).collect()),
            Json::Map(fields) => Value::Object(fields.into_object()),
        }
    }

    /// `None` for `null`: most writers mean "nothing" by it.
    pub(crate) fn some(self) -> Option<Self> {
        match self {
            Json::Null => None,
            other => Some(other),
        }
    }

    pub(crate) fn wrong(&self, field: &'static str, wanted: &str) -> WireError {
        WireError::field(field, format!("should be {wanted}, not {}", self.what()))
    }

    pub(crate) fn text(self, field: &'static str) -> Result<Cow<'a, str>, WireError> {
        match self {
            Json::Text(text) => Ok(text),
            other => Err(other.wrong(field, "a string")),
        }
    }

    pub(crate) fn list(self, field: &'static str) -> Result<Vec<Json<'a>>, WireError> {
        match self {
            Json::List(items) => Ok(items),
            other => Err(other.wrong(field, "an array")),
        }
    }

    pub(crate) fn map(self, field: &'static str) -> Result<Fields<'a>, WireError> {
        match self {
            Json::Map(fields) => Ok(fields),
            other => Err(other.wrong(field, "an object")),
        }
    }

    /// A count that other programs may have written as `3`, `3.0`, `-1` or something far too large.
    pub(crate) fn clamped(self, field: &'static str, max: u32) -> Result<u32, WireError> {
        match self {
            Json::Number(number) => {
                let value = number.as_f64().unwrap_or(0.0).clamp(0.0, f64::from(max));
                // In range by the line above, and never NaN, which JSON does not have.
                Ok(value as u32)
            }
            other => Err(other.wrong(field, "a number")),
        }
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Json<'de>, E> {
        Number::from_f64(value).map(Json::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            fields.push((key, map.next_value()?));
        }
        Ok(Json::Map(Fields(fields)))
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        de.deserialize_any(JsonVisitor)
    }
}

/// A field's name; serde's own `Cow` would always copy it.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        de.deserialize_str(KeyVisitor)
    }
}

/// The fields that a format knows, taken from an object one by one. Of two with one name the later counts.
pub(crate) trait Pick<'a>: Default {
    /// Takes the value if the field is known.
    fn pick(&mut self, key: &str, value: Json<'a>);

    /// Picks from a document.
    fn from_fields(fields: Fields<'a>) -> Self {
        let mut picked = Self::default();
        for (key, value) in fields.0 {
            picked.pick(&key, value);
        }
        picked
    }

    /// Picks straight from the bytes, for readers that need no document.
    fn from_bytes(bytes: &'a [u8]) -> Result<Self, WireError> {
        match serde_json::from_str(text(bytes)?) {
            Ok(Picked(picked)) => Ok(picked),
            // The slower way reports what is wrong.
            Err(_) => Fields::parse(bytes).map(Self::from_fields),
        }
    }
}

/// Declares the fields that a format knows, each with its name in the JSON. `null` counts as missing.
macro_rules! known_fields {
    ($name:ident { $($field:ident: $key:literal),* $(,)? }) => {
        #[derive(Default)]
        struct $name<'a> {
            $($field: Option<Json<'a>>,)*
        }

        impl<'a> Pick<'a> for $name<'a> {
            fn pick(&mut self, key: &str, value: Json<'a>) {
                match key {
                    $($key => self.$field = value.some(),)*
                    _ => {}
                }
            }
        }
    };
}
pub(super) use known_fields;

/// The bytes as text, validated once and not string by string. Some editors write a byte order mark first.
fn text(bytes: &[u8]) -> Result<&str, WireError> {
    let text = std::str::from_utf8(bytes).map_err(|error| WireError::NotJson(error.to_string()))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

struct Picked<T>(T);

impl<'de, T: Pick<'de>> Deserialize<'de> for Picked<T> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct PickVisitor<T>(T);
        impl<'de, T: Pick<'de>> Visitor<'de> for PickVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<T, A::Error> {
                while let Some(Key(key)) = map.next_key()? {
                    self.0.pick(&key, map.next_value()?);
                }
                Ok(self.0)
            }
        }
        de.deserialize_map(PickVisitor(T::default())).map(Picked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_escapes_is_copied() {
        let text = r#"{"z":1,"a":"plain","b":"new\nline","n":[null,true,-2,0.5],"o":{"k":{}}}"#;
        let fields = Fields::parse(text.as_bytes()).unwrap();
        assert!(matches!(fields.get("a"), Some(Json::Text(Cow::Borrowed("plain")))));
        assert!(matches!(fields.get("b"), Some(Json::Text(Cow::Owned(_)))));
        assert_eq!(Value::Object(fields.into_object()), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn what_is_no_object_is_said_to_be_none() {
        assert_eq!(Fields::parse(b"[]"), Err(WireError::NotAnObject("an array")));
        assert_eq!(Fields::parse(b"3"), Err(WireError::NotAnObject("a number")));
        assert!(matches!(Fields::parse(b""), Err(WireError::NotJson(_))));
        assert!(matches!(Fields::parse(b"{\"a\":1} x"), Err(WireError::NotJson(_))));
        assert!(matches!(Fields::parse("[".repeat(100_000).as_bytes()), Err(WireError::NotJson(_))));
        assert!(Fields::parse(b"\xef\xbb\xbf{}").is_ok(), "a byte order mark is skipped");
    }

    #[test]
    fn of_two_fields_with_one_name_the_later_counts() {
        let fields = Fields::parse(br#"{"a":1,"a":2}"#).unwrap();
        assert_eq!(fields.get("a"), Some(&Json::Number(2.into())));
    }
}
