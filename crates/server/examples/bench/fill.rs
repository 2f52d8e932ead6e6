//! Fills a database with mail before a measurement, through the store itself.

use std::error::Error;
use std::sync::Arc;

use amb_core::{AgentName, Card, Draft, Timestamp};
use amb_store::{Agent, Ask, KeyHash, NewAgent, Store};
use futures_util::{StreamExt, TryStreamExt};
use tokio::task::JoinSet;

/// Concurrent sends: enough to fill the batches.
const TOGETHER: usize = 512;
/// Messages in each session of the other pairs, which are not measured.
const OTHERS_EACH: usize = 1_000;
/// Characters of a message.
const LENGTH: usize = 200;

/// Makes `pairs` pairs with one session of `messages` each, and other pairs with `others` messages in all. Prints a
/// line for each of the first: both keys, both names and the session.
pub(crate) async fn fill(url: &str, pairs: usize, messages: usize, others: usize) -> Result<(), Box<dyn Error>> {
    let store = amb_store::open(url).await?;
    let known = make(&store, "pair", pairs).await?;
    let others_known = make(&store, "other", others.div_ceil(OTHERS_EACH)).await?;
    // Round by round, so that sessions grow side by side, as in production.
    let rounds = messages.max(if others == 0 { 0 } else { OTHERS_EACH });
    let text = "m".repeat(LENGTH);
    let mut sends = JoinSet::new();
    for round in 0..rounds {
        let measured = known.iter().filter(|_| round < messages);
        let rest = others_known.iter().filter(|_| round < OTHERS_EACH);
        for (from, to) in measured.chain(rest) {
            let (store, from) = (store.clone(), from.clone());
            let draft = Draft::text(to.name.clone(), "Load", text.clone());
            sends.spawn(async move { store.send(&from, draft, Timestamp::now()).await });
            if sends.len() >= TOGETHER
                && let Some(sent) = sends.join_next().await
            {
                sent??;
            }
        }
    }
    while let Some(sent) = sends.join_next().await {
        sent??;
    }
    for (number, (from, to)) in known.iter().enumerate() {
        let inbox = store.inbox(to, false, Timestamp::now()).await?;
        let session = inbox.sessions.first().map_or_else(|| "-".to_owned(), |session| session.session_id.to_string());
        let name = format!("pair-{number}");
        println!("{} {} {} {} {session}", key(&name, "from"), key(&name, "to"), from.name, to.name);
    }
    store.close().await;
    Ok(())
}

/// Makes `count` pairs, many at a time so that they share transactions.
async fn make(store: &Arc<dyn Store>, name: &str, count: usize) -> Result<Vec<(Agent, Agent)>, Box<dyn Error>> {
    let pairs = (0..count).map(|number| pair(store, format!("{name}-{number}")));
    futures_util::stream::iter(pairs).buffered(TOGETHER).try_collect().await
}

/// A predictable key.
fn key(pair: &str, side: &str) -> String {
    format!("amb_{}", KeyHash::of(&format!("{pair} {side}")).to_hex())
}

async fn pair(store: &Arc<dyn Store>, name: String) -> Result<(Agent, Agent), Box<dyn Error>> {
    let mut both = Vec::new();
    for side in ["from", "to"] {
        let new = NewAgent {
            name: AgentName::parse_for_server(&format!("{name}-{side}"))?,
            key_hash: KeyHash::of(&key(&name, side)),
            key_prefix: key(&name, side)[..8].to_owned(),
            owner_contact: None,
            card: Card::default(),
            join: None,
        };
        both.push(store.register_agent(new, Timestamp::now()).await?.answer);
    }
    let (to, from) = both.pop().zip(both.pop()).ok_or("a pair is two")?;
    let asked = store.request_connection(&from, Ask::new(to.name.clone(), None), Timestamp::now()).await?.answer;
    store.approve_connection(&to, &asked.verification_code, Timestamp::now()).await?;
    Ok((from, to))
}
