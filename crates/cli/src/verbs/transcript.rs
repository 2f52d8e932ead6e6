//! `amb transcript`: the shared record of a group chat.

use std::path::PathBuf;

use amb_core::doc::{Access, NumberedLine};
use amb_core::transcript::{Line, TranscriptKey};
use amb_core::{AgentName, Backoff, Code, OfficeError, limits};
use amb_dir::transcript::TranscriptStore;

use crate::args::{OfficeArgs, OfficeOrigin};
use crate::failure::Failure;
use crate::home;
use crate::input::stdin;
use crate::output::{Output, visible};
use crate::signals::interrupted;

const NO_OWNERS: &str = "transcripts in files have no owner; --server URL names an office";

/// Append to, read and follow the shared record of a group chat
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb transcript append feishu:oc_123 'shall we ship?' --role user --sender ou_42 --message-id om_1
  amb transcript recent feishu:oc_123 --limit 20 --json
  amb transcript follow feishu:oc_123
  amb --server http://127.0.0.1:8000 --as ann transcript share feishu:oc_123 ben write")]
pub(crate) struct TranscriptCommand {
    #[command(subcommand)]
    action: TranscriptVerb,
}

#[derive(Debug, clap::Subcommand)]
enum TranscriptVerb {
    /// Add a line
    #[command(
        after_help = "Example:\n  amb transcript append feishu:oc_123 'shall we ship?' --role user --sender ou_42 --message-id om_1"
    )]
    Append {
        /// Key of the chat, such as feishu:oc_123
        key: TranscriptKey,
        /// Text of the line, or - to read it from stdin
        text: String,
        /// user for people, assistant for agents
        #[arg(long, value_name = "R")]
        role: String,
        /// Name of the speaker
        #[arg(long, value_name = "S")]
        sender: String,
        /// Id of the message in the chat; a second line with the same id is not added
        #[arg(long, value_name = "M")]
        message_id: Option<String>,
        /// Time in milliseconds since 1970 [default: now]
        #[arg(long, value_name = "MS")]
        timestamp_ms: Option<f64>,
        #[command(flatten)]
        place: TranscriptPlace,
    },
    /// Print the last lines, oldest first, without duplicates
    #[command(after_help = "\
Examples:
  amb transcript recent feishu:oc_123 --limit 50 --json
  amb --office work --as ann transcript recent feishu:oc_123 --owner ben")]
    Recent {
        /// Key of the chat
        key: TranscriptKey,
        /// Number of lines, at most 1000
        #[arg(long, value_name = "N", default_value_t = limits::DEFAULT_TRANSCRIPT_LINES, value_parser = line_count)]
        limit: usize,
        #[command(flatten)]
        place: TranscriptPlace,
    },
    /// At a server: set what a connected agent may do with a transcript of yours
    #[command(after_help = "\
Examples:
  amb --office work --as ann transcript share feishu:oc_123 ben write
  amb --office work --as ann transcript share feishu:oc_123 ben none     end the sharing")]
    Share {
        /// Key of the chat
        key: TranscriptKey,
        /// The agent to share it with
        agent: AgentName,
        /// What the agent may do
        #[arg(default_value = "read")]
        access: SharedAccess,
    },
    /// Print new lines until interrupted
    #[command(after_help = "Example:\n  amb transcript follow feishu:oc_123")]
    Follow {
        /// Key of the chat
        key: TranscriptKey,
        #[command(flatten)]
        place: TranscriptPlace,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SharedAccess {
    /// Read the transcript
    Read,
    /// Read the transcript and add lines
    Write,
    /// Nothing: ends the sharing
    None,
}

fn line_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=limits::MAX_TRANSCRIPT_LINES) => Ok(count),
        _ => Err(format!("a number from 1 to {}", limits::MAX_TRANSCRIPT_LINES)),
    }
}

#[derive(Debug, clap::Args)]
struct TranscriptPlace {
    /// Directory of the transcript files [default: nanobot's]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// At a server: the agent that owns the transcript [default: yourself]
    #[arg(long, value_name = "NAME", conflicts_with = "root")]
    owner: Option<AgentName>,
}

impl TranscriptPlace {
    fn store(&self) -> Result<TranscriptStore, Failure> {
        let root = self.root.clone().map_or_else(home::nanobot_transcripts, Ok)?;
        Ok(TranscriptStore::open(&root)?)
    }

    /// Whether a server's transcript is meant. The local office that nobody named does not count: the agents of one
    /// machine share nanobot's files, and at a server each would have a transcript of its own.
    fn is_remote(&self, office: &OfficeArgs) -> bool {
        let is_named = office.origin != OfficeOrigin::Local || self.owner.is_some();
        self.root.is_none() && office.server.is_some() && is_named
    }
}

impl TranscriptCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        match self.action {
            TranscriptVerb::Append { key, text, role, sender, message_id, timestamp_ms, place } => {
                let content = if text == "-" { stdin()? } else { text };
                let line = Line { role, content, sender, author: None, message_id, ts: timestamp_ms };
                if !place.is_remote(office) && place.owner.is_none() {
                    place.store()?.append(&key, line).await?;
                    output.note("appended");
                    return Ok(());
                }
                let mailbox = office.client(office.server_or(NO_OWNERS)?).await?;
                let appended = mailbox.append_line(place.owner.as_ref(), &key, &line).await?;
                output.note(if appended.duplicate { "already there: a line has this message id" } else { "appended" });
                Ok(())
            }
            TranscriptVerb::Recent { key, limit, place } => {
                let lines = match (place.is_remote(office), &place.owner) {
                    (true, None) => office.open().await?.transcript_recent(&key, limit).await?,
                    (_, Some(owner)) => office.open().await?.transcript_recent_of(owner, &key, limit).await?,
                    (false, None) => place.store()?.recent(&key, limit).await?,
                };
                if output.json {
                    return Ok(output.document(&lines)?);
                }
                Ok(lines.iter().try_for_each(|line| output.say(text(line)))?)
            }
            TranscriptVerb::Share { key, agent, access } => share(office, output, &key, &agent, access).await,
            TranscriptVerb::Follow { key, place } => tokio::select! {
                ended = follow(office, output, &key, &place) => ended,
                interrupted = interrupted() => Ok(interrupted?),
            },
        }
    }
}

/// Prints new lines.
async fn follow(
    office: &OfficeArgs,
    output: Output,
    key: &TranscriptKey,
    place: &TranscriptPlace,
) -> Result<(), Failure> {
    if place.is_remote(office) || place.owner.is_some() {
        return follow_at_server(office, output, key, place.owner.as_ref()).await;
    }
    let mut following = place.store()?.follow(key).await?;
    while let Some(line) = following.recv().await {
        let line = line?;
        output.stream(&line, || text(&line))?;
    }
    Ok(())
}

/// Prints new lines of a server's transcript, also after an outage.
async fn follow_at_server(
    office: &OfficeArgs,
    output: Output,
    key: &TranscriptKey,
    owner: Option<&AgentName>,
) -> Result<(), Failure> {
    let server = office.server_or(NO_OWNERS)?;
    let mailbox = office.client(server).await?;
    let mut last = mailbox.transcript_end(owner, key).await?;
    let mut backoff = Backoff::default();
    loop {
        let lines = match mailbox.transcript_after(owner, key, last).await {
            Ok(lines) => lines,
            // The caller's own transcript is created with its first line.
            Err(error) if error.is_transient() || (error.code() == Code::NotFound && owner.is_none()) => {
                tracing::debug!(%error, "retrying");
                tokio::time::sleep(error.wait().unwrap_or_else(|| backoff.pause())).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        backoff = Backoff::default();
        for NumberedLine { number, line } in lines {
            output.stream(&line, || text(&line))?;
            last = number;
        }
    }
}

async fn share(
    office: &OfficeArgs,
    output: Output,
    key: &TranscriptKey,
    agent: &AgentName,
    shared: SharedAccess,
) -> Result<(), Failure> {
    // As for the other verbs, the local office counts only if it was named.
    let Some(server) = office.server.as_ref().filter(|_| office.origin != OfficeOrigin::Local) else {
        let detail =
            "transcripts in files are shared by who may read the files; --server URL or --office local names an office";
        return Err(OfficeError::unsupported(detail).into());
    };
    let access = match shared {
        SharedAccess::Read => Some(Access::Read),
        SharedAccess::Write => Some(Access::Write),
        SharedAccess::None => None,
    };
    let mailbox = office.client(server).await?;
    mailbox.share_transcript(key, agent, access).await?;
    output.note(match shared {
        SharedAccess::Read => format!("{agent} may read {key}"),
        SharedAccess::Write => format!("{agent} may read {key} and add to it"),
        SharedAccess::None => format!("{key} is not shared with {agent}"),
    });
    Ok(())
}

fn text(line: &Line) -> String {
    let indented = line.content.lines().map(visible).collect::<Vec<_>>().join("\n    ");
    let author = match &line.author {
        Some(author) if author.as_str() != line.sender => format!(", written by {author}"),
        _ => String::new(),
    };
    format!("{} ({}{author}): {indented}", visible(&line.sender), visible(&line.role))
}
