//! Measures reading and writing one message of about 1 KB in each format: time with criterion, and allocations with a
//! counting allocator.

// Counting allocations takes an allocator of our own, and that trait is unsafe to implement.
#![allow(unsafe_code, clippy::unwrap_used, clippy::print_stdout)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use amb_core::wire::inbox::{Envelope, InboxMessage};
use amb_core::wire::{chipset, nanobot, transcript};
use amb_core::{Message, Timestamp};
use criterion::{Criterion, Throughput};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed unchanged to the system's allocator; only a counter is incremented.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Prose with paragraphs, quotes and letters beyond ASCII, as models write it; about 800 bytes.
const BODY: &str = "The nightly build is green again. What broke it was the lock in `registry.rs`: two agents wrote the \
same temporary file, and the slower one renamed a file that was no longer its own.\n\nWhat I changed:\n\
- every writer has a temporary name of its own\n- the rename refuses to replace an existing file\n\
- the directory is synced after the rename\n\nWhat I would like from you: read the new test \"a message accepted before \
the kill is there after it\", run it twenty times on the slow machine, and tell me whether it ever fails. If it does, \
send me the log of that run, not only the last line. The review is due on Friday; after that I am away until the 12th, \
and Søren takes over. He knows the plan (see the note of 4 March), but not yet the details of the lock: 请先看说明。";
const FILE: &str = "1772706600123_researcher.msg.json";
const MAIL: &str = "2026-03-05T10-30-00.123Z-researcher.json";

fn message() -> Message {
    let file = serde_json::json!({
        "id": "0199a0c2-7c1e-7e43-9d52-3f1b8a6c0d11", "from": "researcher", "to": "coder",
        "timestamp": "2026-03-05T10:30:00.123Z", "type": "message", "ttl": 2, "trace": ["researcher"],
        "content": {"parts": [{"type": "text", "text": BODY}]}, "subject": "The lock in the registry",
    });
    nanobot::parse(file.to_string().as_bytes(), FILE, Timestamp::UNIX_EPOCH).unwrap()
}

fn inbox_message() -> InboxMessage {
    InboxMessage {
        from_agent_id: "researcher".into(),
        from_goal_id: "b91c2d3a-0000-4000-8000-000000000001".parse().unwrap(),
        to_agent_id: "coder".into(),
        body: BODY.into(),
        sent_at: "2026-03-05T10:30:00.123Z".parse().unwrap(),
        correlation_id: Some(uuid::Uuid::from_u128(7)),
    }
}

/// The shortest of many short runs, which depends less on other load than criterion's mean.
fn least_nanos<T>(operation: impl Fn() -> T) -> u128 {
    const RUNS: u32 = 100;
    let run = || {
        let start = Instant::now();
        for _ in 0..RUNS {
            black_box(operation());
        }
        start.elapsed().as_nanos() / u128::from(RUNS)
    };
    (0..1_000).map(|_| run()).min().unwrap_or(0)
}

/// Measures one operation: allocations first, once, since they do not vary; then time.
fn measure<T>(c: &mut Criterion, name: &str, bytes: usize, operation: impl Fn() -> T) {
    black_box(operation());
    let before = ALLOCATIONS.load(Relaxed);
    black_box(operation());
    let allocations = ALLOCATIONS.load(Relaxed) - before;
    let least = least_nanos(&operation);
    println!("{name}: {allocations} allocations, {least} ns at the least, for {bytes} bytes");
    let mut group = c.benchmark_group("wire");
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function(name, |b| b.iter(|| black_box(operation())));
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let c = &mut criterion;
    let (message, inbox) = (message(), inbox_message());
    let epoch = Timestamp::UNIX_EPOCH;

    let file = nanobot::write(&message).unwrap();
    measure(c, "nanobot parse", file.len(), || nanobot::parse(black_box(&file), FILE, epoch));
    measure(c, "nanobot write", file.len(), || nanobot::write(black_box(&message)));

    let mail = chipset::write(&message, false).unwrap();
    measure(c, "chipset parse", mail.len(), || chipset::parse(black_box(&mail), MAIL, epoch));
    measure(c, "chipset write", mail.len(), || chipset::write(black_box(&message), false));
    measure(c, "chipset marked_read", mail.len(), || chipset::marked_read(black_box(&mail)));

    let bare = inbox.write().unwrap();
    measure(c, "inbox parse", bare.len(), || InboxMessage::parse(black_box(&bare)));
    measure(c, "inbox write", bare.len(), || inbox.write());
    let (id, topic) = (uuid::Uuid::from_u128(8), "agent.inbox.b91c2d3a-0000-4000-8000-000000000001");
    let envelope =
        Envelope { id, timestamp: inbox.sent_at, topic, source: "researcher", session_id: None, payload: &inbox };
    let enveloped = envelope.write().unwrap();
    measure(c, "inbox parse, in an envelope", enveloped.len(), || InboxMessage::parse(black_box(&enveloped)));

    let line = amb_core::transcript::Line {
        role: "user".into(),
        content: BODY.into(),
        sender: "ou_123".into(),
        author: None,
        message_id: Some("om_dc13264520392913993dd051dba21dcf".into()),
        ts: Some(1_772_706_600_123.0),
    };
    let written = transcript::write(&line).unwrap();
    measure(c, "transcript parse", written.len(), || transcript::parse(black_box(&written)));
    measure(c, "transcript write", written.len(), || transcript::write(black_box(&line)));

    criterion.final_summary();
}
