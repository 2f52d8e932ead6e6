//! Addresses of NATS servers, which may hold a password that nothing may show.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// One or more servers, such as `nats://127.0.0.1:4222,tls://nats.example:4222`.
///
/// What stands before the `@` of an address (a user and a password, or a token) is used to connect; `Display` and `Debug`
/// leave it out.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NatsServers(Vec<String>);

impl NatsServers {
    /// Whether none is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The addresses as they were given, secrets included.
    pub(super) fn whole(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
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
        for (place, server) in self.0.iter().enumerate() {
            let (scheme, rest) = server.split_at(server.find("://").map_or(0, |at| at + 3));
            // A password may hold any mark, an `@` too: only the last one is sure to stand behind it.
            let host = rest.rfind('@').map_or(0, |at| at + 1);
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{scheme}{}", rest.get(host..).unwrap_or_default())?;
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
            assert_eq!(servers.whole().collect::<Vec<_>>().join(", "), given);
        }
        assert!(" , ".parse::<NatsServers>().unwrap().is_empty());
    }
}
