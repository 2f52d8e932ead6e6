//! What a client's hooks record about a session: which messages they have shown, and when the user last gave a prompt.

use std::collections::VecDeque;

use amb_core::Timestamp;
use serde::{Deserialize, Serialize};

/// Ids remembered; the oldest are forgotten first.
const CAPACITY: usize = 256;

/// The state of `amb hook` for one session, which `amb mcp` of the same session reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HookMemory {
    /// Messages that were shown to the model.
    pub shown: VecDeque<String>,
    /// When the user last gave a prompt.
    pub user_turn_at: Option<Timestamp>,
}

impl HookMemory {
    /// Whether this message was shown to the model.
    pub fn knows(&self, id: &str) -> bool {
        self.shown.iter().any(|known| known == id)
    }

    /// Records that this message was shown to the model.
    pub fn remember(&mut self, id: &str) {
        if !self.knows(id) {
            self.shown.push_back(id.to_owned());
        }
        while self.shown.len() > CAPACITY {
            self.shown.pop_front();
        }
    }
}
