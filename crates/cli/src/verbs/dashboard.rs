//! `amb dashboard`: the office's pages for people, in a browser.

use std::process::Stdio;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Print a one-time link to the dashboard, and open it in a browser
///
/// The link signs in one browser and expires after five minutes. A browser is opened only if this runs in a terminal
/// and there is a graphical display.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  amb dashboard\n  amb dashboard --no-open")]
pub(crate) struct DashboardCommand {
    /// Print the link without opening a browser
    #[arg(long)]
    no_open: bool,
}

impl DashboardCommand {
    pub(crate) async fn run(self, office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        let server = office
            .server_or("a directory has no dashboard; `amb up` starts an office that has, or --server URL names one")?;
        let link = office.client(server).await?.dashboard_link().await?;
        output.result(&link, &link.url)?;
        output.note("it works once, within five minutes");
        if !self.no_open && output.for_person {
            open(&link.url);
        }
        Ok(())
    }
}

/// Opens a URL in a browser where there is a display, and returns whether one was started. The link is printed in any
/// case.
pub(crate) fn open(url: &str) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if !cfg!(target_os = "macos") && !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        return false;
    }
    let mut browser = std::process::Command::new(program);
    let started = browser.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    started.inspect_err(|error| tracing::debug!(%error, "no browser was started")).is_ok()
}
