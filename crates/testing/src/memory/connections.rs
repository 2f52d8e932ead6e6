//! Connection requests, approvals and their end, for doors that are tested as if against a server.

use jiff::Timestamp;

use super::MemoryState;
use amb_core::doc::{
    Connected, Connection, ConnectionChange, ConnectionRequested, ConnectionStatus, PendingConnection,
};
use amb_core::error::{Code, OfficeError};
use amb_core::event::Event;
use amb_core::id::ConnectionId;
use amb_core::mailbox::Result;
use amb_core::name::AgentName;

#[derive(Debug)]
pub(super) struct MemoryConnection {
    id: ConnectionId,
    requester: AgentName,
    target: AgentName,
    status: ConnectionStatus,
    code: String,
    intro: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl MemoryConnection {
    fn is_between(&self, a: &AgentName, b: &AgentName) -> bool {
        (self.requester == *a && self.target == *b) || (self.requester == *b && self.target == *a)
    }

    fn seen_by(&self, me: &AgentName) -> Connection {
        let outgoing = self.requester == *me;
        Connection {
            connection_id: self.id.clone(),
            agent_name: if outgoing { self.target.clone() } else { self.requester.clone() },
            status: self.status,
            outgoing,
            message: self.intro.clone(),
            verification_code: (outgoing && self.status == ConnectionStatus::Pending).then(|| self.code.clone()),
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}

impl MemoryState {
    pub(super) fn connected(&self, a: &AgentName, b: &AgentName) -> bool {
        self.connections.iter().any(|link| link.status == ConnectionStatus::Active && link.is_between(a, b))
    }

    /// Whether the two were connected and are no longer.
    pub(super) fn was_disconnected(&self, a: &AgentName, b: &AgentName) -> bool {
        self.connections.iter().any(|link| link.is_between(a, b)) && !self.connected(a, b)
    }

    pub(super) fn pending_for(&self, me: &AgentName) -> Vec<PendingConnection> {
        let waiting = |link: &&MemoryConnection| link.target == *me && link.status == ConnectionStatus::Pending;
        let show = |link: &MemoryConnection| PendingConnection {
            connection_id: link.id.clone(),
            from_agent_name: link.requester.clone(),
            message: link.intro.clone(),
            verification_code: Some(link.code.clone()),
            created_at: link.created_at,
        };
        self.connections.iter().filter(waiting).map(show).collect()
    }

    pub(super) fn links_of(&self, me: &AgentName) -> Vec<Connection> {
        let mine = |link: &&MemoryConnection| link.requester == *me || link.target == *me;
        self.connections.iter().filter(mine).map(|link| link.seen_by(me)).collect()
    }

    pub(super) fn request(
        &mut self,
        me: &AgentName,
        target: &AgentName,
        intro: Option<String>,
        now: Timestamp,
    ) -> Result<ConnectionRequested> {
        if me == target {
            return Err(OfficeError::invalid("an agent cannot connect with itself"));
        }
        self.agent(target)?;
        let open =
            |link: &&MemoryConnection| matches!(link.status, ConnectionStatus::Active | ConnectionStatus::Pending);
        if self.connections.iter().filter(open).any(|link| link.is_between(me, target)) {
            return Err(OfficeError::new(
                Code::Conflict,
                format!("a connection with {target} exists or waits already"),
            ));
        }
        // Unique while the process lives, which is enough for the tests of doors.
        let number = self.connections.len();
        let letter = |n: usize| char::from(b'A' + (n % 26) as u8);
        let code = format!("{}{}-{:03}", letter(number / 26_000), letter(number / 1_000), number % 1_000);
        let id = ConnectionId::fresh(now);
        self.connections.push(MemoryConnection {
            id: id.clone(),
            requester: me.clone(),
            target: target.clone(),
            status: ConnectionStatus::Pending,
            code: code.clone(),
            intro: intro.clone(),
            created_at: now,
            updated_at: now,
        });
        let event = Event::ConnectionRequest {
            connection_id: id.clone(),
            from_agent: me.clone(),
            message: intro,
            verification_code: Some(code.clone()),
        };
        self.log(target, event);
        Ok(ConnectionRequested {
            connection_id: id,
            verification_code: code,
            target_agent_name: target.clone(),
            status: ConnectionStatus::Pending,
        })
    }

    pub(super) fn approve(&mut self, me: &AgentName, code: &str, now: Timestamp) -> Result<Connected> {
        let link = self
            .connections
            .iter_mut()
            .find(|link| link.code == code && link.status == ConnectionStatus::Pending)
            .ok_or_else(|| OfficeError::not_found(format!("no pending request has the code {code:?}")))?;
        if link.target != *me {
            return Err(match link.requester == *me {
                true => OfficeError::new(Code::Forbidden, "this code is of your own request"),
                // To anybody else a pending code looks like any wrong one.
                false => OfficeError::not_found(format!("no pending request has the code {code:?}")),
            });
        }
        link.status = ConnectionStatus::Active;
        link.updated_at = now;
        let (id, requester) = (link.id.clone(), link.requester.clone());
        self.log(&requester, Event::ConnectionApproved { connection_id: id.clone(), connected_agent: me.clone() });
        Ok(Connected { connection_id: id, status: ConnectionStatus::Active, connected_agent_name: requester })
    }

    pub(super) fn change(
        &mut self,
        me: &AgentName,
        peer: &AgentName,
        change: ConnectionChange,
        now: Timestamp,
    ) -> Result<Connection> {
        let (from, to) = match change {
            ConnectionChange::Reject => (ConnectionStatus::Pending, ConnectionStatus::Rejected),
            ConnectionChange::Revoke => (ConnectionStatus::Active, ConnectionStatus::Revoked),
            ConnectionChange::Block => (ConnectionStatus::Active, ConnectionStatus::Blocked),
            ConnectionChange::Unblock => (ConnectionStatus::Blocked, ConnectionStatus::Revoked),
        };
        let link = self
            .connections
            .iter_mut()
            .find(|link| link.is_between(me, peer) && link.status == from)
            .ok_or_else(|| OfficeError::not_found(format!("nothing with {peer} is {}", from.as_str())))?;
        link.status = to;
        link.updated_at = now;
        let seen = link.seen_by(me);
        let event =
            Event::ConnectionChanged { connection_id: seen.connection_id.clone(), agent: me.clone(), status: to };
        if matches!(change, ConnectionChange::Revoke | ConnectionChange::Block) {
            self.end_tasks_between(me, peer, now);
        }
        self.log(peer, event);
        Ok(seen)
    }
}
