//! Generators that the tests of all formats share.

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;

use crate::Object;
use crate::limits::MAX_TTL;
use crate::message::{Callback, Kind, Message, Part, Priority};
use crate::name::AgentName;
use crate::task::{TaskRef, TaskState};

pub(crate) fn arbitrary_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..200), json().prop_map(|value| value.to_string().into_bytes())]
}

/// A real sample with bytes flipped, inserted, removed, or cut off.
pub(crate) fn mutated(sample: &'static str) -> impl Strategy<Value = Vec<u8>> {
    vec((any::<prop::sample::Index>(), any::<u8>(), 0..5_u8), 1..6).prop_map(move |changes| {
        let mut bytes = sample.as_bytes().to_vec();
        for (place, byte, how) in changes {
            if bytes.is_empty() {
                break;
            }
            let place = place.index(bytes.len());
            match how {
                0 => bytes[place] ^= 1 << (byte % 8),
                1 => bytes.insert(place, byte),
                2 => bytes.insert(place, b"{}[]\",:0-e.\\tn"[usize::from(byte) % 14]),
                3 => drop(bytes.remove(place)),
                _ => bytes.truncate(place),
            }
        }
        bytes
    })
}

/// A sample with one of its values replaced by another one, so that it is still JSON but means something else.
pub(crate) fn retyped(sample: &'static str) -> impl Strategy<Value = Vec<u8>> {
    (any::<prop::sample::Index>(), json()).prop_map(move |(place, new)| {
        let mut value: Value = serde_json::from_str(sample).unwrap();
        let mut paths = Vec::new();
        collect(&value, String::new(), &mut paths);
        let path = &paths[place.index(paths.len())];
        *value.pointer_mut(path).unwrap() = new;
        value.to_string().into_bytes()
    })
}

fn collect(value: &Value, path: String, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| collect(value, format!("{path}/{key}"), into)),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| collect(v, format!("{path}/{i}"), into)),
        _ => {}
    }
    into.push(path);
}

pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::from), object_of(inner).prop_map(Value::Object)]
    })
}

fn object_of(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Object> {
    // Keys that no format knows, so that an unknown field stays one.
    vec((r"x[a-z\PC]{0,5}", value), 0..4).prop_map(|pairs| pairs.into_iter().collect())
}

pub(crate) fn object() -> impl Strategy<Value = Object> {
    object_of(json())
}

pub(crate) fn name() -> impl Strategy<Value = AgentName> {
    "[A-Za-z0-9-][A-Za-z0-9._-]{0,15}".prop_map(|text| text.parse().unwrap())
}

fn id<T: std::str::FromStr + std::fmt::Debug>() -> impl Strategy<Value = T> {
    "[!-~é]{1,30}".prop_map(|text| text.parse().ok().unwrap())
}

pub(crate) fn instant() -> impl Strategy<Value = Timestamp> {
    (0_i64..10_000_000_000, prop_oneof![Just(0), 0..1_000_000_000_i32])
        .prop_map(|(seconds, nanos)| Timestamp::new(seconds, nanos).unwrap())
}

fn kind() -> impl Strategy<Value = Kind> {
    let words = ["message", "task", "task_update", "work_assignment", "completion_report", "merge_notification"];
    prop_oneof![prop::sample::select(words.to_vec()).prop_map(str::to_owned), "[!-~]{1,64}"]
        .prop_map(|word| word.parse().unwrap())
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        any::<String>().prop_map(Part::text),
        json().prop_map(Part::data),
        (".{0,20}", option::of(".{0,10}")).prop_map(|(path, media_type)| Part::File { path, media_type }),
    ]
}

fn task() -> impl Strategy<Value = TaskRef> {
    (id(), prop::sample::select(TaskState::ALL.to_vec()), option::of(instant()), object())
        .prop_map(|(id, state, deadline, extra)| TaskRef { id, state, deadline, extra })
}

fn callback() -> impl Strategy<Value = Callback> {
    let text = || option::of(".{0,12}");
    (text(), text(), text(), object()).prop_map(|(channel, session_id, chat_id, extra)| Callback {
        channel,
        session_id,
        chat_id,
        extra,
    })
}

/// Any message at all.
pub(crate) fn message() -> impl Strategy<Value = Message> {
    let address = (id(), name(), name(), instant(), kind(), option::of(id()), option::of(any::<String>()));
    let way = (prop::sample::select(Priority::ALL.to_vec()), 0..=MAX_TTL, vec(name(), 0..5));
    let rest = (option::of(task()), option::of(callback()), option::of(id()), option::of(id()), object());
    let parts = prop_oneof![any::<String>().prop_map(|text| vec![Part::text(text)]), vec(part(), 0..4)];
    (address, parts, way, rest).prop_map(|(address, parts, way, rest)| {
        let (id, from, to, sent_at, kind, session, subject) = address;
        let (priority, ttl, trace) = way;
        let (task, callback, reply_to, correlation_id, metadata) = rest;
        Message {
            id,
            from,
            from_person: false,
            to,
            sent_at,
            kind,
            session,
            subject,
            parts,
            priority,
            ttl,
            trace,
            task,
            callback,
            reply_to,
            correlation_id,
            metadata,
        }
    })
}
