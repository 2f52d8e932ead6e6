//! Selects the last lines of a transcript: each message once, ordered by time.

use std::collections::HashMap;

use amb_core::transcript::Line;

/// Lines collected from the end of a file backwards.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Last line first. A later copy of a message becomes `None` when an earlier one is found.
    lines: Vec<Option<Line>>,
    by_id: HashMap<String, usize>,
    seen: usize,
    distinct: usize,
}

impl Window {
    /// Returns how many lines to read for `limit` lines: more than requested, so that copies and lines out of order
    /// near the edge are handled.
    pub(super) fn look_back(limit: usize) -> usize {
        limit.saturating_mul(4).saturating_add(64)
    }

    /// Adds the line before those added so far. Of two lines with one message id the earlier stays.
    pub(super) fn push(&mut self, line: Line) {
        self.seen += 1;
        let place = self.lines.len();
        match line.message_id.as_ref().filter(|id| !id.is_empty()) {
            Some(id) => match self.by_id.insert(id.clone(), place) {
                Some(later) => self.lines[later] = None,
                None => self.distinct += 1,
            },
            None => self.distinct += 1,
        }
        self.lines.push(Some(line));
    }

    /// Whether enough lines were read to return `limit`.
    pub(super) fn suffices(&self, limit: usize) -> bool {
        self.distinct >= limit && self.seen >= Self::look_back(limit)
    }

    /// Returns the message ids, oldest first.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().rev().flatten().filter_map(|line| line.message_id.as_deref())
    }

    /// Returns the last `limit` lines by time; lines of the same time keep the order of the file. A line without a time
    /// follows the line before it.
    pub(super) fn into_recent(self, limit: usize) -> Vec<Line> {
        let mut time = f64::NEG_INFINITY;
        let mut timed: Vec<(f64, Line)> = Vec::with_capacity(self.distinct);
        for line in self.lines.into_iter().rev().flatten() {
            time = line.ts.filter(|ts| ts.is_finite()).unwrap_or(time);
            timed.push((time, line));
        }
        timed.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let surplus = timed.len().saturating_sub(limit);
        timed.into_iter().skip(surplus).map(|(_, line)| line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(content: &str, id: Option<&str>, ts: Option<f64>) -> Line {
        Line {
            role: "user".into(),
            content: content.into(),
            sender: "ann".into(),
            author: None,
            message_id: id.map(str::to_owned),
            ts,
        }
    }

    fn recent(file: &[Line], limit: usize) -> Vec<String> {
        let mut window = Window::default();
        file.iter().rev().cloned().for_each(|line| window.push(line));
        window.into_recent(limit).into_iter().map(|line| line.content).collect()
    }

    #[test]
    fn the_first_of_two_lines_with_one_message_id_wins() {
        let file = [
            line("first", Some("m1"), Some(1.0)),
            line("copy", Some("m1"), Some(3.0)),
            line("other", Some("m2"), Some(2.0)),
            line("copy again", Some("m1"), Some(4.0)),
        ];
        assert_eq!(recent(&file, 10), ["first", "other"]);
    }

    #[test]
    fn lines_without_an_id_or_with_an_empty_one_are_all_kept() {
        let file = [
            line("a", None, Some(1.0)),
            line("a", None, Some(1.0)),
            line("b", Some(""), Some(1.0)),
            line("b", Some(""), Some(1.0)),
        ];
        assert_eq!(recent(&file, 10), ["a", "a", "b", "b"]);
    }

    #[test]
    fn time_orders_and_lines_without_one_keep_their_place() {
        let file = [
            line("no time yet", None, None),
            line("late", None, Some(9.0)),
            line("after late", None, None),
            line("early", None, Some(1.0)),
            line("same", None, Some(1.0)),
            line("not a time", None, Some(f64::NAN)),
        ];
        assert_eq!(recent(&file, 10), ["no time yet", "early", "same", "not a time", "late", "after late"]);
        assert_eq!(recent(&file, 2), ["late", "after late"]);
    }
}
