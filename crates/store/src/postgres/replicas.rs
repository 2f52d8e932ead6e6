//! Other processes on the same database: hints to them, heartbeats, and shared rate limits.

use std::collections::HashMap;
use std::time::Duration;

use amb_core::Timestamp;
use deadpool_postgres::{Object, Transaction};
use uuid::Uuid;

use super::listen::{KEYS, LOGS, REPLICAS};
use crate::engine::Failed;
use crate::replicas::{Charge, ChargeMode, Charged, ListenerState, Replicas, StaleListener};
use crate::types::{AgentKey, KeyHash};

/// Hints in one notification: a payload has at most 8,000 bytes, and the longest hint 40.
const HINTS_PER_NOTIFICATION: usize = 190;
/// Seconds without a heartbeat after which a process counts as gone: several heartbeat intervals.
const GONE_AFTER: f64 = 10.0;

/// A notification stores nothing, so its commit does not wait for the disk.
const NOTIFY: &str = "SELECT set_config('synchronous_commit', 'off', TRUE), pg_notify($1, $2)";

/// Notifies other processes whose logs grew, and up to which number.
pub(super) async fn hint(client: &Object, me: Uuid, grown: &[(AgentKey, u64)]) -> Result<(), Failed> {
    let notify = client.prepare_cached(NOTIFY).await?;
    for some in grown.chunks(HINTS_PER_NOTIFICATION) {
        let mut payload = me.simple().to_string();
        for (agent, up_to) in some {
            payload.push_str(&format!(" {agent}:{up_to}"));
        }
        client.execute(&notify, &[&LOGS, &payload]).await?;
    }
    Ok(())
}

/// Notifies other processes, when the transaction commits, that keys of this agent were revoked.
pub(super) async fn keys_end(tx: &Transaction<'_>, agent: AgentKey) -> Result<(), Failed> {
    let notify = tx.prepare_cached("SELECT pg_notify($1, $2)").await?;
    tx.execute(&notify, &[&KEYS, &agent.to_string()]).await?;
    Ok(())
}

/// Writes a heartbeat. Returns the other processes that wrote one recently.
pub(super) async fn heartbeat(client: &Object, me: Uuid, uses_broker: bool) -> Result<Replicas, Failed> {
    let beat = client
        .prepare_cached(
            "WITH here AS (
                 INSERT INTO replicas (id, seen_at, hears) VALUES ($1, now(), $2)
                 ON CONFLICT (id) DO UPDATE SET seen_at = now(), hears = excluded.hears RETURNING xmax = 0 AS fresh
             ), gone AS (
                 DELETE FROM replicas WHERE id <> $1 AND seen_at < now() - interval '1 hour'
             )
             SELECT o.id, count(r.id), coalesce(bool_and(r.hears), TRUE), (SELECT fresh FROM here)
             FROM office o LEFT JOIN replicas r ON r.id <> $1 AND r.seen_at > now() - make_interval(secs => $3)
             GROUP BY o.id",
        )
        .await?;
    let row = client.query_one(&beat, &[&me, &uses_broker, &GONE_AFTER]).await?;
    if row.get(3) {
        tell_replicas(client, me).await?;
    }
    let others = u32::try_from(row.get::<_, i64>(1)).unwrap_or(u32::MAX);
    Ok(Replicas { office: row.get(0), others, others_use_broker: row.get(2) })
}

/// Removes the row of this process.
pub(super) async fn sign_off(client: &Object, me: Uuid) -> Result<(), Failed> {
    client.execute("DELETE FROM replicas WHERE id = $1", &[&me]).await?;
    tell_replicas(client, me).await
}

async fn tell_replicas(client: &Object, me: Uuid) -> Result<(), Failed> {
    let notify = client.prepare_cached(NOTIFY).await?;
    client.execute(&notify, &[&REPLICAS, &me.simple().to_string()]).await?;
    Ok(())
}

/// Returns the listeners that have not seen the end of their logs, or whose keys have ended. The head alone does not
/// decide: it may have been advanced, and the entries after the listener's removed.
pub(super) async fn stale_listeners(
    client: &Object,
    listeners: &[ListenerState],
    now: Timestamp,
) -> Result<Vec<StaleListener>, Failed> {
    let agents: Vec<i64> = listeners.iter().map(|listener| listener.agent.0).collect();
    let places: Vec<i64> = listeners.iter().map(|listener| i64::try_from(listener.at).unwrap_or(i64::MAX)).collect();
    let keys: Vec<Option<String>> = listeners.iter().map(|listener| listener.key.map(KeyHash::to_hex)).collect();
    let select = client
        .prepare_cached(
            "SELECT * FROM (
                 SELECT s.place, m.head, m.head > s.at AND (
                            EXISTS (SELECT FROM deliveries e WHERE e.agent_id = s.agent_id AND e.number > s.at
                                    AND e.number <= coalesce(a.paused_from, e.number))
                            OR EXISTS (SELECT FROM events e WHERE e.agent_id = s.agent_id AND e.number > s.at
                                       AND e.number <= coalesce(a.paused_from, e.number))) AS behind,
                     s.key IS NOT NULL AND NOT coalesce(
                     a.api_key_hash = s.key OR (a.previous_key_hash = s.key AND a.previous_key_until > $4), FALSE) AS ended
                 FROM unnest($1::bigint[], $2::bigint[], $3::text[]) WITH ORDINALITY AS s (agent_id, at, key, place)
                 JOIN agents a ON a.id = s.agent_id JOIN mailboxes m ON m.agent_id = s.agent_id
             ) looked WHERE behind OR ended",
        )
        .await?;
    let rows = client.query(&select, &[&agents, &places, &keys, &now]).await?;
    let place = |number: i64| usize::try_from(number - 1).unwrap_or(usize::MAX);
    let head = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok(rows
        .iter()
        .map(|row| StaleListener { index: place(row.get(0)), head: head(row.get(1)), key_ended: row.get(3) })
        .collect())
}

/// Charges rate limits. Returns the result of each charge. Uses the clock of the database, which all processes share.
pub(super) async fn charge(client: &Object, charges: &[Charge]) -> Result<Vec<Charged>, Failed> {
    // One statement cannot charge a row twice; and rows are sorted, so that two processes do not deadlock.
    let mut sums: HashMap<(&str, &str), (i64, i64, bool)> = HashMap::new();
    for charge in charges {
        let sum =
            sums.entry((charge.of, &charge.key)).or_insert((0, micros(charge.room), charge.mode != ChargeMode::IfRoom));
        sum.0 += match charge.mode {
            ChargeMode::Refund => -micros(charge.cost),
            _ => micros(charge.cost),
        };
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_unstable();
    let of: Vec<&str> = sums.iter().map(|((of, _), _)| *of).collect();
    let keys: Vec<&str> = sums.iter().map(|((_, key), _)| *key).collect();
    let costs: Vec<i64> = sums.iter().map(|(_, (cost, _, _))| *cost).collect();
    let rooms: Vec<i64> = sums.iter().map(|(_, (_, room, _))| *room).collect();
    let done: Vec<bool> = sums.iter().map(|(_, (_, _, done))| *done).collect();
    let rows = client.query(&client.prepare_cached(CHARGE).await?, &[&of, &keys, &costs, &rooms, &done]).await?;
    let owed = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    let charged: HashMap<(&str, &str), Charged> = rows
        .iter()
        .map(|row| ((row.get(0), row.get(1)), Charged { refused: row.get(2), owed: owed(row.get(3)) }))
        .collect();
    Ok(charges
        .iter()
        .map(|charge| charged.get(&(charge.of, &*charge.key)).copied().unwrap_or(Charged::NOTHING))
        .collect())
}

/// A limit is stored as the instant at which everything charged is earned back (GCRA). One statement checks and
/// charges, so that concurrent charges of all processes are counted.
const CHARGE: &str = "
WITH spent AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::boolean[])
    AS s (of, key, cost, room, done)
), charged AS (
    INSERT INTO allowances AS a (of, key, earned_at)
    SELECT of, key, now() + cost * interval '1 microsecond' FROM spent
    ON CONFLICT (of, key) DO UPDATE SET
        (earned_at, refused) = (
            SELECT CASE WHEN fits THEN later ELSE a.earned_at END, NOT fits
            FROM (SELECT later, s.done OR later <= now() + s.room * interval '1 microsecond' AS fits
                  FROM spent s, LATERAL (SELECT greatest(a.earned_at, now()) + (excluded.earned_at - now()) AS later) l
                  WHERE s.of = excluded.of AND s.key = excluded.key) t
        )
    RETURNING a.of, a.key, a.refused, a.earned_at
)
SELECT of, key, refused, (extract(epoch FROM greatest(earned_at - now(), interval '0')) * 1000000)::bigint FROM charged";

/// Deletes rows with nothing left to earn back, in the order in which others lock them. A row that is being charged is
/// skipped.
pub(super) async fn prune_rate_limits(client: &Object) -> Result<(), Failed> {
    let delete = "WITH paid AS MATERIALIZED (
            SELECT of, key FROM allowances WHERE earned_at < now() ORDER BY of, key FOR UPDATE SKIP LOCKED)
        DELETE FROM allowances a USING paid p WHERE a.of = p.of AND a.key = p.key AND a.earned_at < now()";
    client.execute(delete, &[]).await?;
    Ok(())
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4)
}
