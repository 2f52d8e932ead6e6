//! Reports the state of a client session's wake-ups to the office, where the agent's person sees it.

use std::sync::Arc;
use std::time::Duration;

use amb_core::wake::{MAX_WAKE_COUNT, WakeReason};
use amb_core::{Code, Mailbox, WakeReport, WakeState};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::directory::SessionKey;
use crate::door::RingErrorKind;
use crate::ledger::HELD;
use crate::process::Process;

/// An unchanged report is repeated after this long, since offices drop reports after a day.
const REPEAT_AFTER: Duration = Duration::from_secs(12 * 60 * 60);

/// Reports one client session when something changes. A task of its own sends the latest report, so that a slow or
/// unreachable office never delays a ring; a failed report is superseded by the next.
#[derive(Debug)]
pub struct Reporter {
    report: WakeReport,
    reported_at: Option<Instant>,
    to_office: watch::Sender<Option<WakeReport>>,
    sending: JoinHandle<()>,
}

impl Reporter {
    /// Starts reporting a session. A session without a door has a pid as its id, which another machine may use too, so
    /// its process's start time is added.
    pub fn start(office: Arc<dyn Mailbox>, key: &SessionKey, door: Option<&str>) -> Self {
        let process = Process::me();
        let unique = match door {
            Some(_) => key.clone(),
            None => SessionKey { session: format!("{} {}", key.session, process.began), ..key.clone() },
        };
        let report = WakeReport {
            session: unique.hash(),
            client: key.client.clone(),
            door: door.map(str::to_owned),
            state: WakeState::Ready,
            reason: None,
            rung: 0,
            held: 0,
            failed: 0,
        };
        let (to_office, reports) = watch::channel(None);
        let sending = tokio::spawn(send(office, reports));
        Self { report, reported_at: None, to_office, sending }
    }

    /// Counts a ring that the client accepted.
    pub fn rung(&mut self, door: &str, receipt: Option<&str>) {
        self.report.door = Some(door.to_owned());
        self.report.rung = (self.report.rung + 1).min(MAX_WAKE_COUNT);
        if receipt == Some(HELD) {
            self.report.held = (self.report.held + 1).min(MAX_WAKE_COUNT);
        }
    }

    /// Counts a ring that could not be made.
    pub fn failed(&mut self, kind: RingErrorKind) {
        self.report.failed = (self.report.failed + 1).min(MAX_WAKE_COUNT);
        self.report.reason = Some(match kind {
            RingErrorKind::Gone => WakeReason::ClientGone,
            RingErrorKind::Refused => WakeReason::Refused,
            RingErrorKind::Failed => WakeReason::DoorFailed,
        });
    }

    /// Reports the state, if anything has changed.
    pub fn update(&mut self, state: WakeState) {
        self.report.state = state;
        if !matches!(state, WakeState::Failed | WakeState::GivenUp) {
            self.report.reason = None;
        }
        let is_due = self.reported_at.is_none_or(|at| at.elapsed() > REPEAT_AFTER);
        if is_due || self.to_office.borrow().as_ref() != Some(&self.report) {
            self.to_office.send_replace(Some(self.report.clone()));
            self.reported_at = Some(Instant::now());
        }
    }

    /// Reports that the session has ended. The handle resolves when that was sent or failed.
    pub fn end(mut self) -> JoinHandle<()> {
        self.update(WakeState::Ended);
        self.sending
    }
}

async fn send(office: Arc<dyn Mailbox>, mut reports: watch::Receiver<Option<WakeReport>>) {
    while reports.changed().await.is_ok() {
        let Some(report) = reports.borrow_and_update().clone() else { continue };
        match office.report_wake(&report).await {
            Ok(()) => {}
            // The office stores no reports.
            Err(error) if error.code() == Code::Unsupported => return,
            Err(error) => tracing::debug!(%error, "cannot report wake-ups to the office"),
        }
    }
}

#[cfg(test)]
mod tests {
    use amb_testing::memory::MemoryOffice;

    use super::*;

    const DOOR: &str = "claude inbox socket";

    fn key() -> SessionKey {
        SessionKey { client: "claude".into(), session: "secret session".into() }
    }

    #[tokio::test]
    async fn only_changes_are_reported() {
        let office = MemoryOffice::new();
        let mailbox: Arc<dyn Mailbox> = Arc::new(office.mailbox("ben".parse().unwrap()));
        let mut reporter = Reporter::start(mailbox, &key(), Some(DOOR));
        let reported = async |reporter: &mut Reporter, state| {
            reporter.update(state);
            // The task that reports runs when this one lets it.
            tokio::task::yield_now().await;
            office.wake_reports()
        };
        assert_eq!(reported(&mut reporter, WakeState::Ready).await.len(), 1);
        assert_eq!(
            reported(&mut reporter, WakeState::Ready).await.len(),
            1,
            "an unchanged state is not reported again"
        );
        reporter.failed(RingErrorKind::Gone);
        let failed = reported(&mut reporter, WakeState::Failed).await.pop().unwrap();
        assert_eq!((failed.state, failed.reason, failed.failed), (WakeState::Failed, Some(WakeReason::ClientGone), 1));
        reporter.rung("codex queue", Some(HELD));
        let held = reported(&mut reporter, WakeState::Held).await.pop().unwrap();
        assert_eq!((held.rung, held.held, held.reason, held.door.as_deref()), (1, 1, None, Some("codex queue")));
        // While the office is busy with one, of many changes the last is reported.
        for state in [WakeState::Rung, WakeState::Heard, WakeState::Unheard] {
            reporter.update(state);
        }
        reporter.end().await.unwrap();
        let all: Vec<_> = office.wake_reports().iter().map(|report| report.state).collect();
        assert_eq!(all, [WakeState::Ready, WakeState::Failed, WakeState::Held, WakeState::Ended]);
        let text = format!("{:?}", office.wake_reports());
        assert!(!text.contains("secret"), "{text}");
    }

    #[tokio::test]
    async fn reporting_ends_where_the_office_stores_no_reports() {
        let home = tempfile::tempdir().unwrap();
        let directory = amb_dir::DirOffice::open(home.path(), amb_dir::DirOptions::default()).unwrap();
        let mailbox: Arc<dyn Mailbox> = Arc::new(directory.mailbox("ben".parse().unwrap()));
        let mut reporter = Reporter::start(mailbox, &key(), Some(DOOR));
        reporter.update(WakeState::Ready);
        reporter.sending.await.unwrap();
    }
}
