//! Masks secrets of others in a line that is shown: a change may touch the line on which somebody keeps a key, and the
//! output may be read by a model.

/// Words in a field's name that mean a secret.
const SECRET: [&str; 6] = ["token", "key", "secret", "password", "credential", "authorization"];
const HIDDEN: &str = "•••";

/// The line with the values of secret fields hidden.
pub(super) fn mask(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((head, name, gap, value, tail)) = field(rest) {
        out.push_str(head);
        out.push_str(name);
        out.push_str(gap);
        let secret = SECRET.iter().any(|word| name.to_lowercase().contains(word));
        out.push_str(if secret && !value.is_empty() { HIDDEN } else { value });
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// The next `name: "value"` or `name = 'value'` in a text: what is before it, its parts up to the opening quote, the
/// value between the quotes, and what is after.
fn field(text: &str) -> Option<(&str, &str, &str, &str, &str)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find([':', '='])?;
        let before = text[..at].trim_end().trim_end_matches(['"', '\'']);
        let start = before
            .rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))
            .map_or(0, |found| found + before[found..].chars().next().map_or(1, char::len_utf8));
        let after = &text[at + 1..];
        let space = after.len() - after.trim_start().len();
        let quote = after.trim_start().chars().next().filter(|c| matches!(c, '"' | '\''));
        match quote {
            Some(quote) if start < before.len() => {
                let opened = at + 1 + space + 1;
                let closed = opened + end_of(&text[opened..], quote);
                return Some((
                    &text[..start],
                    before.get(start..)?,
                    &text[before.len()..opened],
                    &text[opened..closed],
                    &text[closed..],
                ));
            }
            _ => from = at + 1,
        }
    }
}

/// The end of a quoted value.
fn end_of(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn values_of_secret_fields_are_hidden_and_nothing_else_is() {
        let cases = [
            (r#"auth: { mode: "token", token: "abc" },"#, r#"auth: { mode: "token", token: "•••" },"#),
            (r#""OPENAI_API_KEY": "sk-\"x", "a": "b""#, r#""OPENAI_API_KEY": "•••", "a": "b""#),
            ("api_key = 'k' # note", "api_key = '•••' # note"),
            (r#""args": ["mcp", "--as", "ann"]"#, r#""args": ["mcp", "--as", "ann"]"#),
            (r#""command": "/usr/bin/amb""#, r#""command": "/usr/bin/amb""#),
            (r#""url": "http://x:1/?a=b""#, r#""url": "http://x:1/?a=b""#),
            (r#"password: "unclosed"#, r#"password: "•••"#),
            (r#"token: "", é: "x", ütoken: "y""#, r#"token: "", é: "x", ütoken: "•••""#),
            ("}", "}"),
        ];
        for (line, shown) in cases {
            assert_eq!(mask(line), shown);
        }
    }
}
