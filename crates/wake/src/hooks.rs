//! What a client's hooks know of a session: which mail they have shown, and when its user last spoke.

use std::collections::VecDeque;

use amb_core::Timestamp;
use serde::{Deserialize, Serialize};

/// Ids remembered; the oldest are forgotten first.
const CAPACITY: usize = 256;

/// The memory of `amb hook` for one session, which `amb mcp` of the same session reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HookMemory {
    /// Mail that was shown to the model.
    pub shown: VecDeque<String>,
    /// The last prompt that the user gave.
    pub user_turn_at: Option<Timestamp>,
}

impl HookMemory {
    /// Whether the model was told of this mail.
    pub fn knows(&self, id: &str) -> bool {
        self.shown.iter().any(|known| known == id)
    }

    /// Remembers that the model was told of this mail.
    pub fn remember(&mut self, id: &str) {
        if !self.knows(id) {
            self.shown.push_back(id.to_owned());
        }
        while self.shown.len() > CAPACITY {
            self.shown.pop_front();
        }
    }
}
