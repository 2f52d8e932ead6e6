//! `amb doctor`: checks, and how to repair what is wrong.

mod clients;
mod machine;
mod server;

use anyhow::anyhow;
use serde::Serialize;

use crate::args::{OfficeArgs, OfficeOrigin};
use crate::failure::Failure;
use crate::home;
use crate::output::{Output, visible};
use crate::table::Tone;

/// Check an office and its clients for problems, and suggest fixes
///
/// At a server, or if no office is given, it checks that the office is running and accepts mail, that it accepts your
/// key, that the clocks agree, that there is disk space, that only you can read your keys, that the clients configured
/// by `amb init` can start `amb`, and that no wake-up failed.
///
/// In a directory, it looks for temporary files left by a crash, messages that do not parse, stale leases, a broken
/// registry, and files in corrupt/ and refused/, which a person must check. --mend repairs what can be repaired.
///
/// Exits with code 1 if there are problems that were not repaired.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  amb doctor\n  amb --server https://mail.example --as ann doctor\n  amb --dir mail doctor --mend"
)]
pub(crate) struct DoctorCommand {
    /// In a directory: repair what can be repaired; deletes nothing that could be mail
    #[arg(long)]
    mend: bool,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(crate) struct CheckResult {
    /// The subject: office, key, clock, disk, keys, client, wake-up.
    what: &'static str,
    /// `ok`, `note` or `problem`.
    state: &'static str,
    detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl CheckResult {
    fn ok(what: &'static str, detail: impl Into<String>) -> Self {
        Self { what, state: "ok", detail: detail.into(), remedy: None }
    }

    fn note(what: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, state: "note", detail: detail.into(), remedy: Some(remedy.into()) }
    }

    fn problem(what: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, state: "problem", detail: detail.into(), remedy: Some(remedy.into()) }
    }

    fn is_problem(&self) -> bool {
        self.state == "problem"
    }
}

impl DoctorCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let is_server_named = office.server.is_some() && office.origin != OfficeOrigin::Local;
        let is_directory_named = office.dir.is_some() || office.layout.is_some();
        // Where a server was named, no directory is meant; where one merely runs here, nanobot's mailboxes may exist as
        // well.
        let directory = match office.directory(amb_dir::DirOptions::default()) {
            _ if is_server_named => None,
            Ok(directory) => Some(directory),
            Err(_) if !is_directory_named && !has_directory() => None,
            Err(error) => return Err(error),
        };
        let mut checks = Vec::new();
        if !is_directory_named {
            checks.extend(server::check(office).await?);
            checks.extend(machine::check(office));
            checks.extend(clients::check(office).await);
        }
        let findings = match &directory {
            Some(directory) => amb_dir::doctor::examine(directory, self.mend).await?,
            None => Vec::new(),
        };
        let open = findings.iter().filter(|finding| !finding.mended).count();
        let problems = checks.iter().filter(|check| check.is_problem()).count();
        if output.json {
            let mut document = serde_json::json!({ "findings": findings });
            if !checks.is_empty() {
                document["checks"] = serde_json::to_value(&checks)?;
            }
            output.document(&document)?;
        } else {
            checks.iter().try_for_each(|check| show(check, output))?;
            for finding in &findings {
                let end = if finding.mended { "mended".to_owned() } else { format!("to do: {}", finding.remedy) };
                output.say(visible(&format!("{}: {} ({end})", finding.path.display(), finding.detail)))?;
            }
            if findings.is_empty() && problems == 0 {
                output.say("no problems found")?;
            }
        }
        let found = match open + problems {
            0 => return Ok(()),
            1 => "1 problem".to_owned(),
            several => format!("{several} problems"),
        };
        let remedy = if problems == 0 {
            "repair with --mend, or as each line above says"
        } else {
            "each line above says what to do"
        };
        Err(anyhow!("{found}; {remedy}").into())
    }
}

/// Whether there are mailboxes in a default directory.
fn has_directory() -> bool {
    home::nanobot_mailboxes().is_ok_and(|root| root.is_dir())
        || std::path::Path::new(crate::offices::CHIPSET_ROOT).is_dir()
}

fn show(check: &CheckResult, output: Output) -> Result<(), Failure> {
    let tone = match check.state {
        "note" => Tone::Active,
        state => Tone::of_state(state),
    };
    let state = output.paint(tone, &format!("{:<7}", check.state));
    let text = |text: &str, indent| output.wrap(&output.shorten_home(&visible(text)), indent);
    output.say(format!("{state}  {:<7}  {}", check.what, text(&check.detail, 18)))?;
    if let Some(remedy) = &check.remedy {
        output.say(format!("                  → {}", text(remedy, 20)))?;
    }
    Ok(())
}
