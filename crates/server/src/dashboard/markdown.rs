//! Renders the text of messages as Markdown, for its formatting alone.
//!
//! The output is text within a fixed set of elements. HTML in the text is escaped; a link becomes its text followed by
//! its URL, not clickable; an image becomes its description and URL.

use amb_core::render::visible;
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::html::{Html, push_escaped};

/// Characters shown of one message; all of it can be downloaded.
pub(super) const MAX_SHOWN: usize = 20_000;
/// Maximum depth of nested elements; deeper ones become text.
const MAX_DEPTH: usize = 24;

/// Renders a text as HTML. The caller cuts it to [`MAX_SHOWN`] characters.
pub(super) fn formatted(text: &str) -> Html {
    // Bidi overrides and other invisible characters are made visible, as where mail is shown to a model.
    let text = visible::text(text);
    let parser = Parser::new_ext(&text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH);
    let mut writer = HtmlWriter { out: String::with_capacity(text.len() + text.len() / 4), ..HtmlWriter::default() };
    parser.for_each(|event| writer.event(event));
    Html(writer.out)
}

#[derive(Default)]
struct HtmlWriter {
    out: String,
    /// The closing tags of open elements.
    open: Vec<&'static str>,
    /// The number of open elements beyond [`MAX_DEPTH`], which are not written.
    too_deep: usize,
    /// The URLs of open links and images.
    urls: Vec<String>,
    in_code: bool,
}

impl HtmlWriter {
    fn open(&mut self, open: &'static str, close: &'static str) {
        if self.open.len() >= MAX_DEPTH || self.too_deep > 0 {
            self.too_deep += 1;
            return;
        }
        self.out.push_str(open);
        self.open.push(close);
    }

    fn close(&mut self) {
        if self.too_deep > 0 {
            self.too_deep -= 1;
        } else if let Some(close) = self.open.pop() {
            self.out.push_str(close);
        }
    }

    fn text(&mut self, text: &str) {
        push_escaped(&mut self.out, text);
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(end) => self.end(end),
            Event::Text(text) | Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text),
            Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::FootnoteReference(text) => self.text(&text),
            Event::Code(text) => {
                self.out.push_str("<code>");
                self.text(&text);
                self.out.push_str("</code>");
            }
            // Keeps line breaks, unlike Markdown: agents do not expect lines to be joined.
            Event::SoftBreak | Event::HardBreak => self.out.push_str(if self.in_code { "\n" } else { "<br>" }),
            Event::Rule => self.out.push_str("<hr>"),
            Event::TaskListMarker(done) => self.out.push_str(if done { "☑ " } else { "☐ " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            // Not heading elements: a screen reader would list them among the headings of the page.
            Tag::Heading { level: HeadingLevel::H1, .. } => self.open("<p class=\"h h1\">", "</p>"),
            Tag::Heading { .. } => self.open("<p class=\"h\">", "</p>"),
            Tag::Paragraph => self.open("<p dir=\"auto\">", "</p>"),
            Tag::BlockQuote(_) => self.open("<blockquote>", "</blockquote>"),
            Tag::CodeBlock(_) => {
                self.in_code = true;
                self.open("<pre tabindex=\"0\"><code>", "</code></pre>");
            }
            Tag::List(Some(_)) => self.open("<ol>", "</ol>"),
            Tag::List(None) => self.open("<ul>", "</ul>"),
            Tag::Item => self.open("<li>", "</li>"),
            Tag::Table(_) => self.open("<table tabindex=\"0\">", "</table>"),
            Tag::TableHead | Tag::TableRow => self.open("<tr>", "</tr>"),
            Tag::TableCell => self.open("<td>", "</td>"),
            Tag::Emphasis => self.open("<em>", "</em>"),
            Tag::Strong => self.open("<strong>", "</strong>"),
            Tag::Strikethrough => self.open("<s>", "</s>"),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.urls.push(dest_url.into_string());
            }
            _ => self.open("<div>", "</div>"),
        }
    }

    fn end(&mut self, end: TagEnd) {
        match end {
            TagEnd::Link | TagEnd::Image => {
                let url = self.urls.pop().unwrap_or_default();
                // A URL that equals the link's text is not repeated.
                if !url.is_empty() && !self.out.ends_with(&super::html::escape(&url)) {
                    self.out.push_str(" <span class=\"url\">⟨");
                    self.text(&url);
                    self.out.push_str("⟩</span>");
                }
            }
            TagEnd::CodeBlock => {
                self.in_code = false;
                self.close();
            }
            _ => self.close(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        formatted(text).0
    }

    #[test]
    fn formatting_is_rendered() {
        assert_eq!(shown("**a** *b* `c`"), "<p dir=\"auto\"><strong>a</strong> <em>b</em> <code>c</code></p>");
        assert_eq!(shown("- a\n- b"), "<ul><li>a</li><li>b</li></ul>");
        assert_eq!(shown("a\nb"), "<p dir=\"auto\">a<br>b</p>");
        assert!(shown("```rust\nfn x() {}\n```").contains("<pre tabindex=\"0\"><code>fn x() {}\n</code></pre>"));
    }

    #[test]
    fn html_is_escaped_and_links_are_not_clickable() {
        for hostile in [
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "[x](javascript:alert(1))",
            "![x](https://evil.example/p.png)",
            "<style>*{display:none}</style>",
            "[x](\" onclick=alert(1) \")",
            "<javascript:alert(1)>",
            "| a |\n|---|\n| <b onclick=x> |",
            "\u{202e}gnp.exe",
            "# <iframe src=//evil.example>",
            "[a]: javascript:alert(1)\n\n[a]",
            "&lt;script&gt;",
        ] {
            let html = shown(hostile);
            for tag in html.split('<').skip(1) {
                let name: String = tag.chars().take_while(|c| !matches!(c, '>' | ' ')).collect();
                let known = ["p", "/p", "div", "/div", "span", "/span", "table", "/table", "tr", "/tr", "td", "/td"];
                assert!(known.contains(&name.as_str()), "{hostile} gave {html}");
            }
            assert!(!html.contains('\u{202e}') && !html.contains("href"), "{html}");
        }
        assert!(shown("[x](javascript:alert(1))").contains("x <span class=\"url\">⟨javascript:alert(1)⟩</span>"));
    }

    #[test]
    fn nested_elements_are_closed_and_bounded() {
        let deep = ">".repeat(500) + " x";
        let html = shown(&deep);
        assert_eq!(html.matches("<blockquote>").count(), html.matches("</blockquote>").count());
        assert!(html.matches("<blockquote>").count() <= MAX_DEPTH);
        let html = shown(&"*a **b ".repeat(2_000));
        assert_eq!(html.matches("<em>").count(), html.matches("</em>").count());
    }
}
