//! Which web requests a listener accepts, by their `Host` and `Origin` headers.
//!
//! A page anywhere on the web can make a browser send requests to a loopback address. It can point its own name there
//! (DNS rebinding), and then even read the responses. Browsers send the host in `Host` and the page in `Origin`; other
//! clients send no `Origin` and are not affected.

use std::net::IpAddr;

/// The rules of one listener.
#[derive(Debug, Clone)]
pub struct WebRules {
    /// Whether `Host` is checked.
    checks_host: bool,
    /// Whether any IP address is accepted as `Host`: a page can point its own name to us, but not an address.
    accepts_addresses: bool,
    /// Hosts accepted besides the names of loopback, in lower case, without ports.
    hosts: Vec<String>,
    any_origin: bool,
    origins: Vec<WebOrigin>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebRefusal {
    /// It names a host that this listener does not have.
    Host,
    /// It comes from a web page that is not listed.
    Origin,
}

impl WebRefusal {
    /// The stable code of the refusal.
    pub fn code(self) -> &'static str {
        match self {
            Self::Host => "host_not_allowed",
            Self::Origin => "origin_not_allowed",
        }
    }

    /// One sentence that says what to do.
    pub fn detail(self) -> &'static str {
        match self {
            Self::Host => {
                "this listener has no such host name; call it as localhost or 127.0.0.1, or start it with --allow-host NAME"
            }
            Self::Origin => {
                "pages of this origin may not call; start the listener with this origin among those allowed"
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct WebOrigin {
    scheme: String,
    host: String,
    port: Option<u16>,
}

impl WebOrigin {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.trim().trim_end_matches('/').split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let (host, port) = split_authority(authority)?;
        Some(Self { host, port: port.or(default_port(&scheme)), scheme })
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

/// Host in lower case and port of `name`, `name:port` or `[v6]:port`; `None` for any other text.
fn split_authority(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some(""))?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let port = match port {
        "" => None,
        digits => Some(digits.parse().ok()?),
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '?' | '#' | '@' | '[' | ']');
    (!host.is_empty() && host.chars().all(fits)).then_some((host, port))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

impl WebRules {
    /// The rules of a listener. On a loopback address only loopback's names and `hosts` are accepted as `Host`;
    /// elsewhere every name is, unless there are `hosts`, and every IP address, which health probes use. Pages of the
    /// listener's own host and port are accepted, and those of `origins`, where `*` is all.
    pub fn new(listener: IpAddr, hosts: &[String], origins: &[String]) -> Self {
        let name = |host: &String| split_authority(host).map_or_else(|| host.to_ascii_lowercase(), |(name, _)| name);
        let loopback = listener.to_canonical().is_loopback();
        Self {
            checks_host: loopback || !hosts.is_empty(),
            accepts_addresses: !loopback,
            hosts: hosts.iter().map(name).collect(),
            any_origin: origins.iter().any(|origin| origin == "*"),
            origins: origins.iter().filter_map(|origin| WebOrigin::parse(origin)).collect(),
        }
    }

    /// Whether a host is the listener's own.
    fn has_host(&self, host: &str) -> bool {
        is_loopback(host)
            || self.hosts.iter().any(|own| own == host)
            || (self.accepts_addresses && host.parse::<IpAddr>().is_ok())
    }

    /// Checks these headers. A request without `Host` is not from a browser.
    pub fn check(&self, host: Option<&str>, origin: Option<&str>) -> Result<(), WebRefusal> {
        let asked = match host {
            None => None,
            Some(host) => match split_authority(host.trim()) {
                Some((name, _)) if self.checks_host && !self.has_host(&name) => return Err(WebRefusal::Host),
                None if self.checks_host => return Err(WebRefusal::Host),
                asked => asked,
            },
        };
        match origin {
            None => Ok(()),
            Some(_) if self.any_origin => Ok(()),
            Some(text) => match WebOrigin::parse(text) {
                Some(origin) if self.origins.contains(&origin) || is_own(&origin, asked.as_ref()) => Ok(()),
                _ => Err(WebRefusal::Origin),
            },
        }
    }
}

/// Whether a page was served by the host that it calls. The scheme is ignored: a proxy may have terminated TLS.
fn is_own(origin: &WebOrigin, asked: Option<&(String, Option<u16>)>) -> bool {
    let (Some((host, port)), Some(default_port)) = (asked, default_port(&origin.scheme)) else { return false };
    let same_host = origin.host == *host || (is_loopback(&origin.host) && is_loopback(host));
    same_host && origin.port == Some(port.unwrap_or(default_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: &str = "127.0.0.1";

    fn rules(listener: &str, hosts: &[&str], origins: &[&str]) -> WebRules {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        WebRules::new(listener.parse().unwrap(), &owned(hosts), &owned(origins))
    }

    #[test]
    fn a_loopback_listener_accepts_only_names_of_loopback() {
        let rules = rules(LOOPBACK, &["Office.Example:8000"], &[]);
        for good in ["localhost", "LocalHost.:8000", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000", "office.example:1"] {
            assert_eq!(rules.check(Some(good), None), Ok(()), "{good}");
        }
        let bad =
            ["evil.example", "localhost.evil.example:8000", "0.0.0.0:8000", "", "10.0.0.1", "a@localhost", "[::1"];
        for bad in bad {
            assert_eq!(rules.check(Some(bad), None), Err(WebRefusal::Host), "{bad}");
        }
        assert_eq!(rules.check(None, None), Ok(()), "no browser");
    }

    #[test]
    fn other_listeners_accept_every_name_unless_names_are_listed() {
        assert_eq!(rules("0.0.0.0", &[], &[]).check(Some("anything:8000"), None), Ok(()));
        let listed = rules("0.0.0.0", &["office.example"], &[]);
        assert_eq!(listed.check(Some("office.example"), None), Ok(()));
        for bad in ["evil.example", "10.0.0.1.evil.example", "10.0.0", "[10.0.0.1"] {
            assert_eq!(listed.check(Some(bad), None), Err(WebRefusal::Host), "{bad}");
        }
        for address in ["10.0.0.1:8000", "[2001:db8::1]:8000"] {
            assert_eq!(listed.check(Some(address), None), Ok(()), "probes call by {address}");
        }
    }

    #[test]
    fn foreign_pages_are_refused_unless_listed() {
        let rules = rules(LOOPBACK, &[], &["https://app.example:443", "http://localhost:3000"]);
        let check = |origin| rules.check(Some("127.0.0.1:8000"), Some(origin));
        for good in ["https://app.example", "http://localhost:3000", "http://127.0.0.1:8000", "http://localhost:8000"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let bad = ["null", "https://evil.example", "http://app.example", "http://127.0.0.1:8001", "file://", "", "x"];
        for bad in bad {
            assert_eq!(check(bad), Err(WebRefusal::Origin), "{bad}");
        }
    }

    #[test]
    fn a_star_accepts_every_origin() {
        assert_eq!(rules(LOOPBACK, &[], &["*"]).check(Some("localhost"), Some("null")), Ok(()));
    }

    #[test]
    fn a_page_of_the_listeners_own_host_is_accepted_whatever_its_scheme() {
        let rules = rules("0.0.0.0", &[], &[]);
        assert_eq!(rules.check(Some("office.example"), Some("https://office.example")), Ok(()));
        assert_eq!(rules.check(Some("office.example:8443"), Some("https://office.example:8443")), Ok(()));
        assert_eq!(rules.check(Some("office.example:8443"), Some("https://office.example")), Err(WebRefusal::Origin));
    }
}
