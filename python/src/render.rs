//! Text for models.

use amb_core::render::{self, Nonce};
use amb_core::transcript::Line;
use amb_core::{AgentName, Message};
use pyo3::prelude::*;

use crate::document;
use crate::failure;

/// Parses a dict as a message.
pub(crate) fn message(value: &Bound<'_, PyAny>) -> PyResult<Message> {
    document::parse(value, "this is no message")
}

/// A message inside a frame with a fresh nonce.
pub(crate) fn framed(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(render::render_incoming(&message(value)?, true, &Nonce::fresh()))
}

#[pyfunction]
pub(crate) fn render_transcript(py: Python<'_>, lines: &Bound<'_, PyAny>, me: &str) -> PyResult<Option<String>> {
    let lines: Vec<Line> = document::parse(lines, "these are no lines of a transcript")?;
    Ok(render::render_transcript(&lines, &name(py, me)?, &Nonce::fresh()))
}

#[pyfunction]
pub(crate) fn transcript_speakers(py: Python<'_>, lines: &Bound<'_, PyAny>, me: &str) -> PyResult<Vec<String>> {
    let lines: Vec<Line> = document::parse(lines, "these are no lines of a transcript")?;
    let me = name(py, me)?;
    Ok(lines.iter().map(|line| render::transcript_speaker(line, &me).into_owned()).collect())
}

fn name(py: Python<'_>, text: &str) -> PyResult<AgentName> {
    AgentName::parse(text).map_err(|bad| failure::invalid(py, bad.to_string()))
}

#[pyfunction]
pub(crate) fn quoted(py: Python<'_>, name: &str) -> PyResult<String> {
    Ok(self::name(py, name)?.quoted().into_owned())
}

#[pyfunction]
pub(crate) fn text_of(message: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(self::message(message)?.text())
}

#[pyfunction]
pub(crate) fn provokes_answer(message: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(self::message(message)?.provokes_answer())
}
