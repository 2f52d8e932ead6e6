//! `amb chat` in a terminal: what is typed stays while answers come above it.

use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::local_office::Home;
use crate::server_office::soon;

/// A pseudo-terminal of 40 columns with a verb in it.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    shown: String,
}

impl Terminal {
    fn start(home: &Home, verb: &str) -> Self {
        let mut shell = tokio::process::Command::new("script");
        // The shell survives Ctrl-C, and prints the terminal modes afterwards.
        let line = format!("trap : INT; stty cols 40 rows 20; {} {verb}; stty -a", env!("CARGO_BIN_EXE_amb"));
        shell.args(["--quiet", "--return", "--echo", "never", "--command", &line, "/dev/null"]);
        shell.env_clear().env("PATH", std::env::var("PATH").unwrap()).env("HOME", home.root.path());
        shell.env("XDG_RUNTIME_DIR", home.root.path().join("run")).env("TERM", "xterm").env("LANG", "C.UTF-8");
        shell.env("NO_COLOR", "1").env("SHELL", "/bin/sh").current_dir(home.root.path());
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let (keys, screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, keys, screen, shown: String::new() }
    }

    async fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }

    /// Waits until the text is shown; returns everything up to it that was not returned before.
    async fn shows(&mut self, text: &str) -> String {
        soon(async {
            loop {
                if let Some(at) = self.shown.find(text) {
                    return self.shown.drain(..at + text.len()).collect();
                }
                let mut bytes = [0; 1024];
                let count = self.screen.read(&mut bytes).await.unwrap();
                assert!(count > 0, "it ended without {text:?}: {:?}", self.shown);
                self.shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        })
        .await
    }
}

#[tokio::test]
async fn the_typed_line_stays_while_answers_are_shown() {
    let home = Home::new();
    home.json(&["up"]).await;
    home.amb(&["register", "ann", "ben"]).await;
    home.amb(&["--as", "ann", "send", "ben", "which test fails?"]).await;
    let mut ben = Terminal::start(&home, "--as ben chat ann");
    let begin = ben.shows("> ").await;
    assert!(begin.contains("# which test fails?") && begin.contains("ann: which test fails?"), "{begin}");
    ben.types("the third of the im").await;
    ben.shows("> the third of the im").await;
    home.amb(&["--as", "ann", "send", "ben", "hello?"]).await;
    let redrawn = ben.shows("> the third of the im").await;
    assert!(redrawn.contains("\r\x1b[Jann: hello?"), "{redrawn:?}");
    // A line longer than a row is erased completely, and drawn again.
    ben.types("porter, since the parsr").await;
    ben.types("\x7fer changed").await;
    ben.shows("> the third of the importer, since the parser changed").await;
    home.amb(&["--as", "ann", "send", "ben", "mend it", "--kind", "task", "--subject", "Importer"]).await;
    let redrawn = ben.shows("> the third of the importer, since the parser changed").await;
    assert!(redrawn.contains("\x1b[1A\r\x1b[Jann [task] in \"Importer\": mend it"), "{redrawn:?}");
    ben.types("\n").await;
    // The receipt arrives once the message is read.
    let heard = async {
        loop {
            let inbox = home.json(&["--as", "ann", "inbox"]).await;
            let newest = &inbox["sessions"][0]["recent_messages"][0];
            if newest["sender_name"] == "ben" {
                return newest["content"].as_str().unwrap().to_owned();
            }
        }
    };
    assert_eq!(soon(heard).await, "the third of the importer, since the parser changed");
    home.amb(&["--as", "ann", "read", "ben"]).await;
    ben.shows("  read").await;
    let task = home.json(&["--as", "ben", "task", "list"]).await["tasks"][0]["id"].as_str().unwrap().to_owned();
    home.amb(&["--as", "ben", "task", "accept", &task]).await;
    // Ctrl-D ends it, and the terminal is in canonical mode again.
    ben.types("\x04").await;
    ben.shows("isig icanon").await;
    drop(ben.keys);
    assert!(soon(ben.child.wait()).await.unwrap().success());
}

#[tokio::test]
async fn a_chat_shows_persons_task_states_and_pauses() {
    let home = Home::new();
    home.json(&["up"]).await;
    home.amb(&["register", "ben"]).await;
    home.amb(&["send", "ben", "mend it", "--kind", "task", "--subject", "Importer"]).await;
    let task = home.json(&["--as", "ben", "task", "list"]).await["tasks"][0]["id"].as_str().unwrap().to_owned();
    home.amb(&["--as", "ben", "task", "accept", &task]).await;
    home.amb(&["--as", "ben", "task", "done", &task, "the parser was it"]).await;
    let mut ben = Terminal::start(&home, "--as ben chat person");
    ben.shows("person, a person, is ").await;
    ben.shows("person [task]: mend it").await;
    ben.shows("you [task accepted]\r\n").await;
    ben.shows("you [task completed]: the parser was it").await;
    home.amb(&["pause", "ben"]).await;
    let mut person = Terminal::start(&home, "chat ben");
    person.shows("ben is paused; mail waits until it").await;
    person.types("\x03").await;
    // Ctrl-C restores the terminal, too.
    person.shows("isig icanon").await;
}

#[tokio::test]
async fn a_line_that_could_not_be_sent_stays_in_the_editor() {
    let home = Home::new();
    home.json(&["up"]).await;
    home.amb(&["register", "ann", "ben"]).await;
    let mut ann = Terminal::start(&home, "--as ann chat ben");
    ann.shows("> ").await;
    home.amb(&["--as", "ben", "connections", "block", "ann"]).await;
    ann.types("are you there?\n").await;
    ann.shows("amb: ").await;
    ann.shows("> are you there?").await;
    home.amb(&["--as", "ben", "connections", "unblock", "ann"]).await;
    ann.types("\n").await;
    let heard = async {
        loop {
            let inbox = home.json(&["--as", "ben", "inbox"]).await;
            if let Some(text) = inbox["sessions"][0]["recent_messages"][0]["content"].as_str() {
                return text.to_owned();
            }
        }
    };
    assert_eq!(soon(heard).await, "are you there?");
}
