//! The native half of the Python package `agent_mailbox`. Its interface is declared in `agent_mailbox/_native.pyi`.

// The code that PyO3's macros generate needs these.
#![allow(unsafe_code, unreachable_pub)]

mod backend;
mod document;
mod draft;
mod failure;
mod log;
mod mailbox;
mod render;
mod runtime;
mod transcripts;
mod wait;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    log::install();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    failure::add_to(module)?;
    module.add_class::<mailbox::Mailbox>()?;
    module.add_class::<transcripts::Transcripts>()?;
    module.add_function(wrap_pyfunction!(render::render_transcript, module)?)?;
    module.add_function(wrap_pyfunction!(render::transcript_speakers, module)?)?;
    module.add_function(wrap_pyfunction!(render::quoted, module)?)?;
    module.add_function(wrap_pyfunction!(render::text_of, module)?)?;
    module.add_function(wrap_pyfunction!(render::provokes_answer, module)?)?;
    Ok(())
}
