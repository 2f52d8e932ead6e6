//! Pictures as SVG: the path of a message, the network of agents, chains of tasks, deadlines, and charts of statistics.
//! Colours come from the stylesheet by class; all text is escaped.

use std::collections::BTreeMap;
use std::f64::consts::{PI, TAU};
use std::fmt::Write as _;

use amb_core::{AgentName, Task, Timestamp};

use super::html::{Html, escape, line, segment, shown};

/// Writing to a String cannot fail.
macro_rules! draw {
    ($out:expr, $($arg:tt)*) => { { let _ = write!($out, $($arg)*); } };
}

/// The agents that passed a message on, and its remaining hops.
pub(super) fn path(trace: &[AgentName], to: &AgentName, ttl: u8, group: Option<&str>) -> Html {
    let to = group.unwrap_or(to.as_str());
    let agents: Vec<&str> = trace.iter().map(AgentName::as_str).chain([to]).collect();
    // The path of a message straight from its sender is clear from its head.
    if agents.len() <= 2 {
        return Html(format!("<span title=\"hops it may still be passed on\">ttl {ttl}</span>"));
    }
    let words = agents.join(" → ");
    let mut out = String::new();
    let label = escape(&format!("passed on: {words}, {ttl} hops left"));
    let mut x = 6.0;
    let mut body = String::new();
    for (index, agent) in agents.iter().enumerate() {
        let name = line(agent, 18);
        let width = name.chars().count() as f64 * 6.7 + 14.0;
        if index > 0 {
            draw!(body, "<path class=\"edge\" d=\"M{:.0} 13h14m-4-3l4 3-4 3\"/>", x);
            x += 18.0;
        }
        draw!(body, "<rect class=\"frame\" x=\"{x:.0}\" y=\"3\" width=\"{width:.0}\" height=\"20\" rx=\"10\"/>");
        draw!(body, "<text x=\"{:.0}\" y=\"17\" text-anchor=\"middle\">{}</text>", x + width / 2.0, escape(&name));
        x += width + 4.0;
    }
    draw!(body, "<text class=\"faint\" x=\"{:.0}\" y=\"17\">ttl {ttl}</text>", x + 2.0);
    x += 40.0;
    draw!(
        out,
        "<svg class=\"picture path\" role=\"img\" aria-label=\"{label}\" viewBox=\"0 0 {x:.0} 26\" width=\"{x:.0}\" height=\"26\">{body}</svg>"
    );
    Html(out)
}

/// An agent or group in the picture of the network.
pub(super) struct Node {
    pub(super) name: String,
    /// A class of the stylesheet: `idle`, `busy`, `offline`, `person`, `stranger`.
    pub(super) class: &'static str,
    pub(super) messages: u64,
}

/// Two nodes that exchanged messages, by their index.
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) messages: u64,
}

/// Who talks with whom: nodes on a circle, and lines whose width grows with the number of messages.
pub(super) fn network(nodes: &[Node], edges: &[Edge], picked: Option<&str>) -> Html {
    let (width, height) = (900.0, 620.0);
    let (cx, cy) = (width / 2.0, height / 2.0);
    let radius = if nodes.len() < 4 { 150.0 } else { 235.0 };
    let places: Vec<(f64, f64, f64)> = (0..nodes.len())
        .map(|index| {
            let angle = TAU * index as f64 / nodes.len().max(1) as f64 - PI / 2.0;
            (cx + radius * 1.25 * angle.cos(), cy + radius * angle.sin(), angle)
        })
        .collect();
    let most = edges.iter().map(|edge| edge.messages).max().unwrap_or(1).max(1) as f64;
    let mut out = format!(
        "<svg class=\"picture\" role=\"group\" aria-label=\"Who talks with whom\" viewBox=\"0 0 {width} {height}\">"
    );
    for edge in edges {
        let (Some(a), Some(b)) = (places.get(edge.from), places.get(edge.to)) else { continue };
        let (from, to) = (&nodes[edge.from].name, &nodes[edge.to].name);
        let thickness = 1.2 + 8.0 * ((edge.messages as f64).ln_1p() / most.ln_1p());
        let class = match picked {
            Some(name) if name == from || name == to => " picked",
            _ => "",
        };
        // Bent towards the centre, so that lines between neighbours do not cross names.
        let (mx, my) = ((a.0 + b.0) / 2.0 * 0.55 + cx * 0.45, (a.1 + b.1) / 2.0 * 0.55 + cy * 0.45);
        let label = escape(&format!("{from} and {to}: {} messages", edge.messages));
        draw!(
            out,
            "<a href=\"/dashboard/conversations?agent={}&amp;with={}\" aria-label=\"{label}\"><title>{label}</title><path class=\"edge{class}\" d=\"M{:.1} {:.1}Q{mx:.1} {my:.1} {:.1} {:.1}\" stroke-width=\"{thickness:.1}\"/></a>",
            segment(from),
            segment(to),
            a.0,
            a.1,
            b.0,
            b.1
        );
    }
    for (node, (x, y, angle)) in nodes.iter().zip(&places) {
        let size = 8.0 + 7.0 * ((node.messages as f64).ln_1p() / (most * 2.0).ln_1p()).min(1.6);
        let away = size + 8.0;
        let (tx, ty) = (x + away * angle.cos(), y + away * angle.sin() + 4.0);
        let anchor = match angle.cos() {
            cos if cos > 0.25 => "start",
            cos if cos < -0.25 => "end",
            _ => "middle",
        };
        let nudge = if anchor == "middle" { 9.0 * angle.sin() } else { 0.0 };
        let name = escape(&line(&node.name, 26));
        draw!(
            out,
            "<a href=\"/dashboard/network?agent={}\" aria-label=\"{name}, {}\"><circle class=\"node {}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size:.1}\"/><text x=\"{tx:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{name}</text></a>",
            segment(&node.name),
            node.class,
            node.class,
            ty + nudge
        );
    }
    out.push_str("</svg>");
    Html(out)
}

/// Which task is a part of which, the outermost on the left. A task must come after its parent in `tasks`.
pub(super) fn chain(tasks: &[Task], here: &Task) -> Html {
    let (box_width, box_height, gap_x, gap_y) = (210.0, 62.0, 60.0, 18.0);
    let mut depth: BTreeMap<String, usize> = BTreeMap::new();
    let mut places: Vec<(f64, f64)> = Vec::new();
    let mut rows: Vec<usize> = Vec::new();
    for task in tasks {
        let level = task.parent.as_ref().and_then(|parent| depth.get(&parent.to_string())).map_or(0, |level| level + 1);
        depth.insert(task.id.to_string(), level);
        if rows.len() <= level {
            rows.resize(level + 1, 0);
        }
        let x = 8.0 + level as f64 * (box_width + gap_x);
        let y = 8.0 + rows[level] as f64 * (box_height + gap_y);
        rows[level] += 1;
        places.push((x, y));
    }
    let width = 16.0 + rows.len() as f64 * (box_width + gap_x) - gap_x;
    let height = 16.0 + rows.iter().copied().max().unwrap_or(1) as f64 * (box_height + gap_y) - gap_y;
    let mut out = format!(
        "<svg class=\"picture\" role=\"group\" aria-label=\"Which task is a piece of which\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\">"
    );
    for (index, task) in tasks.iter().enumerate() {
        let parent = task.parent.as_ref().and_then(|parent| tasks.iter().position(|other| other.id == *parent));
        if let Some(parent) = parent {
            let (from, to) = (places[parent], places[index]);
            let (x1, y1, x2, y2) = (from.0 + box_width, from.1 + box_height / 2.0, to.0, to.1 + box_height / 2.0);
            let mid = (x1 + x2) / 2.0;
            draw!(
                out,
                "<path class=\"edge\" stroke-width=\"1.6\" d=\"M{x1:.0} {y1:.0}C{mid:.0} {y1:.0} {mid:.0} {y2:.0} {x2:.0} {y2:.0}\"/>"
            );
        }
    }
    for (task, (x, y)) in tasks.iter().zip(&places) {
        let class = if task.id == here.id { " here" } else { "" };
        let tone = match super::html::task_tone(&task.state) {
            "good" => "good",
            "bad" => "bad",
            "info" => "warn",
            _ => "faint",
        };
        let subject = escape(&line(task.subject.as_deref().unwrap_or("task"), 26));
        let route = escape(&line(&format!("{} → {}", task.owner, task.assignee), 30));
        draw!(
            out,
            "<a href=\"/dashboard/tasks/{}\"><rect class=\"frame{class}\" x=\"{x:.0}\" y=\"{y:.0}\" width=\"{box_width}\" height=\"{box_height}\" rx=\"10\"/><circle class=\"{tone}\" cx=\"{:.0}\" cy=\"{:.0}\" r=\"5\"/><text x=\"{:.0}\" y=\"{:.0}\" font-weight=\"600\">{subject}</text><text class=\"faint\" x=\"{:.0}\" y=\"{:.0}\">{route}</text><text class=\"faint\" x=\"{:.0}\" y=\"{:.0}\">{}</text></a>",
            task.id,
            x + 16.0,
            y + 18.0,
            x + 28.0,
            y + 22.0,
            x + 28.0,
            y + 38.0,
            x + 28.0,
            y + 53.0,
            task.state.as_str()
        );
    }
    out.push_str("</svg>");
    Html(out)
}

/// Deadlines of open tasks: a bar for each, from its creation to its deadline.
pub(super) fn timeline(tasks: &[&Task], now: Timestamp) -> Html {
    let (width, left, row) = (900.0, 220.0, 26.0);
    let height = 34.0 + row * tasks.len() as f64;
    let seconds = |at: Timestamp| at.as_second() as f64;
    let first = tasks.iter().map(|task| seconds(task.created_at)).fold(seconds(now) - 60.0, f64::min);
    let last = tasks.iter().filter_map(|task| task.deadline).map(seconds).fold(seconds(now) + 60.0, f64::max);
    let x = |at: f64| left + (at - first) / (last - first).max(1.0) * (width - left - 20.0);
    let mut out = format!(
        "<svg class=\"picture\" role=\"group\" aria-label=\"Deadlines of open tasks\" viewBox=\"0 0 {width} {height:.0}\">"
    );
    for (index, task) in tasks.iter().enumerate() {
        let Some(deadline) = task.deadline else { continue };
        let y = 12.0 + row * index as f64;
        let class = if deadline < now { " late" } else { "" };
        let (from, to) = (x(seconds(task.created_at)), x(seconds(deadline)));
        let name = escape(&line(task.subject.as_deref().unwrap_or("task"), 28));
        let label = escape(&format!("due {}", shown(&deadline)));
        draw!(
            out,
            "<a href=\"/dashboard/tasks/{}\"><title>{label}</title><text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{name}</text><rect class=\"bar{class}\" x=\"{from:.1}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"14\" rx=\"5\"/></a>",
            task.id,
            left - 10.0,
            y + 11.0,
            (to - from).max(4.0)
        );
    }
    let at = x(seconds(now));
    draw!(
        out,
        "<path class=\"now\" d=\"M{at:.1} 4V{:.0}\"/><text class=\"faint\" x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">now</text></svg>",
        height - 18.0,
        height - 4.0
    );
    Html(out)
}

/// One or more lines over time, the newest at the right.
pub(super) fn chart(title: &str, lines: &[&[f64]]) -> Html {
    let (width, height, pad) = (420.0, 120.0, 4.0);
    let most = lines.iter().flat_map(|line| line.iter()).copied().fold(0.0_f64, f64::max).max(1e-9);
    let mut out = format!(
        "<svg class=\"picture\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width} {height}\">",
        escape(title)
    );
    for part in [0.0, 0.5, 1.0] {
        let y = pad + (height - 2.0 * pad) * part;
        draw!(out, "<path class=\"grid\" d=\"M0 {y:.1}H{width}\"/>");
    }
    for (index, line) in lines.iter().enumerate() {
        // A single sample becomes a horizontal line.
        let values = match line {
            [only] => &[*only, *only],
            line => *line,
        };
        let mut d = String::new();
        for (at, value) in values.iter().enumerate() {
            let x = width * at as f64 / (values.len() - 1) as f64;
            let y = height - pad - (height - 2.0 * pad) * (value / most);
            draw!(d, "{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" });
        }
        if d.is_empty() {
            continue;
        }
        if index == 0 {
            draw!(out, "<path class=\"area\" d=\"{d}L{width} {0:.1}L0 {0:.1}Z\"/>", height - pad);
        }
        let class = ["", " b", " c"].get(index).copied().unwrap_or_default();
        draw!(out, "<path class=\"plot{class}\" d=\"{d}\"/>");
    }
    out.push_str("</svg>");
    Html(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_and_numbers_are_finite() {
        let node = |name: &str| Node { name: name.to_owned(), class: "idle", messages: 3 };
        let picture = network(&[node("a<b"), node("c")], &[Edge { from: 0, to: 1, messages: 7 }], None).0;
        assert!(picture.contains("a&lt;b") && !picture.contains("a<b"), "{picture}");
        assert!(picture.contains("7 messages") && !picture.contains("NaN"), "{picture}");
        assert!(!network(&[], &[], None).0.contains("NaN"));
        assert!(!chart("x", &[&[0.0, 0.0], &[]]).0.contains("NaN"));
    }

    #[test]
    fn only_a_message_that_was_passed_on_has_a_picture_of_its_path() {
        let name = |text: &str| AgentName::parse_plain(text).unwrap();
        assert!(!path(&[name("ann")], &name("ben"), 2, None).0.contains("svg"));
        let way = path(&[name("ann"), name("ben")], &name("eve"), 1, None).0;
        assert!(way.contains("ann → ben → eve, 1 hops left"), "{way}");
    }
}
