//! What became in the directory of what was carried there, told to those who sent it.

use std::sync::Arc;
use std::time::Duration;

use amb_core::{Code, OfficeError, Timestamp};
use amb_dir::CarryOutcome;

use crate::context::{Context, backoff};
use crate::ledger::{Direction, State};

/// How often is looked. Other programs take a file away and tell nobody.
const LOOK: Duration = Duration::from_secs(1);
/// Messages looked at in one round; with more of them unread, a round looks at the next ones.
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

/// Looks at some messages after this one; answers after which to go on, 0 being from the first.
async fn look(context: &Context, after: i64) -> Result<i64, OfficeError> {
    let unread = context.ledger.open_ones(Direction::In, State::Across, None, after, SOME).await?;
    let last = if unread.len() == SOME as usize { unread.last().map_or(0, |row| row.number) } else { 0 };
    let mut states = Vec::new();
    for row in unread {
        let (Some(file), Some(office_id)) = (&row.file, row.office_id) else { continue };
        match context.office.carry_outcome(&row.recipient, file).await? {
            CarryOutcome::Waiting => {}
            CarryOutcome::Refused => states.push((row.number, State::Refused)),
            CarryOutcome::Handled => {
                let Some(resident) = context.membership.resident(&row.recipient) else { continue };
                match context.store.ack(&resident.agent, &[office_id.into()], Timestamp::now()).await {
                    Ok(written) => drop(context.publish(written)),
                    // Removed from the office meanwhile.
                    Err(error) if error.code() == Code::NotFound => {}
                    Err(error) => return Err(error),
                }
                states.push((row.number, State::Read));
            }
        }
    }
    context.ledger.note(states).await?;
    Ok(last)
}
