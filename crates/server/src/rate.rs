//! Who may call how often. A cell per agent and per address; an idle cell is forgotten.

use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use amb_core::{Code, OfficeError};
use amb_store::AgentKey;
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};

/// A steady rate with room for a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many in each period.
    pub count: u32,
    /// The period.
    pub period: Duration,
    /// How many at once after a quiet time.
    pub burst: u32,
}

impl Rate {
    /// This many a second.
    pub const fn per_second(count: u32, burst: u32) -> Self {
        Self { count, period: Duration::from_secs(1), burst }
    }

    /// This many a minute.
    pub const fn per_minute(count: u32, burst: u32) -> Self {
        Self { count, period: Duration::from_secs(60), burst }
    }

    fn quota(self) -> Quota {
        let burst = NonZeroU32::new(self.burst).unwrap_or(NonZeroU32::MIN);
        let each = self.period / self.count.max(1);
        // A period of nothing would be no limit at all; the smallest one is as good as none.
        let each = each.max(Duration::from_nanos(1));
        Quota::with_period(each).unwrap_or_else(|| Quota::per_second(burst)).allow_burst(burst)
    }
}

/// The limits of an office.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// All requests of one agent.
    pub agent: Rate,
    /// All requests from one address, those without a good key included.
    pub address: Rate,
    /// Registrations from one address.
    pub register: Rate,
    /// Requests for connections by one agent.
    pub connect: Rate,
    /// Wrong verification codes of one agent. A full search of all codes takes months at the default, and a code lives an hour.
    pub guess_agent: Rate,
    /// Wrong verification codes and wrong keys from one address.
    pub guess_address: Rate,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            agent: Rate::per_second(100, 1_000),
            address: Rate::per_second(500, 5_000),
            register: Rate::per_minute(30, 60),
            connect: Rate::per_minute(30, 60),
            guess_agent: Rate::per_minute(5, 10),
            guess_address: Rate::per_minute(30, 60),
        }
    }
}

/// One limit, with a cell for each key.
struct Limit<K: Hash + Eq + Clone> {
    cells: DefaultKeyedRateLimiter<K>,
    clock: DefaultClock,
}

impl<K: Hash + Eq + Clone> Limit<K> {
    fn new(rate: Rate) -> Self {
        Self { cells: DefaultKeyedRateLimiter::keyed(rate.quota()), clock: DefaultClock::default() }
    }

    /// Takes one from the cell, or says how long until there is one.
    fn take(&self, key: &K) -> Result<(), Duration> {
        self.cells.check_key(key).map_err(|full| full.wait_time_from(self.clock.now()))
    }

    /// Drops the cells that are as good as new.
    fn sweep(&self) {
        self.cells.retain_recent();
        self.cells.shrink_to_fit();
    }
}

/// All limits of a running office; without limits, every question is answered yes.
pub(crate) struct Limiter(Option<Limits>);

struct Limits {
    agent: Limit<AgentKey>,
    address: Limit<IpAddr>,
    register: Limit<IpAddr>,
    connect: Limit<AgentKey>,
    guess_agent: Limit<AgentKey>,
    guess_address: Limit<IpAddr>,
}

/// `Err` says how long to wait.
type Allowed = Result<(), OfficeError>;

fn refuse(what: &str, wait: Duration) -> OfficeError {
    let seconds = whole_seconds(wait);
    OfficeError::new(Code::TooManyRequests, format!("{what}; try again in {seconds} s")).retry_after(wait)
}

/// Seconds for `Retry-After`: never 0, which would invite an immediate repeat.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// All of one IPv6 network of a household or a host counts as one address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
        v4 => v4,
    }
}

impl Limiter {
    pub(crate) fn new(limits: Option<RateLimits>) -> Self {
        Self(limits.map(|limits| Limits {
            agent: Limit::new(limits.agent),
            address: Limit::new(limits.address),
            register: Limit::new(limits.register),
            connect: Limit::new(limits.connect),
            guess_agent: Limit::new(limits.guess_agent),
            guess_address: Limit::new(limits.guess_address),
        }))
    }

    /// Any request of this agent.
    pub(crate) fn agent(&self, agent: AgentKey) -> Allowed {
        let Some(limits) = &self.0 else { return Ok(()) };
        limits.agent.take(&agent).map_err(|wait| refuse("this agent calls too often", wait))
    }

    /// Any request from this address.
    pub(crate) fn address(&self, address: IpAddr) -> Allowed {
        let Some(limits) = &self.0 else { return Ok(()) };
        limits.address.take(&network(address)).map_err(|wait| refuse("too many requests from this address", wait))
    }

    /// A registration from this address.
    pub(crate) fn register(&self, address: IpAddr) -> Allowed {
        let Some(limits) = &self.0 else { return Ok(()) };
        limits.register.take(&network(address)).map_err(|wait| refuse("too many registrations from this address", wait))
    }

    /// A request for a connection by this agent.
    pub(crate) fn connect(&self, agent: AgentKey) -> Allowed {
        let Some(limits) = &self.0 else { return Ok(()) };
        limits.connect.take(&agent).map_err(|wait| refuse("too many requests for connections", wait))
    }

    /// A try of a verification code. Charged before it is looked up, so that guesses in parallel are counted too.
    pub(crate) fn code(&self, agent: AgentKey, address: IpAddr) -> Allowed {
        let Some(limits) = &self.0 else { return Ok(()) };
        limits.guess_agent.take(&agent).map_err(|wait| refuse("too many tries of verification codes", wait))?;
        self.wrong_key(address)
    }

    /// A wrong key from this address.
    pub(crate) fn wrong_key(&self, address: IpAddr) -> Allowed {
        let Some(limits) = &self.0 else { return Ok(()) };
        let taken = limits.guess_address.take(&network(address));
        taken.map_err(|wait| refuse("too many wrong codes or keys from this address", wait))
    }

    /// Forgets idle cells; called now and then.
    pub(crate) fn sweep(&self) {
        if let Some(limits) = &self.0 {
            limits.agent.sweep();
            limits.address.sweep();
            limits.register.sweep();
            limits.connect.sweep();
            limits.guess_agent.sweep();
            limits.guess_address.sweep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_answer_says_how_long_to_wait() {
        let limits = RateLimits { register: Rate::per_minute(1, 2), ..RateLimits::default() };
        let limiter = Limiter::new(Some(limits));
        let here = "192.0.2.1".parse().unwrap();
        assert!(limiter.register(here).is_ok());
        assert!(limiter.register(here).is_ok());
        let refused = limiter.register(here).unwrap_err();
        assert_eq!(refused.code(), Code::TooManyRequests);
        assert!(whole_seconds(refused.wait().unwrap()) >= 1);
        assert!(limiter.register("192.0.2.2".parse().unwrap()).is_ok(), "another address is not touched");
    }

    #[test]
    fn without_limits_nothing_is_refused() {
        let limiter = Limiter::new(None);
        let here = "192.0.2.1".parse().unwrap();
        assert!((0..10_000).all(|_| limiter.register(here).is_ok()));
    }

    #[test]
    fn one_network_of_ipv6_is_one_address() {
        let limits = RateLimits { register: Rate::per_minute(1, 1), ..RateLimits::default() };
        let limiter = Limiter::new(Some(limits));
        assert!(limiter.register("2001:db8::1".parse().unwrap()).is_ok());
        assert!(limiter.register("2001:db8::2".parse().unwrap()).is_err());
        assert!(limiter.register("2001:db8:0:1::1".parse().unwrap()).is_ok());
    }
}
