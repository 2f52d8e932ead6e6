//! The threads that run the offices' work, and how Python's threads wait for it.

use std::future::Future;
use std::time::Duration;

use amb_core::OfficeError;
use parking_lot::Mutex;
use pyo3::prelude::*;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

use crate::{document, failure, log};

/// Threads that only wait for the network or for a hint.
const WORKERS: usize = 2;
/// Threads for blocking file operations. Further calls wait for one of them.
const BLOCKING: usize = 64;
/// The interval at which a wait checks for signals: Ctrl-C ends a wait within this time.
const SIGNAL_CHECK: Duration = Duration::from_millis(250);

static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// The runtime of this process. A forked child has none of its parent's threads, so it gets one of its own; the
/// parent's is never dropped there, since its threads cannot be stopped.
fn runtime() -> PyResult<&'static Runtime> {
    let mut runtime = RUNTIME.lock();
    let process = std::process::id();
    if let Some((owner, runtime)) = *runtime
        && owner == process
    {
        return Ok(runtime);
    }
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(WORKERS).max_blocking_threads(BLOCKING).thread_name("agent-mailbox").enable_all();
    let made: &'static Runtime = Box::leak(Box::new(builder.build()?));
    *runtime = Some((process, made));
    Ok(made)
}

/// Waits for a result with the GIL released.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    answer: impl Future<Output = Result<T, OfficeError>> + Send,
) -> PyResult<T> {
    let runtime = runtime()?;
    let answer = py.detach(|| runtime.block_on(answer));
    log::hand_over(py)?;
    answer.map_err(|error| failure::raise(py, &error))
}

/// The same, with the result as Python's types.
pub(crate) fn wait_converted<T: Send + Serialize>(
    py: Python<'_>,
    answer: impl Future<Output = Result<T, OfficeError>> + Send,
) -> PyResult<Py<PyAny>> {
    document::to_python(py, &wait(py, answer)?)
}

/// Waits for a long operation and handles signals meanwhile. When a handler raises, `stop` is called to end the operation,
/// and its result is passed to `undo`.
pub(crate) fn wait_long<T: Send>(
    py: Python<'_>,
    answer: impl Future<Output = Result<T, OfficeError>> + Send,
    stop: impl Fn(),
    undo: impl FnOnce(T),
) -> PyResult<T> {
    let runtime = runtime()?;
    let mut answer = Box::pin(answer);
    loop {
        let waited = py.detach(|| runtime.block_on(async { tokio::time::timeout(SIGNAL_CHECK, &mut answer).await }));
        log::hand_over(py)?;
        if let Ok(answer) = waited {
            return answer.map_err(|error| failure::raise(py, &error));
        }
        if let Err(raised) = py.check_signals() {
            stop();
            if let Ok(answer) = py.detach(|| runtime.block_on(answer)) {
                undo(answer);
            }
            return Err(raised);
        }
    }
}
