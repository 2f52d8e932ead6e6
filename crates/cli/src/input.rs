//! Text that a verb reads: from an argument, stdin or an editor.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use amb_core::OfficeError;
use amb_core::limits::MAX_MESSAGE_BYTES;
use anyhow::Context;

use crate::failure::Failure;
use crate::{durable, home};

/// In the editor, what follows this line is not part of the text.
const SCISSORS: &str = "# ------ 8< ------ what follows is not sent";

/// The error of the verbs that can send a file instead.
const NOT_TEXT: &str = "what came on stdin is not UTF-8; put such content in a file and name it with --file";

/// The error for more bytes than a message may have. They are not counted: stdin may be endless.
const TOO_LARGE: &str =
    "what came on stdin is more than 1 MiB, the limit of a message; put large content in a file and send its path";

/// All of stdin as text. Reads at most one byte more than a message may have.
pub(crate) fn stdin() -> Result<String, Failure> {
    read_stdin("what came on stdin is not UTF-8, and only text can be given so")
}

fn read_stdin(not_text: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(MAX_MESSAGE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    // Before it is decoded: the limit may be within a character.
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(OfficeError::too_large(TOO_LARGE).into());
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage(not_text))
}

/// A text that was given, read from stdin or written in an editor.
#[derive(Debug)]
pub(crate) struct ComposedText {
    pub(crate) text: String,
    /// A text from an editor is kept in this file until it is sent.
    draft: Option<PathBuf>,
}

impl ComposedText {
    /// The text of an argument (`-` is stdin); without one, stdin where that is no terminal, else an editor.
    pub(crate) fn read(argument: Option<&str>, hint: &str) -> Result<Self, Failure> {
        let plain = |text: String| Self { text, draft: None };
        match argument {
            Some("-") => read_stdin(NOT_TEXT).map(plain),
            Some(text) => Ok(plain(text.to_owned())),
            None if std::io::stdin().is_terminal() => Self::edit(hint),
            None => {
                let text = read_stdin(NOT_TEXT)?;
                if text.trim().is_empty() {
                    return Err(Failure::usage("the message is empty; give TEXT, or pipe it in"));
                }
                Ok(plain(text))
            }
        }
    }

    fn edit(hint: &str) -> Result<Self, Failure> {
        let path = home::state_dir()?.join(format!("unsent-{}.md", std::process::id()));
        let template = format!("\n{SCISSORS}\n# {hint}\n# An empty text is not sent.\n");
        durable::replace_private(&path, template.as_bytes())?;
        run_editor(&path)?;
        let text = fs_err::read_to_string(&path)?;
        let text = text.split(SCISSORS).next().unwrap_or_default().trim().to_owned();
        let composed = Self { text, draft: Some(path) };
        if composed.text.is_empty() {
            composed.discard_draft();
            return Err(Failure::usage("nothing was written, and nothing is sent"));
        }
        Ok(composed)
    }

    /// Removes the draft, once the text is sent.
    pub(crate) fn discard_draft(self) {
        if let Some(draft) = self.draft {
            let _ = fs_err::remove_file(draft);
        }
    }

    /// Says where the text is kept, for when it could not be sent.
    pub(crate) fn draft_hint(&self) -> Option<String> {
        self.draft.as_ref().map(|draft| format!("what you wrote is kept in {}", draft.display()))
    }
}

/// Runs the user's editor, whose command may have arguments.
fn run_editor(path: &Path) -> Result<(), Failure> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = variable("VISUAL").or_else(|| variable("EDITOR")).unwrap_or_else(|| "vi".into());
    let mut shell = std::process::Command::new("sh");
    let status = shell.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status();
    match status.context("the editor")? {
        status if status.success() => Ok(()),
        status => Err(Failure::usage(format!("{editor} ended with {status}; nothing is sent"))),
    }
}
