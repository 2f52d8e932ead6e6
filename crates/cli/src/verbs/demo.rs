//! `amb demo`: a real office for half a minute, with three scripted agents in it.

mod actor;
mod office;
mod screen;
mod story;

use crate::args::OfficeArgs;
use crate::failure::Failure;
use crate::output::Output;

use office::TemporaryOffice;
use screen::Screen;

/// See agents connect, delegate, wait for each other and end a loop
///
/// Opens an office of its own (a free port of this machine, its mail in a temporary directory) and lets three scripted agents work
/// in it for half a minute. Each line is what the office answered to one of them or told one of them. Needs no configuration and no
/// network, touches no other office, and leaves nothing behind, also after Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  amb demo
  amb demo --fast
  amb demo --fast --json | jq -r 'select(.type == \"event\") | .event.type'")]
pub(crate) struct Demo {
    /// Without pauses
    #[arg(long)]
    fast: bool,
}

impl Demo {
    pub(crate) async fn run(self, _office: &OfficeArgs, output: Output) -> Result<(), Failure> {
        // From before there is anything to leave behind.
        let interrupted = interruption()?;
        let office = TemporaryOffice::open().await?;
        let mut screen = Screen::new(output, self.fast);
        let played = tokio::select! {
            played = story::play(&office, &mut screen) => Some(played),
            () = interrupted => None,
        };
        // Whatever became of the story, nothing stays.
        let closed = office.close().await;
        match played {
            Some(played) => played.and(closed),
            None => {
                output.note("interrupted; the office is closed and its mail is gone");
                closed
            }
        }
    }
}

/// Ctrl-C, a polite kill, or a terminal that was closed.
fn interruption() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup())?;
    let ended = crate::verbs::watch::interruption()?;
    Ok(async move {
        tokio::select! {
            () = ended => {}
            _ = hangup.recv() => {}
        }
    })
}
