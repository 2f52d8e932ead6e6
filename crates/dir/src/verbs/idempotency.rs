//! Sends with an idempotency key: a repeat returns the first result and sends nothing, even after a crash.
//!
//! The key is stored, with the timestamp and file name that the message will have, before the message is sent. A repeat
//! that finds no result yet sends under the same name, which can exist only once.

use std::path::PathBuf;

use amb_core::doc::Sent;
use amb_core::{Code, Draft, Kind, OfficeError, TaskId, TaskState, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::files::durable::{self, Wait, nonce};
use crate::files::failure::IoContext;
use crate::files::lock::FileLock;
use crate::files::message_file;
use crate::office::AgentDir;
use crate::registry::presence::{read_json, write_json};
use crate::verbs::deliver::Naming;
use crate::verbs::send::sent;

/// UUID namespace in which keys are hashed into file names; it must never change.
const KEY_SPACE: Uuid = Uuid::from_u128(0x7e19_45b2_c8d0_5a67_93ec_0f41_a6d8_2b35);

/// A stored key.
#[derive(Debug, Serialize, Deserialize)]
struct UsedKey {
    draft: Draft,
    at: Timestamp,
    nonce: u32,
    sent: Option<Sent>,
    /// The result once the message is delivered; `None` for a task, about which the office decides then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    will_answer: Option<Sent>,
}

impl AgentDir {
    pub(crate) fn keys_dir(&self) -> PathBuf {
        self.shared.paths.state(&self.me).join("keys")
    }

    pub(crate) fn send_once(&self, key: &str, draft: Draft) -> Result<Sent, OfficeError> {
        let directory = self.keys_dir();
        let context = "could not keep the idempotency key";
        self.shared.make_state_dir(&self.me)?;
        durable::make_dir(&directory, &self.shared.syncer).context(context)?;
        let hash = Uuid::new_v5(&KEY_SPACE, key.as_bytes());
        let path = directory.join(format!("{}.json", hash.simple()));
        // Sixteen locks, so that sends under different keys rarely wait for each other.
        let _locked =
            FileLock::lock(&directory.join(format!("{:x}.lock", hash.as_bytes()[0] & 0xf))).context(context)?;
        let used = match read_json::<UsedKey>(&path)? {
            Some(used) if used.draft != draft => {
                return Err(OfficeError::new(Code::Conflict, "that idempotency key was used for another message"));
            }
            Some(UsedKey { sent: Some(sent), .. }) => return Ok(sent),
            // A send that was interrupted.
            Some(used) => used,
            None => {
                let (at, nonce) = (self.shared.next_stamp(), nonce() as u32);
                let will_answer = match draft.kind {
                    Kind::Task => None,
                    _ => Some(sent(&self.compose(draft.clone(), at, Naming::Exact(nonce))?.message, None)),
                };
                let used = UsedKey { draft, at, nonce, sent: None, will_answer };
                write_json(&self.shared, &path, &used, Wait::Synced)?;
                used
            }
        };
        let result = match self.already_sent(&used)? {
            Some(sent) => Ok(sent),
            None => self.send_at(used.draft.clone(), used.at, Naming::Exact(used.nonce)),
        };
        match result {
            Ok(sent) => {
                write_json(&self.shared, &path, &UsedKey { sent: Some(sent.clone()), ..used }, Wait::Synced)?;
                Ok(sent)
            }
            Err(error) => {
                if self.already_sent(&used)?.is_none() {
                    // Nothing was accepted: the key is free again.
                    durable::remove(&path).context(context)?;
                }
                Err(error)
            }
        }
    }

    /// Returns the result of a send that was done but never returned.
    fn already_sent(&self, used: &UsedKey) -> Result<Option<Sent>, OfficeError> {
        let layout = self.shared.paths.layout;
        let id = message_file::new_id(layout, used.at, &self.me, used.nonce);
        let name = message_file::exact_name(layout, &id, used.at, &self.me, used.nonce);
        let to = &used.draft.to;
        if used.draft.kind == Kind::Task {
            let task = TaskId::parse(id.as_str())?;
            if self.shared.record(to, &task)?.is_none() && self.shared.locate(to, &name)?.is_none() {
                return Ok(None);
            }
            let record = self.shared.finish_task(to, &task, Some(&name))?;
            return Ok(record.map(|record| record.sent(TaskState::Pending)));
        }
        if let Some(found) = self.shared.load_by_id(to, &name, &id)? {
            return Ok(Some(sent(&found.message, None)));
        }
        // Some programs delete mail that they have read.
        match self.shared.was_delivered(to, &name, &id)? {
            true => Ok(used.will_answer.clone()),
            false => Ok(None),
        }
    }
}
