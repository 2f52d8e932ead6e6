//! Addresses of NATS servers, which may hold a password that must not be shown.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// One or more servers, such as `nats://127.0.0.1:4222,tls://nats.example:4222`.
///
/// The part of an address before the `@` (a user and a password, or a token) is used to connect; `Display` and `Debug`
/// omit it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NatsServers(Vec<String>);

impl NatsServers {
    /// Whether none is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The addresses without secrets: the client library writes addresses into its log, and does not use what is in
    /// them.
    pub(super) fn addresses(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|server| {
            let (scheme, _, host) = split(server);
            format!("{scheme}{host}")
        })
    }

    /// The user and the password, or a token alone, of the first address that has them.
    pub(super) fn login(&self) -> Option<(String, Option<String>)> {
        let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let login = self.0.iter().map(|server| split(server).1).find(|login| !login.is_empty())?;
        Some(match login.split_once(':') {
            Some((user, password)) => (decoded(user), Some(decoded(password))),
            None => (decoded(login), None),
        })
    }
}

/// Scheme, login and the rest of an address.
fn split(server: &str) -> (&str, &str, &str) {
    let (scheme, rest) = server.split_at(server.find("://").map_or(0, |at| at + 3));
    // A password may contain `@`; the last one ends it.
    match rest.rsplit_once('@') {
        Some((login, host)) => (scheme, login, host),
        None => (scheme, "", rest),
    }
}

impl FromStr for NatsServers {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.split(',').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()))
    }
}

impl<'de> Deserialize<'de> for NatsServers {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let Ok(servers) = String::deserialize(de)?.parse();
        Ok(servers)
    }
}

impl fmt::Display for NatsServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, address) in self.addresses().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for NatsServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NatsServers({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_used_and_never_shown() {
        for (given, shown) in [
            ("nats://ann:s3cret@h:4222", "nats://h:4222"),
            ("tls://s3cret@h", "tls://h"),
            ("ann:s3cret@h:4222", "h:4222"),
            ("nats://ann:s3@cret@h:4222, nats://other:4222", "nats://h:4222,nats://other:4222"),
            ("nats://ann:s3/cr?et@h", "nats://h"),
            ("nats://h:4222", "nats://h:4222"),
        ] {
            let servers: NatsServers = given.parse().unwrap();
            assert_eq!(servers.to_string(), shown);
            assert_eq!(format!("{servers:?}"), format!("NatsServers({shown})"));
        }
        let login = |given: &str| given.parse::<NatsServers>().unwrap().login();
        let password = |password: &str| Some(("ann".to_owned(), Some(password.to_owned())));
        assert_eq!(login("nats://h, nats://ann:s3@cret@h:4222"), password("s3@cret"));
        assert_eq!(login("nats://ann:s3%40%2Fcret@h"), password("s3@/cret"));
        assert_eq!(login("tls://s3cret@h"), Some(("s3cret".to_owned(), None)));
        assert_eq!(login("nats://h:4222"), None);
        assert!(" , ".parse::<NatsServers>().unwrap().is_empty());
    }
}
