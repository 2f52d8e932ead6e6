//! All limits. Lengths count characters (Unicode scalar values) unless the name says bytes.

use std::time::Duration;

use jiff::Timestamp;

/// Longest agent name.
pub const MAX_NAME_CHARS: usize = 100;
/// Longest name in bytes: with a time and a number it becomes a file name, which has at most 255.
pub const MAX_NAME_BYTES: usize = 200;
/// Shortest name that can be registered on a server.
pub const MIN_SERVER_NAME_CHARS: usize = 3;
/// Longest id of any kind, ours or another system's.
pub const MAX_ID_CHARS: usize = 200;
/// Longest kind label.
pub const MAX_KIND_CHARS: usize = 64;
/// Longest subject.
pub const MAX_SUBJECT_CHARS: usize = 255;
/// Longest `content` of one message in the network office, the field that every client knows.
pub const MAX_CONTENT_CHARS: usize = 10_000;
/// Longest text of one message in the network office, all text parts together. Longer than `content` may be, so a long
/// text is sent in `parts`; documents show all of it.
pub const MAX_TEXT_CHARS: usize = 100_000;
/// Longest introduction in a connection request.
pub const MAX_INTRO_CHARS: usize = 500;
/// Longest contact line of an agent's owner.
pub const MAX_OWNER_CONTACT_CHARS: usize = 255;
/// Longest description on a card.
pub const MAX_DESCRIPTION_CHARS: usize = 1_000;
/// Most capabilities on a card.
pub const MAX_CAPABILITIES: usize = 64;
/// Longest single capability.
pub const MAX_CAPABILITY_CHARS: usize = 100;
/// Most entries in `allow_from`.
pub const MAX_ALLOW_FROM: usize = 1_000;
/// Most parts in one message.
pub const MAX_PARTS: usize = 32;
/// Largest message, all parts, metadata and callback together, in bytes of JSON.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// Largest metadata object, in bytes of JSON.
pub const MAX_METADATA_BYTES: usize = 16 * 1024;
/// Deepest nesting of a value in metadata, a callback or a data part. Documents wrap it in some more levels, and the JSON
/// parsers of clients refuse more than about 128.
pub const MAX_JSON_DEPTH: usize = 64;
/// Longest field of a callback.
pub const MAX_CALLBACK_CHARS: usize = 255;
/// Longest note on a task's change of state.
pub const MAX_NOTE_CHARS: usize = 10_000;
/// Longest idempotency key.
pub const MAX_IDEMPOTENCY_KEY_CHARS: usize = 255;
/// Longest session key of a transcript.
pub const MAX_TRANSCRIPT_KEY_CHARS: usize = 255;
/// Longest content of one transcript line.
pub const MAX_TRANSCRIPT_CHARS: usize = 100_000;

/// Most messages of one agent that a network office stores by default.
pub const DEFAULT_AGENT_MESSAGES: u64 = 1_000_000;
/// Most bytes of one agent's messages that a network office stores by default.
pub const DEFAULT_AGENT_BYTES: u64 = 4 << 30;

/// Hops of a new message.
pub const DEFAULT_TTL: u8 = 3;
/// The largest ttl that is accepted from another system.
pub const MAX_TTL: u8 = 16;
/// Most names kept of a trace from another system.
pub const MAX_TRACE: usize = 64;

/// Tasks an agent works on at once unless its card says otherwise.
pub const DEFAULT_MAX_CONCURRENT_TASKS: u32 = 3;
/// Messages per session shown in an inbox.
pub const INBOX_PREVIEW: usize = 3;
/// Sessions in one page of an inbox, unless fewer are asked for.
pub const MAX_INBOX_SESSIONS: u32 = 500;
/// Longest content of a message that an inbox of the network office shows; a longer one is cut and marked.
pub const MAX_PREVIEW_CHARS: usize = 2_000;
/// Largest parts, metadata or callback that an inbox of the network office shows, each in bytes of JSON; larger ones
/// are left out and marked.
pub const MAX_PREVIEW_BYTES: usize = 4 * 1024;
/// Bytes after which a page of the network office ends, however many items were asked for. It always has one item.
pub const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Most bytes of one send to several agents, all copies together.
pub const MAX_COPIES_BYTES: usize = 16 * 1024 * 1024;
/// Most members of one group, those who were invited included.
pub const MAX_GROUP_MEMBERS: usize = 100;
/// Most groups that one agent is in, invitations included.
pub const MAX_GROUPS: u32 = 1_000;
/// Most pending connection requests to one agent.
pub const MAX_WAITING_REQUESTS: u32 = 100;
/// Most members of one household, its person included.
pub const MAX_HOUSEHOLD_MEMBERS: u32 = 1_000;
/// Most machines of one household with a valid token.
pub const MAX_HOUSEHOLD_MACHINES: u32 = 100;
/// How often a person gives one task to another agent at most: each time its owner stores a copy of it.
pub const MAX_REASSIGNMENTS: u32 = 32;
/// Longest label of a machine.
pub const MAX_LABEL_CHARS: usize = 100;
/// Messages in a history without a given limit.
pub const DEFAULT_HISTORY: u32 = 3;
/// Most messages in one history request.
pub const MAX_HISTORY: u32 = 50;
/// Most messages in one list of claimed messages.
pub const MAX_CLAIMED: usize = 100;
/// Lines in a transcript request without a given limit.
pub const DEFAULT_TRANSCRIPT_LINES: usize = 20;
/// Most lines in one transcript request.
pub const MAX_TRANSCRIPT_LINES: usize = 1_000;
/// Most entries in one page of events.
pub const MAX_EVENTS: usize = 500;
/// Most tasks in one list of a server.
pub const MAX_TASKS: u32 = 500;

/// The earliest time that is stored: both databases have the years from 1 on.
pub const FIRST_TIME: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// An agent without a heartbeat for this long is offline.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(30);
/// How often an agent polls by default.
pub const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(5);
