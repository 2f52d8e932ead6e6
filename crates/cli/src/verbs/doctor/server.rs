//! The office at a server: whether it is reachable, accepts the key, and has the same time.

use amb_client::{Client, ServerHealth, ServerUrl};
use amb_core::{Code, Timestamp};
use jiff::SignedDuration;

use super::CheckResult;
use crate::args::{OfficeArgs, OfficeOrigin};
use crate::failure::Failure;
use crate::keys;

/// The largest difference between clocks at which deadlines and presence still look right. A response has the time to
/// the second.
const MAX_SKEW: SignedDuration = SignedDuration::from_secs(5);

pub(super) async fn check(office: &OfficeArgs) -> Result<Vec<CheckResult>, Failure> {
    let Some(server) = &office.server else {
        let remedy = "`amb up` starts one on this machine";
        return Ok(match super::has_directory() {
            true => vec![CheckResult::note("office", "no local office runs; verbs use nanobot's mailboxes", remedy)],
            false => vec![CheckResult::problem("office", "no office runs here", remedy)],
        });
    };
    let health = match amb_client::health(server).await {
        Ok(health) => health,
        Err(error) => {
            let remedy = match office.origin {
                OfficeOrigin::Local => "`amb down`, then `amb up`; `amb status` shows its log",
                _ => "start it (`amb serve`), or see whether the address is right: `amb office list`",
            };
            return Ok(vec![CheckResult::problem("office", error.detail(), remedy)]);
        }
    };
    let mut checks = vec![is_up(server, &health)];
    checks.extend(health.clock.map(|there| clock(there, Timestamp::now(), health.took)));
    checks.push(key(office, server).await);
    Ok(checks)
}

fn is_up(server: &ServerUrl, health: &ServerHealth) -> CheckResult {
    if let Some(problem) = &health.problem {
        let detail = format!("{server} takes no mail: {problem}");
        return CheckResult::problem(
            "office",
            detail,
            "see its log (`amb status` says where); a full disk is the usual reason",
        );
    }
    let (mine, version) = (env!("CARGO_PKG_VERSION"), health.version.as_deref().unwrap_or("?"));
    if version == mine {
        let detail = format!("{server} is up, version {version}, {} ms", health.took.as_millis());
        return CheckResult::ok("office", detail);
    }
    CheckResult::note(
        "office",
        format!("{server} runs version {version}, and this is {mine}"),
        "start the office anew with this version, or install the same one on both sides",
    )
}

fn clock(there: Timestamp, here: Timestamp, took: std::time::Duration) -> CheckResult {
    let apart = here.duration_since(there);
    let within = MAX_SKEW.saturating_add(SignedDuration::try_from(took).unwrap_or_default());
    if apart.abs() <= within {
        return CheckResult::ok("clock", "this machine and the office have the same time");
    }
    let which = if apart.is_positive() { "ahead of" } else { "behind" };
    CheckResult::problem(
        "clock",
        format!("this machine is {} s {which} the office", apart.abs().as_secs()),
        "let both clocks follow NTP (`timedatectl set-ntp true`); deadlines and presence depend on them",
    )
}

async fn key(office: &OfficeArgs, server: &ServerUrl) -> CheckResult {
    let key = match office.acting_key(server).await {
        Ok(key) => key,
        Err(error) => {
            let must_choose = office.me.is_none() && keys::agents(server).is_ok_and(|agents| !agents.is_empty());
            let remedy = match must_choose {
                true => "`amb --as NAME doctor` checks the key of that agent",
                false => "`amb register NAME` registers an agent and stores its key",
            };
            return CheckResult::note("key", error.detail(), remedy);
        }
    };
    match Client::open(server.clone(), key).await {
        Ok(client) => CheckResult::ok("key", format!("you act as {}", amb_core::Mailbox::me(&client))),
        Err(error) if error.code() == Code::Unauthorized => CheckResult::problem(
            "key",
            format!("{server} does not take your key: {}", error.detail()),
            "was the database replaced? Take the agent out of keys.json in your configuration directory and register it anew",
        ),
        Err(error) => CheckResult::problem("key", error.detail(), "try again; the office answers its health check"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_more_than_seconds_are_a_problem() {
        let here: Timestamp = "2026-11-18T12:00:00Z".parse().unwrap();
        let there = |seconds: i64| here.checked_sub(SignedDuration::from_secs(seconds)).unwrap();
        assert!(!clock(there(2), here, Default::default()).is_problem());
        let ahead = clock(there(90), here, Default::default());
        assert!(ahead.is_problem() && ahead.detail.contains("90 s ahead"), "{ahead:?}");
        assert!(clock(there(-90), here, Default::default()).detail.contains("behind"));
    }
}
