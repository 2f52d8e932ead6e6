//! `amb search`: searches the caller's own messages.

use amb_core::mailbox::SearchQuery;
use amb_core::{AgentName, Timestamp};

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::ids::Short;
use crate::output::{Output, ago, moment, preview};

/// Search your own mail
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb --as ann search 'auth \"token refresh\"' --from ben")]
pub(crate) struct SearchCommand {
    /// Words and "phrases in quotes" to search for
    #[arg(default_value = "")]
    text: String,
    /// Only messages from this agent
    #[arg(long, value_name = "NAME")]
    from: Option<AgentName>,
    /// Only messages in sessions whose subject contains these words
    #[arg(long, value_name = "S")]
    subject: Option<String>,
    /// Only messages sent since this time (2026-12-01T12:00:00Z), or in this last period (90m, 2h, 3d)
    #[arg(long, value_name = "T", value_parser = moment)]
    after: Option<Timestamp>,
    /// Only messages sent before this time, or before this last period
    #[arg(long, value_name = "T", value_parser = moment)]
    before: Option<Timestamp>,
    /// Maximum number of results
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
}

impl SearchCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let SearchCommand { text, from, subject, after, before, limit } = self;
        let query = SearchQuery { text, from, subject, after, before, limit: Some(limit) };
        let hits = office.open().await?.search(query).await?;
        let short = Short::of(hits.iter().map(|hit| hit.session_id.as_str()), output.for_person);
        let rows = hits.iter().map(|hit| {
            let (session, from) = (short.show(hit.session_id.as_str()), hit.sender_name.to_string());
            vec![session, from, ago(hit.created_at), preview(&hit.subject, 30), preview(&hit.snippet, 60)]
        });
        let head = ["SESSION", "FROM", "SENT", "SUBJECT", "TEXT"];
        output.list(&serde_json::json!({ "hits": hits }), "nothing found", &head, rows)
    }
}
