//! Running a verb on a database.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::{BoxedRead, BoxedWrite, Changes, Db, Engine, ReadLength, Tried, Tx};
use crate::StoreError;
use crate::error::Result;
use crate::types::Written;

/// A verb that writes: `A` is what it was asked.
pub(crate) type WriteVerb<A, T> = for<'t> fn(&'t mut dyn Tx, &'t A) -> BoxFuture<'t, Tried<T>>;
/// A verb that only reads.
pub(crate) type ReadVerb<A, T> = for<'t> fn(&'t mut dyn Db, &'t A) -> BoxFuture<'t, Tried<T>>;

fn into_slot<T>(slot: &Arc<Mutex<Option<T>>>) -> Result<T> {
    let answer = slot.lock().take();
    answer.ok_or_else(|| StoreError::internal("a verb ended without an answer"))
}

/// Runs a verb that writes.
pub(crate) async fn write<A, T>(
    engine: &(impl Engine + ?Sized),
    changes: Changes,
    asked: A,
    verb: WriteVerb<A, T>,
) -> Result<Written<T>>
where
    A: Send + Sync + 'static,
    T: Send + 'static,
{
    let (asked, slot) = (Arc::new(asked), Arc::new(Mutex::new(None)));
    let answer = slot.clone();
    let entries = engine
        .write(
            changes,
            erase_write(move |tx| {
                let (asked, answer) = (asked.clone(), answer.clone());
                Box::pin(async move {
                    let given = verb(tx, &asked).await?;
                    *answer.lock() = Some(given);
                    Ok(())
                })
            }),
        )
        .await?;
    Ok(Written { answer: into_slot(&slot)?, entries })
}

/// Runs a verb that only reads.
pub(crate) async fn read<A, T>(
    engine: &(impl Engine + ?Sized),
    look: ReadLength,
    asked: A,
    verb: ReadVerb<A, T>,
) -> Result<T>
where
    A: Send + Sync + 'static,
    T: Send + 'static,
{
    let (asked, slot) = (Arc::new(asked), Arc::new(Mutex::new(None)));
    let answer = slot.clone();
    engine
        .read(
            look,
            erase_read(move |db| {
                let (asked, answer) = (asked.clone(), answer.clone());
                Box::pin(async move {
                    let given = verb(db, &asked).await?;
                    *answer.lock() = Some(given);
                    Ok(())
                })
            }),
        )
        .await?;
    into_slot(&slot)
}

fn erase_write(verb: impl for<'t> FnMut(&'t mut dyn Tx) -> BoxFuture<'t, Tried<()>> + Send + 'static) -> BoxedWrite {
    Box::new(verb)
}

fn erase_read(verb: impl for<'t> FnMut(&'t mut dyn Db) -> BoxFuture<'t, Tried<()>> + Send + 'static) -> BoxedRead {
    Box::new(verb)
}
