//! The address of a server.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use amb_core::OfficeError;
use reqwest::Url;

/// The address of a network office. `host:port` alone means `http://host:port`; a path is kept as a prefix.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerUrl(Url);

impl ServerUrl {
    /// The URL of an endpoint. The path is given in segments, so that no id or key can change the route.
    pub(crate) fn join(&self, segments: &[&str]) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// Whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// The address of the WebSocket.
    pub(crate) fn socket(&self) -> Url {
        let mut url = self.join(&["ws"]);
        let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
        // Cannot fail between http and ws.
        let _ = url.set_scheme(scheme);
        url
    }
}

impl FromStr for ServerUrl {
    type Err = OfficeError;

    fn from_str(text: &str) -> Result<Self, OfficeError> {
        let text = text.trim();
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&whole)
            .map_err(|error| OfficeError::invalid(format!("{text:?} is no server address: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
            return Err(OfficeError::invalid(format!(
                "a server address begins with http:// or https://, not {text:?}"
            )));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(OfficeError::invalid("a server address holds no user or password; keys are given apart"));
        }
        Ok(Self(url))
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.as_str().trim_end_matches('/'))
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_host_and_port_is_http() {
        let url: ServerUrl = "127.0.0.1:8000".parse().unwrap();
        assert_eq!(url.to_string(), "http://127.0.0.1:8000");
        assert_eq!(url.socket().as_str(), "ws://127.0.0.1:8000/ws");
        let prefixed: ServerUrl = "https://mail.example/amb/".parse().unwrap();
        assert_eq!(prefixed.join(&["inbox"]).as_str(), "https://mail.example/amb/inbox");
        assert_eq!(prefixed.socket().as_str(), "wss://mail.example/amb/ws");
    }

    #[test]
    fn loopback_addresses_are_recognised() {
        let is_loopback = |text: &str| text.parse::<ServerUrl>().unwrap().is_loopback();
        for here in ["127.0.0.1:8000", "http://127.9.9.9", "http://[::1]:8000", "https://LocalHost/amb"] {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in ["http://10.0.0.1", "http://localhost.example", "http://[2001:db8::1]"] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn an_id_cannot_change_the_route() {
        let url: ServerUrl = "http://h".parse().unwrap();
        assert_eq!(url.join(&["sessions", "../agents?x=1", "history"]).path(), "/sessions/..%2Fagents%3Fx=1/history");
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for bad in ["", "ftp://h", "http://u:p@h", "mailto:x", "http://"] {
            assert!(bad.parse::<ServerUrl>().is_err(), "{bad}");
        }
    }
}
