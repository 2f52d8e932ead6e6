//! Points at which a test can stop the process, so that what a kill leaves is tested at every one of them.
//!
//! Each change of the directory (a file made, renamed, replaced or removed, lines added to a log) and each sync calls
//! [`step`] before it. With the feature `test-support`, the process kills itself with SIGKILL at the step whose number
//! stands in [`STOP_AT`]. Without the feature the call is empty.

/// The environment variable that says at which step to stop, counted from 1.
#[cfg(feature = "test-support")]
pub const STOP_AT: &str = "AMB_TEST_STOP_AT_STEP";

/// Counts a step, and ends the process if it is the one to stop at.
#[cfg(feature = "test-support")]
pub(crate) fn step() {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    static LAST: LazyLock<Option<u64>> = LazyLock::new(|| std::env::var(STOP_AT).ok()?.parse().ok());
    let Some(last) = *LAST else { return };
    if TAKEN.fetch_add(1, Ordering::SeqCst) + 1 >= last {
        let _gone = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // The signal may take a moment to arrive; nothing may happen meanwhile.
        loop {
            std::thread::park();
        }
    }
}

/// Does nothing: the feature `test-support` is off.
#[cfg(not(feature = "test-support"))]
#[inline(always)]
pub(crate) fn step() {}
