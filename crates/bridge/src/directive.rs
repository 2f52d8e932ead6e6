//! The first line of an answer, where it tells the bridge what to do: `[mailbox: WORD]`.
//!
//! | line | means |
//! |---|---|
//! | `[mailbox: no answer]` | nothing is sent back |
//! | `[mailbox: accepted]` | accepts the task; a later answer ends it |
//! | `[mailbox: working]` | reports progress |
//! | `[mailbox: completed]` | completes the task; the rest of the answer is the result |
//! | `[mailbox: rejected]` | rejects the task; the rest is the reason |
//! | `[mailbox: failed]` | fails the task; the rest is the reason |
//! | `[mailbox: question]` | sends the rest to the task's owner; the task keeps its state |
//!
//! Case, a full stop, and Markdown marks around the line are ignored. Any other first line is part of the answer.

use amb_core::TaskState;

/// The line that sends nothing. No runtime reserves it for itself, as OpenClaw does `NO_REPLY`.
pub(crate) const NO_ANSWER: &str = "[mailbox: no answer]";

/// What an answer tells the bridge to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directive {
    NoAnswer,
    Question,
    Move(TaskState),
}

/// The directive of an answer, if it begins with one, and the rest of it.
pub(crate) fn parse(answer: &str) -> (Option<Directive>, &str) {
    let text = answer.trim_start();
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    match directive(line) {
        Some(directive) => (Some(directive), rest.trim()),
        None => (None, answer),
    }
}

fn directive(line: &str) -> Option<Directive> {
    let marks = |c: char| c.is_whitespace() || matches!(c, '*' | '`' | '_' | '.' | '"');
    let inner = line.trim_matches(marks).strip_prefix('[')?.strip_suffix(']')?;
    let (name, word) = inner.split_once(':')?;
    if !name.trim().eq_ignore_ascii_case("mailbox") {
        return None;
    }
    let word = word.trim().to_ascii_lowercase().replace(['_', '-'], " ");
    Some(match word.as_str() {
        "no answer" | "no reply" => Directive::NoAnswer,
        "question" | "ask" => Directive::Question,
        "accepted" | "accept" => Directive::Move(TaskState::Accepted),
        "working" => Directive::Move(TaskState::Working),
        "completed" | "complete" | "done" => Directive::Move(TaskState::Completed),
        "rejected" | "reject" | "refused" => Directive::Move(TaskState::Rejected),
        "failed" | "fail" => Directive::Move(TaskState::Failed),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_to_do_and_the_rest_is_the_answer() {
        let cases = [
            ("[mailbox: no answer]", Directive::NoAnswer, ""),
            ("\n[Mailbox: No_Answer].\n", Directive::NoAnswer, ""),
            ("**[mailbox: rejected]**\n\nno time\n", Directive::Move(TaskState::Rejected), "no time"),
            ("`[mailbox: done]`\nhere\nit is", Directive::Move(TaskState::Completed), "here\nit is"),
            ("[mailbox:question]\nwhich one?", Directive::Question, "which one?"),
        ];
        for (answer, directive, rest) in cases {
            assert_eq!(parse(answer), (Some(directive), rest), "{answer:?}");
        }
    }

    #[test]
    fn any_other_answer_is_left_as_it_is() {
        for answer in
            ["NO_REPLY", "hello\n[mailbox: done]", "[mailbox: perhaps]", "[mailbox] done", "mailbox: done", ""]
        {
            assert_eq!(parse(answer), (None, answer));
        }
    }
}
