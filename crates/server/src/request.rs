//! What all handlers share: extractors for the parts of a request, JSON responses, and errors.

mod body;
mod caller;
mod idempotency;
mod key;
mod problem;
mod query;
mod reply;

pub(crate) use body::Body;
pub(crate) use caller::{Caller, CallerWithKey, ClientAddress, authenticate, key_ended};
pub(crate) use idempotency::IdempotencyKey;
pub use key::{ApiKey, HouseholdToken};
pub(crate) use key::{is_secret, key_in, new_secret};
pub(crate) use problem::{Cause, Problem};
pub(crate) use query::{
    Params, Segment, boolean, check_range, cursor, default_limit, optional_boolean, parse_id, parse_optional_id,
    path_name,
};
pub(crate) use reply::{Created, OkJson, fit_page, json_response, to_json};
