//! One line of a transcript as bytes.

use amb_core::transcript::Line;
use serde_json::Value;

/// Reads one line. Fields that a foreign writer left out get the value that says least.
pub(super) fn parse(bytes: &[u8]) -> Result<Line, serde_json::Error> {
    let mut object: amb_core::Object = serde_json::from_slice(bytes)?;
    let mut text = |name: &str| match object.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    Ok(Line {
        role: text("role").unwrap_or_else(|| "user".to_owned()),
        content: text("content").unwrap_or_default(),
        sender: text("sender").unwrap_or_default(),
        message_id: text("message_id").filter(|id| !id.is_empty()),
        ts: object.get("ts").and_then(Value::as_f64),
    })
}

/// Writes one line, without the newline.
///
/// Characters that end a line for other languages (Python's `splitlines`) are escaped too; they can only stand in strings.
pub(super) fn write(line: &Line) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_string(line)?;
    for (bare, escaped) in [("\u{85}", "\\u0085"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")] {
        if text.contains(bare) {
            text = text.replace(bare, escaped);
        }
    }
    Ok(text.into_bytes())
}
