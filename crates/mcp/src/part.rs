//! Data and file parts in the structured content, with invisible characters made visible.

use amb_core::Part;
use serde_json::{Map, Value};

use crate::view::{line, visible_text};

/// The parts that are not text; text is in the content.
pub(crate) fn non_text_parts(parts: &[Part]) -> Vec<Part> {
    parts.iter().filter_map(shown).collect()
}

fn shown(part: &Part) -> Option<Part> {
    match part {
        Part::Text { .. } => None,
        Part::Data { data } => Some(Part::Data { data: value(data) }),
        Part::File { path, media_type } => {
            Some(Part::File { path: line(path), media_type: media_type.as_deref().map(line) })
        }
    }
}

fn value(data: &Value) -> Value {
    match data {
        Value::String(text) => Value::String(visible_text(text)),
        Value::Array(items) => items.iter().map(value).collect(),
        Value::Object(fields) => {
            let mut shown = Map::new();
            for (name, field) in fields {
                let mut name = line(name);
                // Two names may differ only in invisible characters: neither replaces the other.
                while shown.contains_key(&name) {
                    name.push('′');
                }
                shown.insert(name, value(field));
            }
            Value::Object(shown)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => data.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn honest_data_is_left_as_it_is() {
        let parts = [
            Part::text("words"),
            Part::data(json!({"n": 1.5, "list": ["a\nb", null, true], "größe": {"é": "👨‍👩‍👧"}})),
            Part::file("/shared/Bericht für Anna.md"),
        ];
        assert_eq!(non_text_parts(&parts), parts[1..]);
    }

    #[test]
    fn names_that_differ_in_what_nobody_sees_are_both_shown() {
        let data = json!({"ok\u{200b}": 1, "ok⟨U+200B⟩": 2});
        let shown = value(&data);
        assert_eq!(shown.as_object().unwrap().len(), 2, "{shown}");
        assert!(!shown.to_string().contains('\u{200b}'), "{shown}");
    }
}
