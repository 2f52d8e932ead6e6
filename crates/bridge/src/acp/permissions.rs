//! How `session/request_permission` is answered: by a rule given at the start, since there is no person to ask.

use serde_json::{Value, json};

/// The rule for requests of permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Permissions {
    /// Refuses everything that needs permission.
    #[default]
    Reject,
    /// Allows what only reads: tool calls of the kinds read, search and think.
    Read,
    /// Allows everything, each time anew.
    Allow,
}

impl Permissions {
    /// The answer to `session/request_permission`.
    pub(super) fn answer(self, params: &Value) -> Value {
        let kind = params.pointer("/toolCall/kind").and_then(Value::as_str);
        let is_allowed = match self {
            Permissions::Reject => false,
            Permissions::Read => matches!(kind, Some("read" | "search" | "think")),
            Permissions::Allow => true,
        };
        // Prefers "once" over "always", because the rule may be another one after a restart.
        let wanted = match is_allowed {
            true => ["allow_once", "allow_always"],
            false => ["reject_once", "reject_always"],
        };
        let options = params.get("options").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let chosen = wanted.iter().find_map(|wanted| {
            let option = options.iter().find(|option| option.get("kind").and_then(Value::as_str) == Some(wanted))?;
            option.get("optionId").filter(|id| id.is_string())
        });
        match chosen {
            Some(id) => json!({ "outcome": { "outcome": "selected", "optionId": id } }),
            None => json!({ "outcome": { "outcome": "cancelled" } }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kind: &str, options: &[&str]) -> Value {
        let options: Vec<Value> = options.iter().map(|kind| json!({"optionId": kind, "kind": kind})).collect();
        json!({"sessionId": "s", "toolCall": {"toolCallId": "t", "kind": kind}, "options": options})
    }

    #[test]
    fn the_rule_chooses_once_before_always_and_cancels_where_there_is_no_choice() {
        let all = ["allow_always", "allow_once", "reject_always", "reject_once"];
        let chosen = |rule: Permissions, kind: &str, options: &[&str]| {
            let answer = rule.answer(&asked(kind, options));
            answer.pointer("/outcome/optionId").and_then(Value::as_str).unwrap_or("cancelled").to_owned()
        };
        assert_eq!(chosen(Permissions::Reject, "read", &all), "reject_once");
        assert_eq!(chosen(Permissions::Read, "read", &all), "allow_once");
        assert_eq!(chosen(Permissions::Read, "execute", &all), "reject_once");
        assert_eq!(chosen(Permissions::Allow, "execute", &all), "allow_once");
        assert_eq!(chosen(Permissions::Reject, "edit", &["allow_once"]), "cancelled");
        assert_eq!(chosen(Permissions::Reject, "edit", &[]), "cancelled");
        assert_eq!(Permissions::Reject.answer(&Value::Null), json!({"outcome": {"outcome": "cancelled"}}));
    }
}
