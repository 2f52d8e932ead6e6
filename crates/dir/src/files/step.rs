//! Points at which a test can stop the process, so that what a kill leaves is tested at every one of them.
//!
//! Each change of the directory (a file made, renamed, replaced or removed, lines added to a log) and each sync calls
//! [`step`] before it. With the feature `test-support`, the process kills itself with SIGKILL at the step whose number
//! stands in [`STOP_AT`], and waits at the one in [`PAUSE_AT`]; [`DELAYS`] slows it down here and there. Without the feature the call is empty.

/// The environment variable that says at which step to stop, counted from 1.
#[cfg(feature = "test-support")]
pub const STOP_AT: &str = "AMB_TEST_STOP_AT_STEP";

/// The environment variable that says at which step to wait, counted from 1: the process says `paused` on its standard
/// output and goes on when its standard input ends.
#[cfg(feature = "test-support")]
pub const PAUSE_AT: &str = "AMB_TEST_PAUSE_AT_STEP";

/// The environment variable with a number from which it follows before which steps the process sleeps for a moment: so
/// others get in between.
#[cfg(feature = "test-support")]
pub const DELAYS: &str = "AMB_TEST_DELAYS";

/// Counts a step, and ends the process or waits if it is the one to stop or to wait at.
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
        wait_for_the_test();
    }
}

#[cfg(feature = "test-support")]
fn wait_for_the_test() {
    use std::io::{Read, Write};
    let mut out = std::io::stdout().lock();
    let _heard = out.write_all(b"\npaused\n").and_then(|()| out.flush());
    drop(out);
    let _ended = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Does nothing: the feature `test-support` is off.
#[cfg(not(feature = "test-support"))]
#[inline(always)]
pub(crate) fn step() {}
