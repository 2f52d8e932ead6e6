//! API keys.

use amb_core::OfficeError;
use amb_store::{KeyHash, NewKey};
use axum::http::{HeaderMap, header};

/// The header that carries a key.
pub(crate) const API_KEY: &str = "x-api-key";
/// Every key begins so.
const PREFIX: &str = "amb_";
/// Every token of a household begins so.
const TOKEN_PREFIX: &str = "ambh_";
/// How much of a key is kept in the clear, for its owner to recognise it.
const SHOWN: usize = 8;

/// A key as its owner has it. Neither printed nor logged: it has no `Debug` and no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Makes a key from 32 bytes of the system's randomness.
    pub fn fresh() -> Result<Self, OfficeError> {
        Ok(Self(format!("{PREFIX}{}", secret()?)))
    }

    /// The whole key, shown to its owner once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What the store keeps of it.
    pub fn to_keep(&self) -> NewKey {
        NewKey { hash: KeyHash::of(&self.0), prefix: self.shown().to_owned() }
    }

    /// The first characters.
    pub(crate) fn shown(&self) -> &str {
        &self.0[..SHOWN]
    }
}

/// The token of a household as its owner has it. Neither printed nor logged, like a key.
#[derive(Clone, PartialEq, Eq)]
pub struct HouseholdToken(String);

impl HouseholdToken {
    /// Makes a token from 32 bytes of the system's randomness.
    pub fn fresh() -> Result<Self, OfficeError> {
        Ok(Self(format!("{TOKEN_PREFIX}{}", secret()?)))
    }

    /// The whole token, shown to its owner once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What the store keeps of it.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.0)
    }
}

/// Bytes of randomness in a secret.
const SECRET: usize = 32;

/// A new secret: [`SECRET`] bytes of the system's randomness, in hex.
pub(crate) fn secret() -> Result<String, OfficeError> {
    let mut bytes = [0; SECRET];
    getrandom::fill(&mut bytes).map_err(OfficeError::internal)?;
    Ok(hex::encode(bytes))
}

/// Whether a text has the form of a [`secret`].
pub(crate) fn is_secret(text: &str) -> bool {
    text.len() == 2 * SECRET && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a text has the form of a key. Any other text is not looked up.
pub(crate) fn is_key_shaped(text: &str) -> bool {
    text.strip_prefix(PREFIX).is_some_and(is_secret)
}

/// The key in the headers: `X-API-Key`, or `Authorization: Bearer`.
pub(crate) fn key_in(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(API_KEY) {
        // Bytes that are not ASCII count as a wrong key, not as none.
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
    fn what_is_not_shaped_like_a_key_is_not_looked_up() {
        let good = format!("amb_{}", "0a".repeat(32));
        assert!(is_key_shaped(&good));
        for bad in ["", "amb_", &good[..67], &good.to_uppercase(), &format!("{good}0"), &good.replace('a', "g")] {
            assert!(!is_key_shaped(bad), "{bad}");
        }
    }
}
