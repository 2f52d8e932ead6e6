//! The ledger forgets what the office has forgotten; see [`crate::ledger`]. Else it would grow for ever.

use std::sync::Arc;
use std::time::Duration;

use amb_core::{Code, OfficeError};

use crate::context::{Context, backoff};
use crate::ledger::Crossing;

/// When is looked first: by then it is known who lives where.
const FIRST: Duration = Duration::from_secs(30);
/// How often is looked. The office removes mail days after it was read.
const LOOK: Duration = Duration::from_secs(600);
/// Rows looked at in one round; the next round looks at the next ones. So a look costs the same however long the ledger is.
const SOME: u32 = 500;

const DOING: &str = "forgetting mail that the office has removed";

pub(crate) async fn keep(context: Arc<Context>) {
    let (mut after, mut wait) = (0, FIRST);
    let mut backoff = backoff();
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = context.closing.cancelled() => return,
        }
        wait = match look(&context, after).await {
            Ok((last, forgotten)) => {
                context.stats.works(DOING);
                backoff.reset();
                after = last;
                // Where all of them were removed, the next ones are likely to be.
                if forgotten == SOME as usize { Duration::ZERO } else { LOOK }
            }
            Err(error) => {
                context.stats.failed(DOING, &error);
                backoff.pause()
            }
        };
    }
}

/// Looks at some rows after this one; answers after which to go on, 0 being from the first, and how many were forgotten.
async fn look(context: &Context, after: i64) -> Result<(i64, usize), OfficeError> {
    let rows = context.ledger.read_ones(after, SOME).await?;
    let last = if rows.len() == SOME as usize { rows.last().map_or(0, |row| row.number) } else { 0 };
    let mut forgotten = Vec::new();
    for row in rows {
        if is_over(context, &row).await? {
            forgotten.push(row.number);
        }
    }
    let count = forgotten.len();
    context.ledger.forget(forgotten).await?;
    Ok((last, count))
}

/// Whether nobody can come back to a message that was read.
async fn is_over(context: &Context, row: &Crossing) -> Result<bool, OfficeError> {
    // A report: the office wrote its own message of it.
    let Some(id) = row.office_id else { return Ok(true) };
    // One of the two is the resident, who sees what the office keeps of it.
    let resident = context.membership.resident(&row.recipient).or_else(|| context.membership.resident(&row.sender));
    let Some(resident) = resident else { return Ok(false) };
    match context.store.message(&resident.agent, &id.into()).await {
        Ok(_) => Ok(false),
        Err(error) if error.code() == Code::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amb_core::id::fresh_uuid;
    use amb_core::{Card, MessageId, Timestamp};
    use amb_dir::Layout;

    use crate::ledger::{NewCrossing, NewCrossingKind, State};
    use crate::testing::Fixture;

    #[tokio::test]
    async fn the_ledger_forgets_what_the_office_has_removed_and_nothing_else() {
        let fixture = Fixture::new(Layout::Nanobot, false).await;
        let (context, desk) = (&fixture.context, &fixture.desk);
        let resident = fixture.resident("coder", Card::default()).await;
        let coder = resident.agent.name.clone();
        let ann = desk.enter("ann-mcp").await;
        desk.connect(&resident.agent, &ann).await;
        let there = desk.say(&resident.agent, &ann, "Plan", "kept by the office").await.answer.message_id;

        let now = Timestamp::now();
        let row = |what| NewCrossing { sender: coder.clone(), recipient: ann.name.clone(), what };
        let out =
            |id: &str, office_id| NewCrossingKind::Out { dir_id: id.parse().unwrap(), office_id, at: now, task: None };
        let rows = context.ledger.begin(vec![
            row(out("removed", fresh_uuid(now))),
            row(out("kept", there.as_uuid().unwrap())),
            row(NewCrossingKind::Report { dir_id: "report".parse().unwrap(), at: now }),
            row(out("unread", fresh_uuid(now))),
        ]);
        let rows = rows.await.unwrap();
        context.ledger.note(rows[..3].iter().map(|row| (row.number, State::Read)).collect()).await.unwrap();

        assert_eq!(look(context, 0).await.unwrap(), (0, 2));
        for (id, stays) in [("removed", false), ("kept", true), ("report", false), ("unread", true)] {
            let id: MessageId = id.parse().unwrap();
            assert_eq!(context.ledger.outward(&ann.name, &id).await.unwrap().is_some(), stays, "{id}");
        }
    }
}
