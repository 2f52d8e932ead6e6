//! Making mail findable behind the path of sends.

use amb_core::Code;

use super::transact::{InUse, PATIENCE, transact};
use super::{PostgresStore, search};
use crate::error::Result;
use crate::types::AgentKey;
use crate::unindexed::{Indexed, OneByOne};

impl PostgresStore {
    /// Makes the next of these agents' logs findable.
    async fn index(&self, agents: &[AgentKey]) -> Result<Indexed> {
        Ok(transact!(self, tx => search::index(&tx, agents))?)
    }

    /// Every agent with something that is not indexed.
    async fn behind(&self) -> Result<Vec<AgentKey>> {
        let client = InUse::new(self.client().await?);
        let Ok(behind) = tokio::time::timeout(PATIENCE, search::behind(&*client)).await else {
            return Err(super::error::unavailable());
        };
        client.finished();
        Ok(behind?)
    }

    /// Makes the next of the logs that wait findable. Returns how many entries were looked at; 0 when done.
    pub(super) async fn index_next(&self) -> Result<u64> {
        loop {
            let agents = match self.unindexed.take(search::AGENTS) {
                Ok(agents) if agents.is_empty() => return Ok(0),
                Ok(agents) => agents,
                Err(()) => {
                    self.unindexed.complete(self.behind().await?);
                    continue;
                }
            };
            let indexed = match self.index(&agents).await {
                // One of them may be at fault.
                Err(error) if error.code() == Code::Internal && agents.len() > 1 => {
                    let mut each = OneByOne::default();
                    for agent in agents {
                        each.add(agent, self.index(&[agent]).await);
                    }
                    self.unindexed.settle(each)?
                }
                indexed => self.unindexed.settle_all(agents, indexed)?,
            };
            if indexed.entries > 0 || !indexed.again.is_empty() {
                return Ok(indexed.entries.max(1));
            }
        }
    }
}
