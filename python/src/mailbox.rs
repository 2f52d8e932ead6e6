//! One agent's mailbox: the class `Mailbox`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use amb_client::{Client, SecretString, ServerUrl};
use amb_core::mailbox::{ClaimRequest, HistoryPage, SearchQuery, TaskFilter};
use amb_core::{AgentName, Card, MessageId, OfficeError, SessionId, Status, TaskId, TaskState};
use amb_dir::{DirOffice, DirOptions, Layout};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::backend::Backend;
use crate::transcripts::{key, line};
use crate::wait::Waits;
use crate::{document, draft, failure, render, runtime};

/// A wait without a limit; longer than any process lives.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3_600);

/// One agent's mailbox.
#[pyclass(frozen, module = "agent_mailbox._native")]
pub(crate) struct Mailbox {
    backend: Arc<Backend>,
    waits: Arc<Waits>,
    /// Claims of this object that were neither acknowledged nor released; released when it is closed.
    held: Arc<Mutex<Vec<MessageId>>>,
    /// The process that opened it. A forked child has none of its threads and shares its locks.
    process: u32,
}

impl Mailbox {
    fn new(backend: Backend) -> Self {
        Self { backend: Arc::new(backend), waits: Arc::default(), held: Arc::default(), process: std::process::id() }
    }

    fn backend(&self, py: Python<'_>) -> PyResult<&Backend> {
        if self.process != std::process::id() {
            return Err(failure::invalid(py, "this mailbox was opened before a fork; open it anew in this process"));
        }
        match self.waits.is_closed() {
            true => Err(failure::closed(py)),
            false => Ok(&self.backend),
        }
    }

    fn office(&self, py: Python<'_>) -> PyResult<&dyn amb_core::Mailbox> {
        Ok(self.backend(py)?.office())
    }

    fn forget(&self, ids: &[MessageId]) {
        self.held.lock().retain(|held| !ids.contains(held));
    }
}

/// Converts a parse error to an exception.
fn parsed<T, E>(py: Python<'_>, parsed: Result<T, E>) -> PyResult<T>
where
    OfficeError: From<E>,
{
    parsed.map_err(|bad| failure::raise(py, &OfficeError::from(bad)))
}

fn ids_of(py: Python<'_>, ids: &Bound<'_, PyTuple>) -> PyResult<Vec<MessageId>> {
    ids.iter().map(|id| parsed(py, MessageId::parse(&id.extract::<String>()?))).collect()
}

/// A number of seconds as a duration.
fn seconds(py: Python<'_>, what: &str, seconds: f64) -> PyResult<Duration> {
    // Not `min`, which would replace NaN.
    let bounded = if seconds > FOR_EVER.as_secs_f64() { FOR_EVER.as_secs_f64() } else { seconds };
    Duration::try_from_secs_f64(bounded)
        .map_err(|_| failure::invalid(py, format!("{what} is a number of seconds, not {seconds}")))
}

/// A Python path, with a leading `~` expanded.
pub(crate) fn path(py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    py.import("os.path")?.call_method1("expanduser", (path,))?.extract()
}

#[pymethods]
impl Mailbox {
    #[staticmethod]
    #[pyo3(
        signature = (root, agent, *, layout=Some("nanobot"), poll_interval=5.0, transcripts=None, create_recipients=false),
        text_signature = "(root, agent, *, layout='nanobot', poll_interval=5.0, transcripts=None, create_recipients=False)"
    )]
    fn directory(
        py: Python<'_>,
        root: &Bound<'_, PyAny>,
        agent: &str,
        layout: Option<&str>,
        poll_interval: f64,
        transcripts: Option<&Bound<'_, PyAny>>,
        create_recipients: bool,
    ) -> PyResult<Self> {
        let layout = layout.map(str::parse::<Layout>).transpose().map_err(|error| failure::raise(py, &error))?;
        let poll_interval = seconds(py, "poll_interval", poll_interval)?;
        if poll_interval.is_zero() {
            return Err(failure::invalid(py, "poll_interval is more than 0"));
        }
        let transcripts = transcripts.map(|root| path(py, root)).transpose()?;
        let options = DirOptions { layout, poll_interval, transcripts, create_recipients, ..DirOptions::default() };
        let (root, agent) = (path(py, root)?, parsed(py, AgentName::parse(agent))?);
        let office = py.detach(|| DirOffice::open(&root, options)).map_err(|error| failure::raise(py, &error))?;
        Ok(Self::new(Backend::Directory(office.mailbox(agent))))
    }

    #[staticmethod]
    fn server(py: Python<'_>, url: &str, api_key: String) -> PyResult<Self> {
        let server: ServerUrl = url.parse().map_err(|error: OfficeError| failure::raise(py, &error))?;
        let client = runtime::wait(py, Client::open(server, SecretString::from(api_key)))?;
        Ok(Self::new(Backend::Server { client, cursor: Mutex::default() }))
    }

    #[getter]
    fn name(&self) -> String {
        self.backend.office().me().to_string()
    }

    #[getter]
    fn r#where(&self) -> String {
        self.backend.office().describe()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.waits.is_closed()
    }

    fn __repr__(&self) -> String {
        format!("<Mailbox of {} at {}>", self.name(), self.r#where())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.waits.close() || self.process != std::process::id() {
            return Ok(());
        }
        let held = std::mem::take(&mut *self.held.lock());
        if held.is_empty() {
            return Ok(());
        }
        runtime::wait(py, self.backend.office().release(&held))
    }

    fn wake(&self) {
        self.waits.wake();
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    #[pyo3(signature = (card=None))]
    fn register(&self, py: Python<'_>, card: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let card: Card = card.map_or(Ok(Card::default()), |card| document::parse(card, "this is no card"))?;
        runtime::wait_converted(py, self.office(py)?.register(card))
    }

    fn heartbeat(&self, py: Python<'_>) -> PyResult<()> {
        runtime::wait(py, self.office(py)?.heartbeat())
    }

    #[pyo3(signature = (status, current_tasks=None))]
    fn set_status(&self, py: Python<'_>, status: &str, current_tasks: Option<Vec<String>>) -> PyResult<()> {
        let status: Status = parsed(py, status.parse())?;
        let tasks =
            current_tasks.map(|ids| ids.iter().map(|id| parsed(py, TaskId::parse(id))).collect()).transpose()?;
        runtime::wait(py, self.backend(py)?.set_status(status, tasks))
    }

    fn agents(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        runtime::wait_converted(py, self.office(py)?.agents())
    }

    fn agent(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let name = parsed(py, AgentName::parse(name))?;
        runtime::wait_converted(py, self.office(py)?.agent(&name))
    }

    #[pyo3(signature = (target, intro=None))]
    fn connect(&self, py: Python<'_>, target: &str, intro: Option<String>) -> PyResult<Py<PyAny>> {
        let target = parsed(py, AgentName::parse(target))?;
        runtime::wait_converted(py, self.office(py)?.connect(&target, intro))
    }

    fn approve(&self, py: Python<'_>, code: &str) -> PyResult<Py<PyAny>> {
        runtime::wait_converted(py, self.office(py)?.approve(code))
    }

    fn connections(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        runtime::wait_converted(py, self.office(py)?.connections())
    }

    fn send(&self, py: Python<'_>, draft: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let backend = self.backend(py)?;
        let value = document::from_python(draft)?;
        runtime::wait_converted(py, async {
            let (draft, within) = draft::read(backend.office(), value).await?;
            backend.send(draft, within).await
        })
    }

    #[pyo3(signature = (timeout=None, *, urgent_first=false, lease=300.0))]
    fn next(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        urgent_first: bool,
        lease: f64,
    ) -> PyResult<Option<Py<PyAny>>> {
        let backend = self.backend(py)?;
        let wait = timeout.map_or(Ok(FOR_EVER), |timeout| seconds(py, "timeout", timeout))?;
        let request = ClaimRequest { limit: 1, urgent_first, lease: seconds(py, "lease", lease)? };
        let waiting = self.waits.run(|stop| backend.next(request, wait, stop.ended()));
        let claimed = runtime::wait_long(
            py,
            async { waiting.await.unwrap_or_else(|| Ok(Vec::new())) },
            || self.waits.wake(),
            |claimed| {
                let ids: Vec<_> = claimed.into_iter().map(|message| message.id).collect();
                // A claim that cannot be released now ends by itself.
                let _given_back = runtime::wait(py, backend.office().release(&ids));
            },
        )?;
        let Some(message) = claimed.into_iter().next() else { return Ok(None) };
        if self.waits.is_closed() {
            // Claimed while the mailbox was closed: nobody could acknowledge it any more.
            runtime::wait(py, backend.office().release(std::slice::from_ref(&message.id)))?;
            return Ok(None);
        }
        self.held.lock().push(message.id.clone());
        document::to_python(py, &message).map(Some)
    }

    #[pyo3(signature = (*ids))]
    fn ack(&self, py: Python<'_>, ids: &Bound<'_, PyTuple>) -> PyResult<u64> {
        let ids = ids_of(py, ids)?;
        let done = runtime::wait(py, self.office(py)?.ack(&ids))?;
        self.forget(&ids);
        Ok(done)
    }

    #[pyo3(signature = (*ids))]
    fn release(&self, py: Python<'_>, ids: &Bound<'_, PyTuple>) -> PyResult<()> {
        let ids = ids_of(py, ids)?;
        runtime::wait(py, self.office(py)?.release(&ids))?;
        self.forget(&ids);
        Ok(())
    }

    #[pyo3(signature = (*ids, lease=300.0))]
    fn renew(&self, py: Python<'_>, ids: &Bound<'_, PyTuple>, lease: f64) -> PyResult<()> {
        let (ids, lease) = (ids_of(py, ids)?, seconds(py, "lease", lease)?);
        runtime::wait(py, self.office(py)?.renew(&ids, lease))
    }

    fn claimed(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        runtime::wait_converted(py, self.office(py)?.claimed())
    }

    #[pyo3(signature = (unread_only=false))]
    fn inbox(&self, py: Python<'_>, unread_only: bool) -> PyResult<Py<PyAny>> {
        runtime::wait_converted(py, self.office(py)?.inbox(unread_only))
    }

    #[pyo3(signature = (session, limit=20, before=None))]
    fn read(&self, py: Python<'_>, session: &str, limit: u32, before: Option<&str>) -> PyResult<Py<PyAny>> {
        let session = parsed(py, SessionId::parse(session))?;
        let before = before.map(|id| parsed(py, MessageId::parse(id))).transpose()?;
        let page = HistoryPage { before, ..parsed(py, HistoryPage::newest(limit))? };
        runtime::wait_converted(py, self.office(py)?.read(&session, page))
    }

    fn message(&self, py: Python<'_>, id: &str) -> PyResult<Py<PyAny>> {
        let id = parsed(py, MessageId::parse(id))?;
        runtime::wait_converted(py, self.office(py)?.message(&id))
    }

    #[pyo3(signature = (text, limit=None))]
    fn search(&self, py: Python<'_>, text: String, limit: Option<u32>) -> PyResult<Py<PyAny>> {
        let query = SearchQuery { text, limit, ..SearchQuery::default() };
        runtime::wait_converted(py, self.office(py)?.search(query))
    }

    fn task(&self, py: Python<'_>, id: &str) -> PyResult<Py<PyAny>> {
        let id = parsed(py, TaskId::parse(id))?;
        runtime::wait_converted(py, self.office(py)?.task(&id))
    }

    #[pyo3(signature = (*, owned=None, state=None, open=false))]
    fn tasks(&self, py: Python<'_>, owned: Option<bool>, state: Option<&str>, open: bool) -> PyResult<Py<PyAny>> {
        let state = state.map(|state| parsed(py, state.parse::<TaskState>())).transpose()?;
        runtime::wait_converted(py, self.office(py)?.tasks(TaskFilter { owned, state, open }))
    }

    #[pyo3(signature = (id, state, note=None))]
    fn set_task_state(&self, py: Python<'_>, id: &str, state: &str, note: Option<String>) -> PyResult<Py<PyAny>> {
        let (id, state) = (parsed(py, TaskId::parse(id))?, parsed(py, state.parse::<TaskState>())?);
        runtime::wait_converted(py, self.office(py)?.set_task_state(&id, state, note))
    }

    fn transcript_append(&self, py: Python<'_>, key: &str, line: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, line) = (self::key(py, key)?, self::line(line)?);
        runtime::wait(py, self.office(py)?.transcript_append(&key, line))
    }

    #[pyo3(signature = (key, limit=20))]
    fn transcript_recent(&self, py: Python<'_>, key: &str, limit: usize) -> PyResult<Py<PyAny>> {
        let key = self::key(py, key)?;
        runtime::wait_converted(py, self.office(py)?.transcript_recent(&key, limit))
    }

    #[staticmethod]
    fn render(message: &Bound<'_, PyAny>) -> PyResult<String> {
        render::framed(message)
    }

    #[pyo3(signature = (limit=64))]
    fn poll(&self, py: Python<'_>, limit: usize) -> PyResult<Vec<Py<PyAny>>> {
        let backend = self.backend(py)?;
        let mail = runtime::wait(py, async { backend.directory()?.hold(limit).await })?;
        {
            let mut held = self.held.lock();
            held.clear();
            held.extend(mail.iter().map(|held| held.message.id.clone()));
        }
        let filed = |mail: amb_dir::HeldMail| {
            let mut fields = mail.fields;
            fields.insert("filename".into(), mail.file_name.into());
            document::to_python(py, &fields)
        };
        mail.into_iter().map(filed).collect()
    }

    fn mark_processed(&self, py: Python<'_>, filename: &str) -> PyResult<bool> {
        let backend = self.backend(py)?;
        runtime::wait(py, async { backend.directory()?.ack_file(filename).await })
    }
}
