//! What a person sees in a terminal of 80 and of 120 columns: each command in a pseudo-terminal, whole screens as
//! snapshots.

use std::process::Stdio;

use crate::local_office::Home;
use crate::server_office::soon;

impl Home {
    /// What a command shows in a terminal so wide, with its colours, errors included.
    async fn shown(&self, width: usize, command: &str) -> String {
        let amb = env!("CARGO_BIN_EXE_amb");
        let line = command.replacen("amb", amb, 1);
        let mut shell = tokio::process::Command::new("script");
        shell
            .args(["--quiet", "--return", "--command"])
            .arg(format!("stty cols {width} rows 50; {line}"))
            .arg("/dev/null");
        let run = self.root.path().join("run");
        shell.env_clear().env("PATH", std::env::var("PATH").unwrap()).env("HOME", self.root.path());
        shell
            .env("XDG_RUNTIME_DIR", run)
            .env("TERM", "xterm")
            .env("USER", "kim")
            .env("LANG", "C.UTF-8")
            .env("SHELL", "/bin/sh");
        let ended = soon(shell.current_dir(self.root.path()).stdin(Stdio::null()).output()).await.unwrap();
        String::from_utf8(ended.stdout).unwrap().replace("\r\n", "\n").trim_end().to_owned()
    }
}

/// The text with the parts replaced that differ between runs: ids, ports, and the free disk space.
fn normalized(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    let settled = |word: &str| -> String {
        let plain = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_id =
            plain.len() >= 8 && plain.starts_with("01") && plain.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        match is_id {
            // As short as it can be depends on when the others were made.
            true => word.replace(plain, "00000000"),
            false => word.to_owned(),
        }
    };
    for c in text.chars() {
        match c.is_whitespace() || c == '\x1b' {
            true => {
                out.push_str(&settled(&word));
                word.clear();
                out.push(if c == '\x1b' { '␛' } else { c });
            }
            false => word.push(c),
        }
    }
    out.push_str(&settled(&word));
    let port =
        out.find("127.0.0.1:").map(|at| out[at + 10..].chars().take_while(char::is_ascii_digit).collect::<String>());
    port.map_or(out.clone(), |port| out.replace(&format!("127.0.0.1:{port}"), "127.0.0.1:8000"))
}

fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut parts = text.split('\x1b');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    out
}

async fn household() -> Home {
    let home = Home::new();
    home.amb(&["up"]).await;
    home.amb(&["register", "planner", "--description", "splits the work", "--capability", "plans"]).await;
    home.amb(&["register", "coder", "tester", "--description", "writes code and tests it, mostly in Rust"]).await;
    home.amb(&["--as", "planner", "send", "coder", "which test fails?"]).await;
    let long = "The third case of the importer fails since the last change of the parser; shall I look into it today, or is somebody at it?";
    home.amb(&["--as", "coder", "send", "tester", long, "--subject", "The failing test of the importer"]).await;
    home.amb(&["--as", "planner", "send", "coder", "mend the importer", "--kind", "task"]).await;
    home
}

/// What a newcomer meets in the first minutes, the mistakes too.
const COMMANDS: [&str; 12] = [
    "amb --as planner inbox",
    "amb --as planner read coder",
    "amb --as coder task list",
    "amb --as tester inbox",
    "amb --as coder log",
    "amb --as planner send codre 'hello'",
    "amb --as codre inbox",
    "amb --as planner read nobody",
    "amb --as planner task done 77",
    "amb --as planner sned coder 'hello'",
    "amb --server http://127.0.0.1:9 --as planner inbox",
    "amb",
];

async fn screens(width: usize) -> String {
    let home = household().await;
    let mut screens = String::new();
    // Who is there and since when is not the same in every run.
    for command in COMMANDS.into_iter().chain(["amb --as planner agents", "amb household"]) {
        let shown = home.shown(width, command).await;
        let wide: Vec<String> =
            plain(&shown).lines().filter(|line| line.chars().count() > width).map(str::to_owned).collect();
        assert!(wide.is_empty(), "{command} at {width}: {wide:#?}");
        if COMMANDS.contains(&command) {
            screens.push_str(&format!("$ {command}\n{}\n\n", normalized(&shown)));
        }
    }
    screens
}

#[tokio::test]
async fn the_first_minutes_in_80_columns() {
    insta::assert_snapshot!(screens(80).await);
}

#[tokio::test]
async fn the_first_minutes_in_120_columns() {
    insta::assert_snapshot!(screens(120).await);
}

#[tokio::test]
async fn without_an_office_each_verb_says_what_to_do() {
    let home = Home::new();
    for verb in [
        "inbox",
        "agents",
        "send ann hello",
        "log",
        "read ann",
        "task list",
        "household",
        "dashboard",
        "chat ann",
        "watch",
        "group list",
        "pause ann",
        "connections",
        "search word",
    ] {
        let shown = home.shown(80, &format!("amb {verb}")).await;
        assert!(plain(&shown).contains("`amb up`"), "{verb}: {shown}");
    }
}

#[tokio::test]
async fn a_piece_of_a_program_is_read_as_it_was_sent() {
    let home = Home::new();
    home.amb(&["up"]).await;
    home.amb(&["register", "ann", "ben"]).await;
    home.amb(&["--as", "ann", "send", "ben", "if ready {\n    start();\n}"]).await;
    let piped = home.amb(&["--as", "ben", "read", "ann"]).await;
    for shown in [plain(&home.shown(80, "amb --as ben read ann").await), piped] {
        assert!(shown.contains("    if ready {\n        start();\n    }"), "{shown}");
    }
}

#[tokio::test]
async fn a_line_of_the_log_fits_however_long_its_subject_is() {
    let home = household().await;
    let (subject, text) = ("the failing test ".repeat(9), "and what it says ".repeat(9));
    home.amb(&["--as", "coder", "send", "planner", &text, "--subject", &subject, "--kind", "task"]).await;
    for width in [80, 120] {
        let shown = plain(&home.shown(width, "amb log").await);
        assert!(shown.contains("coder → planner  task pending  the failing"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= width), "{width}: {shown}");
    }
}

#[tokio::test]
async fn a_terminal_that_reports_no_columns_gets_whole_lines() {
    let home = household().await;
    let shown = plain(&home.shown(0, "amb --as tester inbox").await);
    let head = shown.lines().find(|line| line.contains("SESSION")).unwrap_or_default();
    assert!(head.contains("WITH") && head.contains("PREVIEW"), "{shown}");
}
