//! API keys and other secrets.

use amb_core::OfficeError;
use amb_store::{KeyHash, NewKey};
use axum::http::{HeaderMap, header};

const API_KEY: &str = "x-api-key";
const KEY_PREFIX: &str = "amb_";
const TOKEN_PREFIX: &str = "ambh_";
/// Characters of a key that are stored in the clear, so that its owner can recognise it.
const SHOWN_CHARS: usize = 8;
/// Bytes of randomness in a secret.
const SECRET_BYTES: usize = 32;

/// An agent's key in the clear. Has neither `Debug` nor `Display`, so that it is never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Generates a random key.
    pub fn fresh() -> Result<Self, OfficeError> {
        Ok(Self(format!("{KEY_PREFIX}{}", new_secret()?)))
    }

    /// The whole key, shown to its owner once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The hash and prefix to store.
    pub fn to_keep(&self) -> NewKey {
        NewKey { hash: KeyHash::of(&self.0), prefix: self.shown().to_owned() }
    }

    /// The first characters, which are not secret.
    pub(crate) fn shown(&self) -> &str {
        &self.0[..SHOWN_CHARS]
    }
}

/// A household's token in the clear. Never logged, like a key.
#[derive(Clone, PartialEq, Eq)]
pub struct HouseholdToken(String);

impl HouseholdToken {
    /// Generates a random token.
    pub fn fresh() -> Result<Self, OfficeError> {
        Ok(Self(format!("{TOKEN_PREFIX}{}", new_secret()?)))
    }

    /// The whole token, shown to its owner once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The hash to store.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.0)
    }
}

/// Generates [`SECRET_BYTES`] random bytes, in hex.
pub(crate) fn new_secret() -> Result<String, OfficeError> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(OfficeError::internal)?;
    Ok(hex::encode(bytes))
}

/// Whether a text has the form of a [`new_secret`].
pub(crate) fn is_secret(text: &str) -> bool {
    text.len() == 2 * SECRET_BYTES && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a text has the form of a key. Any other text is not looked up.
pub(crate) fn is_key_shaped(text: &str) -> bool {
    text.strip_prefix(KEY_PREFIX).is_some_and(is_secret)
}

/// Returns the key in the headers: `X-API-Key`, or `Authorization: Bearer`.
pub(crate) fn key_in(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(API_KEY) {
        // Bytes that are not ASCII are a wrong key, not a missing one.
        return Some(value.to_str().unwrap_or_default());
    }
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_key_has_the_form_of_the_contract() {
        let key = ApiKey::fresh().unwrap();
        assert!(is_key_shaped(key.reveal()));
        assert_eq!(key.shown(), &key.reveal()[..8]);
        assert!(key != ApiKey::fresh().unwrap());
    }

    #[test]
    fn a_key_is_found_in_either_header() {
        let mut headers = HeaderMap::new();
        assert_eq!(key_in(&headers), None);
        headers.insert(header::AUTHORIZATION, "bearer abc".parse().unwrap());
        assert_eq!(key_in(&headers), Some("abc"));
        headers.insert(API_KEY, "def".parse().unwrap());
        assert_eq!(key_in(&headers), Some("def"));
    }

    #[test]
    fn a_text_of_another_form_is_not_a_key() {
        let good = format!("amb_{}", "0a".repeat(32));
        assert!(is_key_shaped(&good));
        for bad in ["", "amb_", &good[..67], &good.to_uppercase(), &format!("{good}0"), &good.replace('a', "g")] {
            assert!(!is_key_shaped(bad), "{bad}");
        }
    }
}
