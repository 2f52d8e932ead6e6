//! Rate limits, shared by all replicas.

mod limit;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use amb_core::OfficeError;
use amb_store::{AgentKey, Store};

use limit::Limit;

/// A steady rate with room for a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests in each period.
    pub count: u32,
    /// The period.
    pub period: Duration,
    /// Requests that pass at once after an idle time.
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

    /// The time in which one more request is earned; never zero.
    fn each(self) -> Duration {
        (self.period / self.count.max(1)).max(Duration::from_nanos(1))
    }

    /// The maximum debt: the time in which a whole burst is earned.
    fn room(self) -> Duration {
        self.each() * self.burst.max(1)
    }
}

/// The limits of an office.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// All requests of one agent.
    pub agent: Rate,
    /// All requests from one address, requests without a valid key included.
    pub address: Rate,
    /// Registrations from one address.
    pub register: Rate,
    /// Connection requests of one agent.
    pub connect: Rate,
    /// Wrong verification codes of one agent. A full search of all codes takes months at the default, and a code lives
    /// an hour.
    pub guess_agent: Rate,
    /// Wrong verification codes from one address.
    pub guess_address: Rate,
    /// Wrong keys from one address.
    pub wrong_key: Rate,
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
            wrong_key: Rate::per_minute(30, 60),
        }
    }
}

/// All limits of a running office.
///
/// Those of agents and addresses are checked at every request and kept in memory; large spending is charged to the
/// account shared by all replicas once a second (see `replicas`). The others are rare, and each is charged to that
/// account at once: guessing codes is no faster on ten replicas than on one.
pub(crate) struct Limiter {
    store: Arc<dyn Store>,
    agent: Limit<AgentKey>,
    address: Limit<IpAddr>,
    register: Limit<IpAddr>,
    connect: Limit<AgentKey>,
    guess_agent: Limit<AgentKey>,
    guess_address: Limit<IpAddr>,
    wrong_key: Limit<IpAddr>,
}

/// Seconds for `Retry-After`: never 0, which would invite an immediate repeat.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

/// The address that limits are counted by: an IPv6 address stands for its /64, which one household or host owns.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
        v4 => v4,
    }
}

/// `Err` says how long to wait.
type Allowed = Result<(), OfficeError>;

impl Limiter {
    /// `None` allows everything.
    pub(crate) fn new(store: Arc<dyn Store>, limits: Option<RateLimits>) -> Self {
        let rate = |of: fn(RateLimits) -> Rate| limits.map(of);
        Self {
            store,
            agent: Limit::new("agent", "this agent calls too often", rate(|of| of.agent)),
            address: Limit::new("address", "too many requests from this address", rate(|of| of.address)),
            register: Limit::new("register", "too many registrations from this address", rate(|of| of.register)),
            connect: Limit::new("connect", "too many requests for connections", rate(|of| of.connect)),
            guess_agent: Limit::new("guess_agent", "too many wrong verification codes", rate(|of| of.guess_agent)),
            guess_address: Limit::new(
                "guess_address",
                "too many wrong codes from this address",
                rate(|of| of.guess_address),
            ),
            wrong_key: Limit::new("wrong_key", "too many wrong keys from this address", rate(|of| of.wrong_key)),
        }
    }

    /// Charges any request of this agent.
    pub(crate) fn agent(&self, agent: AgentKey) -> Allowed {
        self.agent.spend(&agent)
    }

    /// Charges any request from this address.
    pub(crate) fn address(&self, address: IpAddr) -> Allowed {
        self.address.spend(&network(address))
    }

    /// Charges a registration from this address.
    pub(crate) async fn register(&self, address: IpAddr) -> Allowed {
        self.register.spend_shared(&*self.store, &network(address)).await
    }

    /// Charges a connection request of this agent.
    pub(crate) async fn connect(&self, agent: AgentKey) -> Allowed {
        self.connect.spend_shared(&*self.store, &agent).await
    }

    /// Charges a verification code. Called before the code is looked up, so that parallel guesses are counted too.
    pub(crate) async fn code(&self, agent: AgentKey, address: IpAddr) -> Allowed {
        // The agent first: a request that is refused for its agent costs others at the same address nothing.
        self.guess_agent.spend_shared(&*self.store, &agent).await?;
        let allowed = self.guess_address.spend_shared(&*self.store, &network(address)).await;
        if allowed.is_err() {
            // The code is not looked up, so the agent is not charged for what others at its address did.
            self.guess_agent.refund(&*self.store, &agent).await;
        }
        allowed
    }

    /// Refunds a code that was right.
    pub(crate) async fn refund_code(&self, agent: AgentKey, address: IpAddr) {
        self.guess_address.refund(&*self.store, &network(address)).await;
        self.guess_agent.refund(&*self.store, &agent).await;
    }

    /// Charges a wrong key from this address.
    pub(crate) async fn wrong_key(&self, address: IpAddr) -> Allowed {
        self.wrong_key.spend_shared(&*self.store, &network(address)).await
    }

    /// Refunds a secret that was charged as a wrong key before it was compared, and was right.
    pub(crate) async fn refund_key(&self, address: IpAddr) {
        self.wrong_key.refund(&*self.store, &network(address)).await;
    }

    /// Charges what this replica allowed to the shared account, and takes over the debt of all replicas. `others` is
    /// the number of other replicas, `since` the time since the last call. Keys that spent less than a tenth of the
    /// limit, summed over replicas, are not written.
    pub(crate) async fn settle(&self, others: u32, since: Duration) -> Result<(), OfficeError> {
        self.agent.settle(&*self.store, others, since).await?;
        self.address.settle(&*self.store, others, since).await
    }

    /// Discards what was spent since the last [`Limiter::settle`].
    pub(crate) fn discard_spent(&self) {
        self.agent.take_spent(u32::MAX);
        self.address.take_spent(u32::MAX);
    }

    /// Drops the states of idle keys. Called periodically.
    pub(crate) fn sweep(&self) {
        self.agent.sweep();
        self.address.sweep();
        self.register.sweep();
        self.connect.sweep();
        self.guess_agent.sweep();
        self.guess_address.sweep();
        self.wrong_key.sweep();
    }
}

#[cfg(test)]
mod tests {
    use amb_core::Code;
    use amb_testing::SqliteFile;

    use super::*;

    async fn limiter(limits: Option<RateLimits>) -> (SqliteFile, Limiter) {
        let file = SqliteFile::fresh();
        let store = amb_store::open(&file.url()).await.unwrap();
        (file, Limiter::new(store, limits))
    }

    #[tokio::test]
    async fn a_burst_passes_and_then_the_error_says_how_long_to_wait() {
        let limits = RateLimits { register: Rate::per_minute(1, 2), ..RateLimits::default() };
        let (_file, limiter) = limiter(Some(limits)).await;
        let here = "192.0.2.1".parse().unwrap();
        assert!(limiter.register(here).await.is_ok());
        assert!(limiter.register(here).await.is_ok());
        let refused = limiter.register(here).await.unwrap_err();
        assert_eq!(refused.code(), Code::TooManyRequests);
        assert!(whole_seconds(refused.wait().unwrap()) >= 1);
        assert!(limiter.register("192.0.2.2".parse().unwrap()).await.is_ok(), "another address is not affected");
    }

    #[tokio::test]
    async fn a_code_refused_for_its_address_is_not_charged_to_its_agent() {
        let limits = RateLimits {
            guess_agent: Rate::per_minute(1, 2),
            guess_address: Rate::per_minute(1, 1),
            ..RateLimits::default()
        };
        let (_file, limiter) = limiter(Some(limits)).await;
        let (crowded, quiet) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let (ann, ben) = ("1".parse().unwrap(), "2".parse().unwrap());
        limiter.code(ann, crowded).await.unwrap();
        for _ in 0..5 {
            let refused = limiter.code(ben, crowded).await.unwrap_err();
            assert!(refused.detail().contains("address"), "{refused}");
        }
        limiter.code(ben, quiet).await.unwrap();
        limiter.code(ben, "192.0.2.3".parse().unwrap()).await.unwrap();
        let refused = limiter.code(ben, "192.0.2.4".parse().unwrap()).await.unwrap_err();
        assert!(refused.detail().contains("verification codes"), "{refused}");
    }

    #[tokio::test]
    async fn without_limits_nothing_is_refused() {
        let (_file, limiter) = limiter(None).await;
        let here = "192.0.2.1".parse().unwrap();
        assert!((0..10_000).all(|_| limiter.address(here).is_ok()));
        assert!(limiter.wrong_key(here).await.is_ok());
    }

    #[tokio::test]
    async fn an_ipv6_network_counts_as_one_address() {
        let limits = RateLimits { address: Rate::per_minute(1, 1), ..RateLimits::default() };
        let (_file, limiter) = limiter(Some(limits)).await;
        assert!(limiter.address("2001:db8::1".parse().unwrap()).is_ok());
        assert!(limiter.address("2001:db8::2".parse().unwrap()).is_err());
        assert!(limiter.address("2001:db8:0:1::1".parse().unwrap()).is_ok());
    }
}
