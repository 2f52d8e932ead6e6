//! Splits long answers into as many messages as needed, up to a bound; whatever is cut is marked.

use amb_core::limits::{MAX_CONTENT_CHARS, MAX_NOTE_CHARS};

/// The longest piece of an answer: it must fit into a message and into the note of a task.
const PIECE_CHARS: usize = if MAX_CONTENT_CHARS < MAX_NOTE_CHARS { MAX_CONTENT_CHARS } else { MAX_NOTE_CHARS };
/// The most messages for one answer.
const MAX_PIECES: usize = 20;
/// Room for the line that numbers the piece, and for the last one's note.
const HEADING_CHARS: usize = 100;
/// A piece ends at a newline where there is one in its last fifth.
const LAST_PART: usize = 5;

/// Splits an answer. One that fits is left as it is; each of several pieces begins with a line that numbers it.
pub(crate) fn pieces(text: &str) -> Vec<String> {
    let length = text.chars().count();
    if length <= PIECE_CHARS {
        return vec![text.to_owned()];
    }
    let room = PIECE_CHARS - HEADING_CHARS;
    let mut rest = text;
    let mut bodies = Vec::new();
    while !rest.is_empty() && bodies.len() < MAX_PIECES {
        let (body, after) = rest.split_at(end_of_piece(rest, room));
        bodies.push(body);
        rest = after;
    }
    let count = bodies.len();
    let mut pieces: Vec<String> =
        bodies.iter().enumerate().map(|(at, body)| format!("[part {} of {count}]\n{body}", at + 1)).collect();
    if let Some(last) = pieces.last_mut().filter(|_| !rest.is_empty()) {
        last.push_str(&format!("\n[cut: the answer has {length} characters, too many for {MAX_PIECES} messages]"));
    }
    pieces
}

/// Where a piece of at most `room` characters ends, in bytes.
fn end_of_piece(text: &str, room: usize) -> usize {
    let Some((end, _)) = text.char_indices().nth(room) else { return text.len() };
    let line = text[..end].rfind('\n').map(|at| at + 1);
    line.filter(|line| *line >= end - end / LAST_PART).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_comes_whole_in_counted_pieces() {
        assert_eq!(pieces(&"ä".repeat(PIECE_CHARS)), ["ä".repeat(PIECE_CHARS)]);
        let long: String = (0..3_000).map(|line| format!("line {line} ö\n")).collect();
        let pieces = pieces(&long);
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| piece.chars().count() <= PIECE_CHARS));
        let joined: String = pieces.iter().map(|piece| piece.split_once("]\n").unwrap().1).collect();
        assert_eq!(joined, long);
        assert!(pieces[0].starts_with(&format!("[part 1 of {}]\n", pieces.len())) && pieces[0].ends_with('\n'));
    }

    #[test]
    fn what_is_too_long_for_any_number_of_messages_says_that_it_was_cut() {
        let pieces = pieces(&"x".repeat(PIECE_CHARS * (MAX_PIECES + 1)));
        assert_eq!(pieces.len(), MAX_PIECES);
        assert!(pieces[MAX_PIECES - 1].contains("[cut: the answer has"));
        assert!(pieces.iter().all(|piece| piece.chars().count() <= PIECE_CHARS));
    }
}
