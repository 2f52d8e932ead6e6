//! Converts the content of a message to plain text.

use serde_json::Value;

use super::api::Mention;

/// Returns the text of a message of this type; `[image]` and the like for types without text.
pub(super) fn text(msg_type: &str, content: &str, mentions: &[Mention]) -> String {
    let value: Value = serde_json::from_str(content).unwrap_or(Value::Null);
    let said = match msg_type {
        "text" => value["text"].as_str().map(str::to_owned),
        "post" => post(&value),
        "file" | "folder" => value["file_name"].as_str().map(|name| format!("[{msg_type}: {name}]")),
        _ => None,
    };
    let said = said.unwrap_or_else(|| format!("[{}]", if msg_type.is_empty() { "message" } else { msg_type }));
    with_names(&said, mentions)
}

/// Converts rich text: a title and paragraphs of runs, directly or per language.
fn post(value: &Value) -> Option<String> {
    let post = match value["content"].is_array() {
        true => value,
        false => value.as_object()?.values().find(|language| language["content"].is_array())?,
    };
    let title = post["title"].as_str().filter(|title| !title.is_empty()).map(str::to_owned);
    let paragraphs =
        post["content"].as_array()?.iter().map(|runs| runs.as_array().into_iter().flatten().map(run).collect());
    Some(title.into_iter().chain(paragraphs).collect::<Vec<String>>().join("\n"))
}

fn run(run: &Value) -> String {
    let text = run["text"].as_str();
    match run["tag"].as_str().unwrap_or_default() {
        "a" => match (text, run["href"].as_str()) {
            (Some(text), Some(href)) if text != href => format!("{text} ({href})"),
            (text, href) => text.or(href).unwrap_or_default().to_owned(),
        },
        "at" => format!("@{}", run["user_name"].as_str().or(run["user_id"].as_str()).unwrap_or("someone")),
        "emotion" => format!(":{}:", run["emoji_type"].as_str().unwrap_or("emotion")),
        tag => match text {
            Some(text) => text.to_owned(),
            None => format!("[{}]", if tag == "img" { "image" } else { tag }),
        },
    }
}

/// Replaces placeholders such as `@_user_1` by names.
fn with_names(text: &str, mentions: &[Mention]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        // The longest key that fits: @_user_1 must not match the beginning of @_user_12.
        let fits = |mention: &&Mention| mention.key.len() > 1 && rest.starts_with(&mention.key);
        match mentions.iter().filter(fits).max_by_key(|mention| mention.key.len()) {
            Some(mention) if !rest[mention.key.len()..].starts_with(|c: char| c.is_ascii_digit()) => {
                out.push('@');
                out.push_str(&mention.name);
                rest = &rest[mention.key.len()..];
            }
            _ => {
                out.push('@');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mention(key: &str, name: &str) -> Mention {
        Mention { key: key.into(), name: name.into() }
    }

    #[test]
    fn mentions_are_replaced_by_names() {
        let people = [mention("@_user_1", "Ann"), mention("@_user_12", "Bo")];
        let said = text("text", r#"{"text":"@_user_1 and @_user_12, not @_user_13 or a@b"}"#, &people);
        assert_eq!(said, "@Ann and @Bo, not @_user_13 or a@b");
    }

    #[test]
    fn rich_text_becomes_plain_text() {
        let post = r#"{"title":"Plan","content":[[{"tag":"text","text":"see "},{"tag":"a","text":"this","href":"http://x"}],
            [{"tag":"at","user_id":"@_user_1","user_name":"Ann"},{"tag":"img","image_key":"k"}]]}"#;
        assert_eq!(text("post", post, &[]), "Plan\nsee this (http://x)\n@Ann[image]");
        let by_language = format!(r#"{{"zh_cn":{post}}}"#);
        assert_eq!(text("post", &by_language, &[]), "Plan\nsee this (http://x)\n@Ann[image]");
    }

    #[test]
    fn content_without_text_is_named_by_its_type() {
        assert_eq!(text("image", r#"{"image_key":"k"}"#, &[]), "[image]");
        assert_eq!(text("file", r#"{"file_key":"k","file_name":"a.pdf"}"#, &[]), "[file: a.pdf]");
        assert_eq!(text("text", "not json", &[]), "[text]");
        assert_eq!(text("", "", &[]), "[message]");
        assert_eq!(text("post", r#"{"content":"odd"}"#, &[]), "[post]");
    }
}
