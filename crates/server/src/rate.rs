//! Rate limits, shared by all replicas.

mod limit;

use std::fmt::Display;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use amb_core::{Code, OfficeError};
use amb_store::{AgentKey, Charge, ChargeMode, Store};

use limit::{Limit, Rates};

/// Charges in one statement.
const CHARGES_AT_ONCE: usize = 1_000;

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

    /// How long it takes to earn one request, never zero.
    fn each(self) -> Duration {
        (self.period / self.count.max(1)).max(Duration::from_nanos(1))
    }

    /// The debt that a burst may reach.
    fn room(self) -> Duration {
        self.each() * self.burst.max(1)
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

/// All limits of a running office; `None` allows everything.
///
/// Those of agents and addresses are checked at every request and kept in memory; large spending is charged to the
/// account shared by all replicas once a second (see `replicas`). The others are rare, and each is charged to that
/// account at once: guessing codes is no faster on ten replicas than on one.
pub(crate) struct Limiter(Option<LimitSet>);

struct LimitSet {
    agent: Limit<AgentKey>,
    address: Limit<IpAddr>,
    register: Limit<IpAddr>,
    connect: Limit<AgentKey>,
    guess_agent: Limit<AgentKey>,
    guess_address: Limit<IpAddr>,
    wrong_key: Limit<IpAddr>,
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
pub(crate) fn network(address: IpAddr) -> IpAddr {
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
        Self(limits.map(|limits| LimitSet {
            agent: Limit::new("agent", limits.agent),
            address: Limit::new("address", limits.address),
            register: Limit::new("register", limits.register),
            connect: Limit::new("connect", limits.connect),
            guess_agent: Limit::new("guess_agent", limits.guess_agent),
            guess_address: Limit::new("guess_address", limits.guess_address),
            wrong_key: Limit::new("wrong_key", limits.wrong_key),
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
    pub(crate) async fn register(&self, store: &dyn Store, address: IpAddr) -> Allowed {
        let Some(limits) = &self.0 else { return Ok(()) };
        spend(store, &limits.register, &network(address), "too many registrations from this address").await
    }

    /// A request for a connection by this agent.
    pub(crate) async fn connect(&self, store: &dyn Store, agent: AgentKey) -> Allowed {
        let Some(limits) = &self.0 else { return Ok(()) };
        spend(store, &limits.connect, &agent, "too many requests for connections").await
    }

    /// A try of a verification code. Charged before it is looked up, so that guesses in parallel are counted too.
    pub(crate) async fn code(&self, store: &dyn Store, agent: AgentKey, address: IpAddr) -> Allowed {
        let Some(limits) = &self.0 else { return Ok(()) };
        // The agent's own first: what it is refused costs the others at its address nothing.
        spend(store, &limits.guess_agent, &agent, "too many wrong verification codes").await?;
        let address = network(address);
        let allowed = spend(store, &limits.guess_address, &address, "too many wrong codes from this address").await;
        if allowed.is_err() {
            // The code was not looked at: what others at its address did costs the agent nothing either.
            give_back(store, &limits.guess_agent, &agent).await;
        }
        allowed
    }

    /// The code was right: no guess, and nothing to pay for.
    pub(crate) async fn right_code(&self, store: &dyn Store, agent: AgentKey, address: IpAddr) {
        let Some(limits) = &self.0 else { return };
        give_back(store, &limits.guess_address, &network(address)).await;
        give_back(store, &limits.guess_agent, &agent).await;
    }

    /// A wrong key from this address.
    pub(crate) async fn wrong_key(&self, store: &dyn Store, address: IpAddr) -> Allowed {
        let Some(limits) = &self.0 else { return Ok(()) };
        spend(store, &limits.wrong_key, &network(address), "too many wrong keys from this address").await
    }

    /// What was charged as a wrong key in advance was right: refunds it.
    pub(crate) async fn right_key(&self, store: &dyn Store, address: IpAddr) {
        let Some(limits) = &self.0 else { return };
        give_back(store, &limits.wrong_key, &network(address)).await;
    }

    /// Charges what this replica let pass to the shared account, and takes over the debt of all replicas. `others` is
    /// the number of other replicas. Keys that spent less than a tenth of the limit, summed over replicas, are not
    /// written.
    pub(crate) async fn settle(&self, store: &dyn Store, others: u32, since: Duration) -> Result<(), OfficeError> {
        let Some(limits) = &self.0 else { return Ok(()) };
        settle(store, &limits.agent, others, since).await?;
        settle(store, &limits.address, others, since).await
    }

    /// Forgets what was let pass without settling it.
    pub(crate) fn forget_spent(&self) {
        if let Some(limits) = &self.0 {
            limits.agent.take_spent(u32::MAX);
            limits.address.take_spent(u32::MAX);
        }
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
            limits.wrong_key.sweep();
        }
    }
}

fn charge<K: Display + Hash + Eq + Clone>(limit: &Limit<K>, key: &K, count: u32, mode: ChargeMode) -> Charge {
    let Rates { each, room } = limit.rates();
    Charge { of: limit.name(), key: key.to_string(), cost: each * count, room, mode }
}

/// Spends one here and, if allowed, one of the shared account.
async fn spend<K: Display + Hash + Eq + Clone>(store: &dyn Store, limit: &Limit<K>, key: &K, refusal: &str) -> Allowed {
    limit.take(key).map_err(|wait| refuse(refusal, wait))?;
    let charged = store.charge(&[charge(limit, key, 1, ChargeMode::IfRoom)]).await?;
    match charged.first() {
        Some(charged) if charged.refused => {
            limit.owe(key, charged.owed);
            let Rates { each, room } = limit.rates();
            Err(refuse(refusal, (charged.owed + each).saturating_sub(room)))
        }
        _ => Ok(()),
    }
}

/// Refunds one.
async fn give_back<K: Display + Hash + Eq + Clone>(store: &dyn Store, limit: &Limit<K>, key: &K) {
    limit.give_back(key);
    if let Err(error) = store.charge(&[charge(limit, key, 1, ChargeMode::Refund)]).await {
        // The debt expires by itself within a minute.
        tracing::warn!(%error, of = limit.name(), "refund of a rate limit charge failed");
    }
}

async fn settle<K: Display + Hash + Eq + Clone>(
    store: &dyn Store,
    limit: &Limit<K>,
    others: u32,
    since: Duration,
) -> Result<(), OfficeError> {
    let earned = since.as_nanos() / limit.rates().each.as_nanos().max(1);
    let little = earned / 10 / (u128::from(others) + 1);
    let spent = limit.take_spent(u32::try_from(little).unwrap_or(u32::MAX));
    for some in spent.chunks(CHARGES_AT_ONCE) {
        let charges: Vec<_> = some.iter().map(|(key, count)| charge(limit, key, *count, ChargeMode::Always)).collect();
        for ((key, _), charged) in some.iter().zip(store.charge(&charges).await?) {
            limit.owe(key, charged.owed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use amb_testing::SqliteFile;

    use super::*;

    #[tokio::test]
    async fn a_burst_passes_and_then_the_answer_says_how_long_to_wait() {
        let file = SqliteFile::fresh();
        let store = amb_store::open(&file.url()).await.unwrap();
        let limits = RateLimits { register: Rate::per_minute(1, 2), ..RateLimits::default() };
        let limiter = Limiter::new(Some(limits));
        let here = "192.0.2.1".parse().unwrap();
        assert!(limiter.register(&*store, here).await.is_ok());
        assert!(limiter.register(&*store, here).await.is_ok());
        let refused = limiter.register(&*store, here).await.unwrap_err();
        assert_eq!(refused.code(), Code::TooManyRequests);
        assert!(whole_seconds(refused.wait().unwrap()) >= 1);
        assert!(
            limiter.register(&*store, "192.0.2.2".parse().unwrap()).await.is_ok(),
            "another address is not touched"
        );
    }

    #[tokio::test]
    async fn a_code_that_the_address_may_not_try_costs_its_agent_nothing() {
        let file = SqliteFile::fresh();
        let store = amb_store::open(&file.url()).await.unwrap();
        let limits = RateLimits {
            guess_agent: Rate::per_minute(1, 2),
            guess_address: Rate::per_minute(1, 1),
            ..RateLimits::default()
        };
        let limiter = Limiter::new(Some(limits));
        let (crowded, quiet) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let (ann, ben) = ("1".parse().unwrap(), "2".parse().unwrap());
        limiter.code(&*store, ann, crowded).await.unwrap();
        for _ in 0..5 {
            let refused = limiter.code(&*store, ben, crowded).await.unwrap_err();
            assert!(refused.detail().contains("address"), "{refused}");
        }
        limiter.code(&*store, ben, quiet).await.unwrap();
        limiter.code(&*store, ben, "192.0.2.3".parse().unwrap()).await.unwrap();
        let refused = limiter.code(&*store, ben, "192.0.2.4".parse().unwrap()).await.unwrap_err();
        assert!(refused.detail().contains("verification codes"), "{refused}");
    }

    #[test]
    fn without_limits_nothing_is_refused() {
        let limiter = Limiter::new(None);
        let here = "192.0.2.1".parse().unwrap();
        assert!((0..10_000).all(|_| limiter.address(here).is_ok()));
    }

    #[test]
    fn one_network_of_ipv6_is_one_address() {
        let limits = RateLimits { address: Rate::per_minute(1, 1), ..RateLimits::default() };
        let limiter = Limiter::new(Some(limits));
        assert!(limiter.address("2001:db8::1".parse().unwrap()).is_ok());
        assert!(limiter.address("2001:db8::2".parse().unwrap()).is_err());
        assert!(limiter.address("2001:db8:0:1::1".parse().unwrap()).is_ok());
    }
}
