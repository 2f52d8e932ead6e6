//! `amb export`: the caller's own messages.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use amb_client::Client;
use amb_core::{OfficeError, Timestamp};
use fs_err::os::unix::fs::OpenOptionsExt;

use crate::args::OfficeArgs;
use crate::database::{Progress, shown};
use crate::durable;
use crate::failure::Failure;
use crate::output::{Output, moment};

/// Export all your mail, sent and received, as JSON lines
///
/// Each line is a message with its receipts, grouped by session, oldest first within each. Does not mark messages as
/// read. Mail that arrives during the export may or may not be included. With --output, only you can read the file, and
/// it appears under its name only when it is complete.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb --server http://127.0.0.1:8000 --as ann export -o mail.jsonl
  amb --as ann export --since 2026-11-01T00:00:00Z | jq -r .subject | sort | uniq -c")]
pub(crate) struct ExportCommand {
    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long, requires = "output")]
    force: bool,
    /// Only messages sent since this time (2026-12-01T12:00:00Z), or in this last period (90m, 2h, 3d)
    #[arg(long, value_name = "T", value_parser = moment)]
    since: Option<Timestamp>,
}

impl ExportCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let detail = "mail in a directory is files already: copy them; --server URL exports from a server";
        let server = office.server_or(detail)?;
        let mailbox = office.client(server).await?;
        let Some(file) = &self.output else {
            let out = io::stdout().lock();
            self.write(&mailbox, BufWriter::new(out), &mut Progress::new(output.json)).await?;
            return Ok(());
        };
        let count = self.write_file(&mailbox, file, output).await?;
        output.result(
            &serde_json::json!({ "file": file, "messages": count }),
            format!("{}: {count} messages", shown(file)),
        )
    }

    async fn write_file(&self, mailbox: &Client, file: &Path, output: Output) -> Result<u64, Failure> {
        let exists_error = || {
            let detail = format!("{} is there already; name another file, or use --force", file.display());
            Failure::Office(OfficeError::new(amb_core::Code::Conflict, detail))
        };
        if file.exists() && !self.force {
            return Err(exists_error());
        }
        let making = PathBuf::from(format!("{}.making", file.display()));
        let mut options = fs_err::OpenOptions::new();
        let target = options.write(true).create(true).truncate(true).mode(0o600).open(&making)?;
        let written = self.write(mailbox, BufWriter::new(&target), &mut Progress::new(output.json)).await;
        let count = written.inspect_err(|_| drop(fs_err::remove_file(&making)))?;
        target.sync_all()?;
        if file.exists() && !self.force {
            return Err(exists_error());
        }
        fs_err::rename(&making, file)?;
        durable::sync_parent(file)?;
        Ok(count)
    }

    async fn write(&self, mailbox: &Client, mut out: impl Write, progress: &mut Progress) -> Result<u64, Failure> {
        let (mut after, mut count) = (None, 0);
        loop {
            let page = mailbox.export(after.as_ref(), self.since).await?;
            let Some(last) = page.last() else { break };
            for mail in &page {
                serde_json::to_writer(&mut out, mail).map_err(io::Error::from)?;
                out.write_all(b"\n")?;
            }
            // After each page, so that a reader at the other end of a pipe sees progress.
            out.flush()?;
            count += page.len() as u64;
            after = Some(last.message.id.clone());
            progress.show(&format!("{count} messages"));
        }
        Ok(count)
    }
}
