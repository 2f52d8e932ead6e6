//! Tables that fit a terminal, coloured by meaning.

use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Row, Table, presets};

use crate::output::visible;

/// Columns with free text, which is cut where the terminal is too narrow. All others are shown in full.
const FLEXIBLE: [&str; 9] =
    ["SUBJECT", "PREVIEW", "DESCRIPTION", "CAPABILITIES", "NOTE", "TEXT", "SAYS", "FINDING", "WHAT TO DO"];
/// Columns with times.
const TIMES: [&str; 6] = ["SEEN", "LAST", "CHANGED", "SENT", "ASKED", "SINCE"];

/// The meaning of a text. These colours are readable on light and on dark backgrounds; yellow and blue are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// As it should be.
    Good,
    /// Under way.
    Active,
    /// Needs attention.
    Bad,
    /// Less important.
    Quiet,
    /// More important.
    Strong,
}

impl Tone {
    fn cell(self, text: String) -> Cell {
        let cell = Cell::new(text);
        match self {
            Tone::Plain => cell,
            Tone::Good => cell.fg(Color::DarkGreen),
            Tone::Active => cell.fg(Color::DarkMagenta),
            Tone::Bad => cell.fg(Color::DarkRed),
            Tone::Quiet => cell.add_attribute(Attribute::Dim),
            Tone::Strong => cell.add_attribute(Attribute::Bold),
        }
    }

    /// The text between the escape sequences of this tone.
    pub(crate) fn paint(self, text: &str) -> String {
        let code = match self {
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Active => "35",
            Tone::Bad => "31",
            Tone::Quiet => "2",
            Tone::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// What the state of a task, an agent or a connection means.
    pub(crate) fn of_state(state: &str) -> Self {
        match state {
            "idle" | "completed" | "ACTIVE" | "running" | "ok" | "heard" | "ready" => Tone::Good,
            "busy" | "pending" | "accepted" | "working" | "PENDING" | "rung" => Tone::Active,
            "failed" | "rejected" | "REVOKED" | "BLOCKED" | "REJECTED" | "problem" | "given up" | "unheard" => {
                Tone::Bad
            }
            "offline" | "ended" | "EXPIRED" | "never" => Tone::Quiet,
            _ if state.ends_with("(overdue)") => Tone::Bad,
            _ => Tone::Plain,
        }
    }

    /// What a cell means, by its column.
    fn of_cell(head: &str, cell: &str) -> Self {
        match head {
            "STATUS" | "STATE" => Self::of_state(cell),
            "UNREAD" if cell != "0" => Tone::Strong,
            "UNREAD" => Tone::Quiet,
            "NAME" | "WITH" | "FROM" | "OFFICE" | "AGENT" | "MEMBER" => Tone::Strong,
            _ if TIMES.contains(&head) => Tone::Quiet,
            _ => Tone::Plain,
        }
    }
}

/// Renders a table without borders. With a width, each row is one line of it.
pub(crate) fn render(
    head: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    width: Option<u16>,
    colour: bool,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    match width {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    if colour {
        table.enforce_styling();
        table.set_header(head.iter().map(|name| Tone::Quiet.cell((*name).to_owned())));
    } else {
        table.set_header(head.to_vec());
    }
    for row in rows {
        let cells = row.iter().zip(head).map(|(cell, head)| {
            let tone = if colour { Tone::of_cell(head, cell) } else { Tone::Plain };
            tone.cell(visible(cell))
        });
        let mut row = Row::from(cells.collect::<Vec<_>>());
        if width.is_some() {
            row.max_height(1);
        }
        table.add_row(row);
    }
    for (index, name) in head.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            // The default padding has a space on each side.
            column.set_padding((0, 2));
            if width.is_some() && !FLEXIBLE.contains(name) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// The width of the terminal, in columns; `None` where stdout is no terminal, or one that does not know its width and
/// reports 0.
pub(crate) fn terminal_width() -> Option<u16> {
    Table::new().width().filter(|width| *width > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(width: Option<u16>, colour: bool) -> String {
        let head = ["SESSION", "WITH", "UNREAD", "LAST", "SUBJECT", "PREVIEW"];
        let rows = [
            [
                "0199c0de-1a2b",
                "reviewer",
                "2",
                "3 min ago",
                "The failing test",
                "reviewer: the third case fails since the last change of the parser, shall I look into it today",
            ],
            ["0199c0de-1a2c", "ben", "0", "2 d ago", "Plan", "you: yes"],
        ];
        render(&head, rows.map(|row| row.map(str::to_owned).to_vec()), width, colour)
    }

    #[test]
    fn a_table_fits_a_terminal_of_80_columns() {
        insta::assert_snapshot!(inbox(Some(80), false));
        assert!(inbox(Some(80), false).lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn a_table_fits_a_terminal_of_120_columns() {
        insta::assert_snapshot!(inbox(Some(120), false));
    }

    #[test]
    fn a_program_gets_every_word_and_no_colour() {
        let text = inbox(None, false);
        assert!(text.contains("shall I look into it today") && !text.contains('\x1b'), "{text}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn colours_mean_something() {
        let rows = [["ann", "idle"], ["ben", "offline"], ["cat", "busy"]].map(|row| row.map(str::to_owned).to_vec());
        let text = render(&["NAME", "STATUS"], rows, Some(80), true);
        insta::assert_snapshot!(text.replace('\x1b', "␛"));
        assert_eq!(Tone::of_state("working (overdue)"), Tone::Bad);
        assert_eq!(Tone::Bad.paint("no"), "\x1b[31mno\x1b[0m");
    }
}
