//! Polls carried messages in the directory and writes read receipts in the office.

use std::sync::Arc;
use std::time::Duration;

use amb_core::error::if_found;
use amb_core::{OfficeError, Timestamp};
use amb_dir::CarryOutcome;

use crate::context::{Context, Rounds};
use crate::ledger::{CrossingState, Direction};

/// Interval of rounds. Other programs move files without a signal.
const INTERVAL: Duration = Duration::from_secs(1);
/// Messages checked in one round; the next round continues after them.
const BATCH: u32 = 500;

const DOING: &str = "looking after mail in the directory";

pub(crate) async fn run(context: Arc<Context>) {
    let mut rounds = Rounds::new(&context, DOING, Arc::default());
    let mut after = 0;
    while rounds.next(check_batch(&context, &mut after).await).await {}
}

/// Checks a batch of messages after this number, which becomes where to continue (0: from the start).
async fn check_batch(context: &Context, after: &mut i64) -> Result<Duration, OfficeError> {
    let unread = context.ledger.rows_in_state(Direction::In, CrossingState::Across, None, *after, BATCH).await?;
    let last = if unread.len() == BATCH as usize { unread.last().map_or(0, |row| row.number) } else { 0 };
    let mut states = Vec::new();
    for row in unread {
        let (Some(file), Some(office_id)) = (&row.file, row.office_id) else { continue };
        match context.office.carry_outcome(&row.recipient, file).await? {
            CarryOutcome::Waiting => {}
            CarryOutcome::Refused => states.push((row.number, CrossingState::Refused)),
            CarryOutcome::Handled => {
                let Some(resident) = context.membership.resident(&row.recipient) else { continue };
                let acked = context.store.ack(&resident.agent, &[office_id.into()], Timestamp::now()).await;
                // The office may have removed it meanwhile.
                if let Some(written) = if_found(acked)? {
                    context.publish(written);
                }
                states.push((row.number, CrossingState::Read));
            }
        }
    }
    context.ledger.set_states(states).await?;
    *after = last;
    Ok(INTERVAL)
}
