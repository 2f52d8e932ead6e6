//! A tool's arguments, parsed once, with errors a model can act on.

use amb_core::OfficeError;
use rmcp::model::JsonObject;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Parses the arguments of a call. Unknown fields are refused: a field that does nothing would be silently accepted.
pub(crate) fn parse<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, OfficeError> {
    serde_json::from_value(Value::Object(arguments.unwrap_or_default()))
        .map_err(|error| OfficeError::invalid(format!("the arguments do not fit: {error}")))
}

/// Optional text. Models fill optional fields with empty text, which counts as absent.
pub(crate) fn filled<'de, D: Deserializer<'de>>(de: D) -> Result<Option<String>, D::Error> {
    let text: Option<String> = Option::deserialize(de)?;
    Ok(text.filter(|text| !text.trim().is_empty()))
}

/// A count that may come as a number or as its digits.
pub(crate) fn count<'de, D: Deserializer<'de>>(de: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum CountForm {
        Number(f64),
        Text(String),
    }
    let wrong = || serde::de::Error::custom("a count is a whole number from 0");
    let number = match Option::<CountForm>::deserialize(de)? {
        None => return Ok(None),
        Some(CountForm::Text(text)) if text.trim().is_empty() => return Ok(None),
        Some(CountForm::Text(text)) => text.trim().parse().map_err(|_| wrong())?,
        Some(CountForm::Number(number)) => number,
    };
    if number.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&number) {
        return Err(wrong());
    }
    // In range and whole, so the cast is exact.
    Ok(Some(number as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct TestArguments {
        #[serde(default, deserialize_with = "count")]
        limit: Option<u32>,
        #[serde(default, deserialize_with = "filled")]
        note: Option<String>,
    }

    fn sample(json: Value) -> Result<TestArguments, OfficeError> {
        parse(json.as_object().cloned())
    }

    #[test]
    fn null_and_blank_values_count_as_absent() {
        for json in
            [serde_json::json!({}), serde_json::json!({"limit": null, "note": " "}), serde_json::json!({"limit": ""})]
        {
            let sample = sample(json).unwrap();
            assert!(sample.limit.is_none() && sample.note.is_none());
        }
    }

    #[test]
    fn a_count_may_be_a_number_or_its_digits_and_nothing_else() {
        assert_eq!(sample(serde_json::json!({"limit": 5})).unwrap().limit, Some(5));
        assert_eq!(sample(serde_json::json!({"limit": "5"})).unwrap().limit, Some(5));
        for bad in [serde_json::json!(-1), serde_json::json!(1.5), serde_json::json!("many"), serde_json::json!([])] {
            assert!(sample(serde_json::json!({"limit": bad})).is_err());
        }
    }

    #[test]
    fn an_unknown_argument_is_named_in_the_error() {
        let error = sample(serde_json::json!({"lmit": 5})).unwrap_err();
        assert!(error.detail().contains("lmit"), "{error}");
    }
}
