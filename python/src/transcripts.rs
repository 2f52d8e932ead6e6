//! Transcripts of group chats: the class `Transcripts`.

use std::path::PathBuf;

use amb_core::transcript::{Line, TranscriptKey};
use amb_dir::transcript::TranscriptStore;
use amb_dir::transcript::feishu::{FEISHU, FeishuApp, FeishuHistory};
use pyo3::prelude::*;

use crate::{document, failure, mailbox, runtime};

/// Transcripts of group chats in a directory.
#[pyclass(frozen, module = "agent_mailbox._native")]
pub(crate) struct Transcripts {
    root: PathBuf,
    store: TranscriptStore,
}

/// A key as text.
pub(crate) fn key(py: Python<'_>, key: &str) -> PyResult<TranscriptKey> {
    key.parse().map_err(|error: amb_core::OfficeError| failure::raise(py, &error))
}

/// A line from a dict: role, content, sender and, where known, message_id and ts.
pub(crate) fn line(value: &Bound<'_, PyAny>) -> PyResult<Line> {
    document::parse(value, "this is no line of a transcript")
}

#[pymethods]
impl Transcripts {
    #[new]
    fn new(py: Python<'_>, root: &Bound<'_, PyAny>) -> PyResult<Self> {
        let root = mailbox::path(py, root)?;
        let opened = py.detach(|| TranscriptStore::open(&root));
        Ok(Self { store: opened.map_err(|error| failure::raise(py, &error))?, root })
    }

    #[getter]
    fn root(&self) -> PathBuf {
        self.root.clone()
    }

    fn append(&self, py: Python<'_>, key: &str, line: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, line) = (self::key(py, key)?, self::line(line)?);
        runtime::wait(py, self.store.append(&key, line))
    }

    #[pyo3(signature = (key, limit=20))]
    fn recent(&self, py: Python<'_>, key: &str, limit: usize) -> PyResult<Py<PyAny>> {
        let key = self::key(py, key)?;
        runtime::wait_converted(py, self.store.recent(&key, limit))
    }

    #[pyo3(
        signature = (key, limit=20, *, app_id, app_secret, base_url=FEISHU),
        text_signature = "($self, key, limit=20, *, app_id, app_secret, base_url='https://open.feishu.cn')"
    )]
    fn recent_or_feishu(
        &self,
        py: Python<'_>,
        key: &str,
        limit: usize,
        app_id: String,
        app_secret: String,
        base_url: &str,
    ) -> PyResult<Py<PyAny>> {
        let key = self::key(py, key)?;
        let lines = runtime::wait(py, async {
            amb_client::use_ring();
            let feishu = FeishuHistory::new(reqwest::Client::builder(), base_url, FeishuApp { app_id, app_secret })?;
            self.store.recent_or_fallback(&key, limit, &feishu).await
        })?;
        document::to_python(py, &lines)
    }
}
