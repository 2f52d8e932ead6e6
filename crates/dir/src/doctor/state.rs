//! Files of the office's own that do not parse.

use amb_core::OfficeError;
use serde_json::Value;

use super::{Examination, Kind, listed};
use crate::book::LARGEST_NOTE;
use crate::durable;
use crate::office::Desk;
use crate::open;

impl Desk {
    pub(super) fn examine_state(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let state = self.shared.paths.state(&self.me);
        let aside = self.shared.paths.side().join("spoilt");
        for directory in ["", "tasks", "tasks/ended", "given", "given/ended", "keys"] {
            for (name, path) in listed(&state.join(directory))? {
                if !name.ends_with(".json") {
                    continue;
                }
                // One that vanished meanwhile is nobody's trouble.
                let problem = match open::bytes(&path, LARGEST_NOTE) {
                    Ok(bytes) => serde_json::from_slice::<Value>(&bytes).err().map(|error| error.to_string()),
                    Err(error) if open::is_refusal(&error) => Some(error.to_string()),
                    Err(_) => None,
                };
                if let Some(problem) = problem {
                    examination.found(
                        Kind::SpoiltState,
                        &path,
                        format!("a file of the office's own does not parse: {problem}"),
                        format!("moved to {}; it is made again from the mail", aside.display()),
                        || {
                            durable::make_dir(&aside, &self.shared.syncer)?;
                            durable::move_into(&path, &aside, &format!("{}-{name}", self.me), ".json").map(drop)
                        },
                    )?;
                }
            }
        }
        Ok(())
    }
}
