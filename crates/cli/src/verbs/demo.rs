//! `amb demo`: a real office for half a minute, with three scripted agents.

mod actor;
mod office;
mod screen;
mod script;

use std::time::Duration;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::verbs::dashboard;

use office::TemporaryOffice;
use screen::Screen;

/// Watch three agents work together in a temporary office
///
/// For half a minute, three scripted agents connect, pass on a task with its progress and result, catch up after one
/// was offline, and are stopped by loop protection when they answer each other endlessly. All output comes from real
/// responses and events of the office. The dashboard opens in a browser if there is a graphical display; its link is
/// always printed. The demo needs no configuration and no network, does not touch your own office, and deletes
/// everything when it ends, even after Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb demo
  amb demo --no-open        print the link to the dashboard, open no browser
  amb demo --fast           without pauses, for tests
  amb demo --fast --json | jq -r 'select(.type == \"event\") | .event.type'")]
pub(crate) struct DemoCommand {
    /// Run without pauses and without the dashboard
    #[arg(long)]
    fast: bool,
    /// Print the link to the dashboard without opening a browser
    #[arg(long)]
    no_open: bool,
}

/// How long the office stays open at the end for a person who looks at it in a browser.
const DASHBOARD_TIME: Duration = Duration::from_secs(15);

impl DemoCommand {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        // Before anything is created that an interruption would leave behind.
        let interrupted = interruption()?;
        let office = TemporaryOffice::open().await?;
        let mut screen = Screen::new(output, self.fast);
        let played = tokio::select! {
            played = self.play(&office, &mut screen, output) => Some(played),
            () = interrupted => None,
        };
        let closed = office.close().await;
        match played {
            Some(played) => played.and(closed),
            None => {
                output.note("interrupted; the office is closed and its mail is gone");
                closed
            }
        }
    }

    async fn play(&self, office: &TemporaryOffice, screen: &mut Screen, output: Output) -> Result<(), Failure> {
        let link = if self.fast { None } else { Some(office.dashboard().await?) };
        screen.begin(&office.server.to_string(), &office.place(), link.as_deref())?;
        let is_open = link.is_some_and(|link| !self.no_open && output.for_person && dashboard::open(&link));
        script::play(office, screen).await?;
        if is_open {
            output.note(format!("the dashboard stays open for {} s; Ctrl-C ends it now", DASHBOARD_TIME.as_secs()));
            tokio::time::sleep(DASHBOARD_TIME).await;
        }
        screen.end()
    }
}

/// Ctrl-C, SIGTERM, or a terminal that was closed.
fn interruption() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup())?;
    let ended = crate::signals::interruption()?;
    Ok(async move {
        tokio::select! {
            () = ended => {}
            _ = hangup.recv() => {}
        }
    })
}
