//! Points at which a test can kill the process, so that crash recovery is tested at each of them.
//!
//! [`step`] is called before each change of the directory (a file created, renamed, replaced or removed, lines appended
//! to a log) and before each sync. With the feature `test-support`, the process kills itself with SIGKILL at the step
//! number in [`STOP_AT`], pauses at the one in [`PAUSE_AT`], and sleeps before some steps with [`DELAYS`]. Without the
//! feature the call is empty.

/// Environment variable: the step to kill the process at, counted from 1.
#[cfg(feature = "test-support")]
pub const STOP_AT: &str = "AMB_TEST_STOP_AT_STEP";

/// Environment variable: the step to pause at, counted from 1. The process prints `paused` to stdout and continues at
/// the end of stdin.
#[cfg(feature = "test-support")]
pub const PAUSE_AT: &str = "AMB_TEST_PAUSE_AT_STEP";

/// Environment variable: a seed that decides before which steps the process sleeps briefly, so that other processes
/// interleave.
#[cfg(feature = "test-support")]
pub const DELAYS: &str = "AMB_TEST_DELAYS";

/// Counts a step; kills or pauses the process if it is the chosen one.
#[cfg(feature = "test-support")]
pub(crate) fn step() {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    static NUMBERS: LazyLock<[Option<u64>; 3]> =
        LazyLock::new(|| [STOP_AT, PAUSE_AT, DELAYS].map(|name| std::env::var(name).ok()?.parse().ok()));
    let [stop, pause, delays] = *NUMBERS;
    if stop.is_none() && pause.is_none() && delays.is_none() {
        return;
    }
    let number = TAKEN.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(seed) = delays {
        let dice = seed.wrapping_add(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if dice.is_multiple_of(8) {
            std::thread::sleep(std::time::Duration::from_micros(dice % 4_000));
        }
    }
    if stop.is_some_and(|stop| number >= stop) {
        let _gone = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        // The signal may take a moment to arrive; nothing may happen meanwhile.
        loop {
            std::thread::park();
        }
    }
    if pause == Some(number) {
        wait_for_test();
    }
}

#[cfg(feature = "test-support")]
fn wait_for_test() {
    use std::io::{Read, Write};
    let mut out = std::io::stdout().lock();
    let _best_effort = out.write_all(b"\npaused\n").and_then(|()| out.flush());
    drop(out);
    let _ended = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Does nothing: the feature `test-support` is off.
#[cfg(not(feature = "test-support"))]
#[inline(always)]
pub(crate) fn step() {}
