//! A draft as the body of `POST /messages/send`.

use amb_core::limits::MAX_CONTENT_CHARS;
use amb_core::mailbox::Result;
use amb_core::message::text_of;
use amb_core::{Draft, OfficeError, Part};
use serde_json::{Value, json};

/// The contract's four fields, and the others only if they are set.
pub(crate) fn body(draft: &Draft) -> Result<Value> {
    let mut body = serde_json::to_value(draft).map_err(OfficeError::internal)?;
    let Some(fields) = body.as_object_mut() else {
        return Err(OfficeError::internal("a draft is an object"));
    };
    // The key travels in a header, the session under the contract's name, and a single text as the contract's content.
    fields.remove("idempotency_key");
    let session = fields.remove("session").unwrap_or(Value::Null);
    fields.insert("session_id".into(), session);
    fields.entry("subject").or_insert(Value::Null);
    match draft.parts.as_slice() {
        // Too long for the contract's content.
        [Part::Text { text }] if text.chars().count() > MAX_CONTENT_CHARS => {}
        parts => {
            fields.insert("content".into(), json!(text_of(parts)));
            if matches!(parts, [Part::Text { .. }]) {
                fields.remove("parts");
            }
        }
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_message_is_the_contracts_body() {
        let draft = Draft::text("bob".parse().unwrap(), "Plan", "hello");
        let expected = json!({
            "to": "bob", "subject": "Plan", "content": "hello", "session_id": null, "kind": "message", "priority": "normal",
        });
        assert_eq!(body(&draft).unwrap(), expected);
    }

    #[test]
    fn a_text_too_long_for_content_is_sent_as_a_part() {
        let long = Draft::text("bob".parse().unwrap(), "Plan", "x".repeat(MAX_CONTENT_CHARS + 1));
        let body = body(&long).unwrap();
        assert!(body.get("content").is_none() && body["parts"].as_array().unwrap().len() == 1);
    }

    #[test]
    fn a_relative_deadline_is_sent_as_it_is_so_that_a_repeat_is_the_same() {
        let mut draft = Draft::text("bob".parse().unwrap(), "Plan", "hello");
        draft.deadline_in = Some(7_200);
        assert_eq!(
            (&body(&draft).unwrap()["deadline_in"], body(&draft).unwrap().get("deadline")),
            (&json!(7_200), None)
        );
    }

    #[test]
    fn a_draft_with_more_than_text_keeps_its_parts() {
        let mut draft = Draft::text("bob".parse().unwrap(), "Plan", "hello");
        draft.parts.push(Part::data(json!({"n": 1})));
        assert_eq!(body(&draft).unwrap()["parts"].as_array().unwrap().len(), 2);
    }
}
