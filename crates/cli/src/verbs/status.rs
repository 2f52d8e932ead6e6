//! `amb status`: whether the local office runs, and where.

use std::path::PathBuf;

use amb_core::doc::DashboardLink;
use serde::Serialize;
use serde_json::json;

use crate::args::OfficeArgs;
use crate::database::bytes;
use crate::failure::Failure;
use crate::local::{self, OfficeRecord};
use crate::output::{Output, ago};

/// Show whether the local office is running, and where its mail is stored
///
/// Exits with code 3 if no local office is running.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  amb status\n  amb status --json")]
pub(crate) struct StatusCommand {}

/// The state of the local office, for people and programs.
#[derive(Debug, Serialize)]
pub(crate) struct OfficeStatus {
    running: bool,
    /// Whether it accepts messages now.
    ready: bool,
    /// With `amb up`: whether that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<bool>,
    #[serde(flatten)]
    record: OfficeRecord,
    /// The log file, which only an office in the background has.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<PathBuf>,
    /// With `amb up`: a link that signs the person of the household in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dashboard: Option<DashboardLink>,
    /// Why it does not accept messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl OfficeStatus {
    /// Asks the office for its health.
    pub(crate) async fn of(record: &OfficeRecord) -> Result<Self, Failure> {
        let health = amb_client::health(&record.server()?).await;
        let problem = health.map_or_else(|error| Some(error.detail().to_owned()), |health| health.problem);
        Ok(Self {
            running: true,
            ready: problem.is_none(),
            started: None,
            record: record.clone(),
            log: Some(local::log_file()?).filter(|log| log.exists()),
            dashboard: None,
            problem,
        })
    }

    /// One line for each thing worth knowing.
    pub(crate) fn lines(&self, output: Output) -> Result<(), Failure> {
        let size = fs_err::metadata(&self.record.store).map(|file| format!(" ({})", bytes(file.len())));
        output.field("mail", &format!("{}{}", self.record.store, size.unwrap_or_default()))?;
        if let Some(log) = &self.log {
            output.field("log", &log.display().to_string())?;
        }
        if let Some(link) = &self.dashboard {
            output.field(
                "dashboard",
                &format!("{} (once, within five minutes; `amb dashboard` gives another)", link.url),
            )?;
        }
        if let Some(problem) = &self.problem {
            output.field("problem", problem)?;
        }
        let mine = env!("CARGO_PKG_VERSION");
        if self.record.version != mine {
            let other = format!("{} runs, and this is {mine}; `amb down`, then `amb up`", self.record.version);
            output.field("version", &other)?;
        }
        Ok(())
    }
}

impl StatusCommand {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let Some(record) = local::running() else {
            if output.json {
                output.document(&json!({ "running": false }))?;
            }
            return Err(Failure::not_found("no local office runs; `amb up` starts it"));
        };
        let report = OfficeStatus::of(&record).await?;
        if output.json {
            return Ok(output.document(&report)?);
        }
        let state = if report.ready { "runs" } else { "runs, but takes no mail" };
        output.say(format!("the office {state} at {}", record.url))?;
        let started = match ago(record.started_at) {
            now if now == "now" => "just now".to_owned(),
            ago => ago,
        };
        output.field("process", &format!("{}, started {started}", record.pid))?;
        report.lines(output)
    }
}
