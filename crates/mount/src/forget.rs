//! Deletes ledger rows of messages that the office has removed, so that the ledger does not grow without bound.

use std::sync::Arc;
use std::time::Duration;

use amb_core::OfficeError;
use amb_core::error::if_found;

use crate::context::{Context, Rounds};
use crate::ledger::CrossingRow;

/// Delay of the first round, until residents and guests are known.
const FIRST: Duration = Duration::from_secs(30);
/// Interval of rounds. The office removes mail days after it was read.
const INTERVAL: Duration = Duration::from_secs(600);
/// Rows checked in one round, so that its cost does not depend on the length of the ledger.
const BATCH: u32 = 500;

const DOING: &str = "forgetting mail that the office has removed";

pub(crate) async fn run(context: Arc<Context>) {
    let mut rounds = Rounds::new(&context, DOING, Arc::default());
    let (mut after, mut result) = (0, Ok(FIRST));
    while rounds.next(result).await {
        result = delete_batch(&context, after).await.map(|(last, deleted)| {
            after = last;
            // If all of them were deleted, the next ones are likely to be too.
            if deleted == BATCH as usize { Duration::ZERO } else { INTERVAL }
        });
    }
}

/// Checks a batch of rows after this number. Returns where to continue (0: from the start) and how many were deleted.
async fn delete_batch(context: &Context, after: i64) -> Result<(i64, usize), OfficeError> {
    let rows = context.ledger.read_rows(after, BATCH).await?;
    let last = if rows.len() == BATCH as usize { rows.last().map_or(0, |row| row.number) } else { 0 };
    let mut obsolete = Vec::new();
    for row in rows {
        if is_obsolete(context, &row).await? {
            obsolete.push(row.number);
        }
    }
    let count = obsolete.len();
    context.ledger.forget(obsolete).await?;
    Ok((last, count))
}

/// Whether nothing can refer to a message any longer.
async fn is_obsolete(context: &Context, row: &CrossingRow) -> Result<bool, OfficeError> {
    // A task report: the office wrote its own message for it.
    let Some(id) = row.office_id else { return Ok(true) };
    // One of the two is the resident, who can see the message while the office has it.
    let resident = context.membership.resident(&row.recipient).or_else(|| context.membership.resident(&row.sender));
    let Some(resident) = resident else { return Ok(false) };
    Ok(if_found(context.store.message(&resident.agent, &id.into()).await)?.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use amb_core::id::fresh_uuid;
    use amb_core::{Card, MessageId, Timestamp};
    use amb_dir::Layout;

    use crate::ledger::{CrossingState, NewCrossing, NewCrossingKind};
    use crate::testing::Fixture;

    #[tokio::test]
    async fn the_ledger_forgets_what_the_office_has_removed_and_nothing_else() {
        let fixture = Fixture::new(Layout::Nanobot, false).await;
        let (context, office) = (&fixture.context, &fixture.network);
        let resident = fixture.resident("coder", Card::default()).await;
        let coder = resident.agent.name.clone();
        let ann = office.enter("ann-mcp").await;
        office.connect(&resident.agent, &ann).await;
        let there = office.say(&resident.agent, &ann, "Plan", "kept by the office").await.answer.message_id;

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
        context
            .ledger
            .set_states(rows[..3].iter().map(|row| (row.number, CrossingState::Read)).collect())
            .await
            .unwrap();

        assert_eq!(delete_batch(context, 0).await.unwrap(), (0, 2));
        for (id, stays) in [("removed", false), ("kept", true), ("report", false), ("unread", true)] {
            let id: MessageId = id.parse().unwrap();
            assert_eq!(context.ledger.by_dir_id(&ann.name, &id).await.unwrap().is_some(), stays, "{id}");
        }
    }
}
