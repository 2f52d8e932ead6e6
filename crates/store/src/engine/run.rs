//! Running a verb on a database.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{Answer, BoxedRead, BoxedWrite, Changes, Db, Engine, ReadLength, Tried, Tx};
use crate::StoreError;
use crate::error::Result;
use crate::types::Written;

/// A verb that writes; `A` are its arguments.
pub(crate) type WriteVerb<A, T> = for<'t> fn(&'t mut dyn Tx, &'t A) -> BoxFuture<'t, Tried<T>>;
/// A verb that only reads.
pub(crate) type ReadVerb<A, T> = for<'t> fn(&'t mut dyn Db, &'t A) -> BoxFuture<'t, Tried<T>>;

/// Runs a verb that writes.
pub(crate) async fn write<A, T>(
    engine: &(impl Engine + ?Sized),
    changes: Changes,
    args: A,
    verb: WriteVerb<A, T>,
) -> Result<Written<T>>
where
    A: Send + Sync + 'static,
    T: Send + 'static,
{
    let args = Arc::new(args);
    let boxed: BoxedWrite = Box::new(move |tx| {
        let args = args.clone();
        Box::pin(async move { Ok(Box::new(verb(tx, &args).await?) as Answer) })
    });
    let Written { answer, entries } = engine.write(changes, boxed).await?;
    Ok(Written { answer: unbox(answer)?, entries })
}

/// Runs a verb that writes and appends nothing to logs.
pub(crate) async fn write_unlogged<A, T>(
    engine: &(impl Engine + ?Sized),
    changes: Changes,
    args: A,
    verb: WriteVerb<A, T>,
) -> Result<T>
where
    A: Send + Sync + 'static,
    T: Send + 'static,
{
    Ok(write(engine, changes, args, verb).await?.answer)
}

/// Runs a verb that only reads.
pub(crate) async fn read<A, T>(
    engine: &(impl Engine + ?Sized),
    length: ReadLength,
    args: A,
    verb: ReadVerb<A, T>,
) -> Result<T>
where
    A: Send + Sync + 'static,
    T: Send + 'static,
{
    let boxed: BoxedRead = Box::new(move |db| Box::pin(async move { Ok(Box::new(verb(db, &args).await?) as Answer) }));
    unbox(engine.read(length, boxed).await?)
}

fn unbox<T: 'static>(answer: Answer) -> Result<T> {
    let answer = answer.downcast().map_err(|_| StoreError::internal("a verb returned another type"))?;
    Ok(*answer)
}
