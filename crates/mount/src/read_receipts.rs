//! Watches carried messages in the directory and writes read receipts in the office.

use std::sync::Arc;
use std::time::Duration;

use amb_core::error::if_found;
use amb_core::{OfficeError, Timestamp};
use amb_dir::CarryOutcome;

use crate::context::{Context, backoff};
use crate::ledger::{CrossingState, Direction};

/// Interval of rounds. Other programs take files away without a signal.
const LOOK: Duration = Duration::from_secs(1);
/// Messages checked in one round; the next round continues after them.
const SOME: u32 = 500;

const DOING: &str = "looking after mail in the directory";

pub(crate) async fn keep(context: Arc<Context>) {
    let mut after = 0;
    let mut backoff = backoff();
    loop {
        let wait = match look(&context, after).await {
            Ok(last) => {
                context.stats.works(DOING);
                backoff.reset();
                after = last;
                LOOK
            }
            Err(error) => {
                context.stats.failed(DOING, &error);
                backoff.pause()
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = context.closing.cancelled() => return,
        }
    }
}

/// Checks some messages after this one. Returns where to continue (0: from the start).
async fn look(context: &Context, after: i64) -> Result<i64, OfficeError> {
    let unread = context.ledger.open_ones(Direction::In, CrossingState::Across, None, after, SOME).await?;
    let last = if unread.len() == SOME as usize { unread.last().map_or(0, |row| row.number) } else { 0 };
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
    context.ledger.note(states).await?;
    Ok(last)
}
