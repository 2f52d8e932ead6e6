//! `amb doctor`: what is wrong, and how to mend it.

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::{Output, visible};

/// Find what is wrong with a directory's mail, and mend it with --mend
///
/// Looks for temporary files that a crash left, messages that do not parse, stale leases and a broken registry, and tells
/// what was put aside in corrupt/ and refused/, which only a person can judge. Exit code 1 where something is wrong and
/// was not mended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  amb doctor --mend")]
pub(crate) struct Doctor {
    /// Mend what can be mended; nothing is deleted that could be mail
    #[arg(long)]
    mend: bool,
}

impl Doctor {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let directory = office.directory(amb_dir::DirOptions::default())?;
        let findings = amb_dir::doctor::examine(&directory, self.mend).await?;
        let open = findings.iter().filter(|finding| !finding.mended).count();
        if output.json {
            output.document(&serde_json::json!({ "findings": findings }))?;
        } else {
            for finding in &findings {
                let end = if finding.mended { "mended".to_owned() } else { format!("to mend: {}", finding.remedy) };
                output.say(visible(&format!("{}: {} ({end})", finding.path.display(), finding.detail)))?;
            }
            if findings.is_empty() {
                output.say("nothing is wrong")?;
            }
        }
        match open {
            0 => Ok(()),
            _ => Err(anyhow::anyhow!("{open} to mend; run with --mend, or see what each line says").into()),
        }
    }
}
