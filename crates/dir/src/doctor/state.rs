//! Files of the office's own that do not parse.

use amb_core::OfficeError;
use serde_json::Value;

use super::{Examination, Kind, files_in};
use crate::durable;
use crate::office::Desk;

impl Desk {
    pub(super) fn examine_state(&self, examination: &mut Examination) -> Result<(), OfficeError> {
        let state = self.shared.paths.state(&self.me);
        let aside = self.shared.paths.side().join("spoilt");
        for directory in ["", "tasks", "tasks/ended", "given", "given/ended", "keys"] {
            for (name, path) in files_in(&state.join(directory))? {
                if !name.ends_with(".json") {
                    continue;
                }
                // One that vanished meanwhile is nobody's trouble.
                let Ok(bytes) = fs_err::read(&path) else { continue };
                if let Err(error) = serde_json::from_slice::<Value>(&bytes) {
                    examination.found(
                        Kind::SpoiltState,
                        &path,
                        format!("a file of the office's own does not parse: {error}"),
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
