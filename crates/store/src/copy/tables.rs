//! The tables to copy, and how each column of SQLite becomes one of PostgreSQL.

/// The type of a column, which is copied as JSON.
#[derive(Debug, Clone, Copy)]
enum ColumnType {
    Number,
    Small,
    Text,
    Flag,
    Bytes,
    Id,
    /// Microseconds in SQLite, a timestamp in PostgreSQL.
    Instant,
}

use ColumnType::{Bytes, Flag, Id, Instant, Number, Small, Text};

/// A table to copy.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// The columns by which SQLite reads it page by page; an index begins with them.
    pub(super) key: &'static [&'static str],
    from: &'static str,
    /// The order on both sides (SQLite, PostgreSQL), where it is not the key.
    order: Option<(&'static str, &'static str)>,
    /// The columns that both sides have, each with its type.
    columns: &'static str,
    /// The columns that only PostgreSQL has: name, type, and the expression in SQLite.
    made: &'static [(&'static str, ColumnType, &'static str)],
}

/// Returns a table that is the same on both sides, in the order of its key.
const fn table(name: &'static str, key: &'static [&'static str], columns: &'static str) -> Table {
    Table { name, key, from: name, order: None, columns, made: &[] }
}

/// All tables, referenced ones first.
pub(super) const TABLES: [Table; 20] = [
    table("households", &["id"], "id number, public_id id, created_at instant"),
    table(
        "household_tokens",
        &["id"],
        "id number, public_id id, household_id number, hash text, owner flag, label text, created_at instant,
         revoked_at instant",
    ),
    table(
        "agents",
        &["id"],
        "id number, public_id id, name text, api_key_hash text, api_key_prefix text, previous_key_hash text,
         previous_key_until instant, owner_contact text, description text, capabilities text, allow_from text,
         max_concurrent_tasks number, discoverable flag, created_at instant, deleted_at instant,
         household_id number, household_token_id number, person flag, paused_at instant, paused_by text,
         paused_from number",
    ),
    Table {
        from: "agents",
        order: Some(("id", "agent_id")),
        made: &[
            ("agent_id", Number, "agents.id"),
            (
                "head",
                Number,
                "max(agents.log_floor, coalesce((SELECT max(number) FROM deliveries d WHERE d.agent_id = agents.id), 0), coalesce((SELECT max(number) FROM events e WHERE e.agent_id = agents.id), 0))",
            ),
        ],
        ..table("mailboxes", &["id"], "")
    },
    table("operators", &["agent_id"], "agent_id number, since instant"),
    table("presence", &["agent_id"], "agent_id number, last_seen instant, here flag"),
    table(
        "connections",
        &["id"],
        "id number, public_id id, requester_id number, target_id number, low_id number, high_id number,
         status text, verification_code text, code_private flag, message text, created_at instant,
         updated_at instant, expires_at instant",
    ),
    table("groups", &["id"], "id number, name text, owner_id number, created_at instant"),
    table("group_members", &["group_id", "agent_id"], "group_id number, agent_id number, joined flag"),
    Table {
        made: &[(
            "last_at",
            Instant,
            "(SELECT m.created_at FROM messages m WHERE m.session_id = sessions.id ORDER BY m.id DESC LIMIT 1)",
        )],
        ..table(
            "sessions",
            &["id"],
            "id number, public_id id, subject text, subject_key text, initiator_id number,
             participant_id number, group_id number, low_id number, high_id number, created_at instant,
             ended_at instant, ended_by text",
        )
    },
    table("session_members", &["agent_id", "session_id"], "agent_id number, session_id number, unread number"),
    table(
        "messages",
        &["id"],
        "id number, public_id id, session_id number, sender_id number, created_at instant, priority small, ttl small,
         kind text, trace text, reply_to id, correlation_id text, task text, callback text, content text, parts text,
         metadata text",
    ),
    table(
        "deliveries",
        &["message_id", "agent_id"],
        "message_id number, agent_id number, number number, priority small, delivered_at instant, read_at instant,
         lease_until instant, rung_at instant, from_person flag",
    ),
    table("events", &["agent_id", "number"], "agent_id number, number number, event text, at instant"),
    table(
        "tasks",
        &["id"],
        "id number, public_id id, owner_id number, assignee_id number, state text, subject text,
         message_public_id id, session_public_id id, parent_id number, deadline instant, overdue flag,
         note text, callback text, canceled_by text, reassigned number, created_at instant, updated_at instant",
    ),
    table("transcripts", &["id"], "id number, key text, owner_id number, last_seq number, created_at instant"),
    table("transcript_access", &["transcript_id", "agent_id"], "transcript_id number, agent_id number, may_write flag"),
    table(
        "transcript_lines",
        &["transcript_id", "seq"],
        "transcript_id number, seq number, author_id number, message_id text, line text, created_at instant",
    ),
    table("usage", &["agent_id"], "agent_id number, messages number, bytes number"),
    Table {
        order: Some(("agent_id, key", "agent_id, key COLLATE \"C\"")),
        ..table(
            "idempotency",
            &["agent_id", "key"],
            "agent_id number, key text, draft_hash bytes, answer text, created_at instant",
        )
    },
];

impl Table {
    /// Returns name, type, and expression in SQLite of every column.
    fn columns(&self) -> impl Iterator<Item = (&'static str, ColumnType, &'static str)> {
        let same = self.columns.split(',').filter_map(|column| {
            let (name, form) = column.trim().split_once(' ')?;
            Some((name, TYPES.iter().find(|(word, _)| *word == form)?.1, name))
        });
        same.chain(self.made.iter().copied())
    }

    /// Returns the order on both sides.
    fn order(&self) -> (String, String) {
        match self.order {
            Some((here, there)) => (here.to_owned(), there.to_owned()),
            None => (self.key.join(", "), self.key.join(", ")),
        }
    }

    /// Returns the statement that counts the rows in SQLite.
    pub(super) fn count_source(&self) -> String {
        format!("SELECT count(*) FROM {}", self.from)
    }

    /// Returns the statement that reads the next rows in SQLite: the columns of the key, and the row as JSON. ?1 and so
    /// on are the key of the last row read, if the table was `begun`.
    pub(super) fn read_source(&self, begun: bool, most: usize) -> String {
        let values: Vec<String> = self
            .columns()
            .map(|(name, form, from)| match form {
                Id => format!("'{name}', lower(hex({from}))"),
                Bytes => format!("'{name}', '\\x' || hex({from})"),
                _ => format!("'{name}', {from}"),
            })
            .collect();
        let key = self.key.join(", ");
        let places: Vec<String> = (1..=self.key.len()).map(|n| format!("?{n}")).collect();
        let after = if begun { format!("WHERE ({key}) > ({})", places.join(", ")) } else { String::new() };
        format!(
            "SELECT {key}, json_object({}) FROM {} {after} ORDER BY {key} LIMIT {most}",
            values.join(", "),
            self.from
        )
    }

    /// Returns the statement that reads all rows in SQLite, each as a text that is the same on both sides.
    pub(super) fn check_source(&self) -> String {
        let values = self.columns().map(|(_, form, from)| match form {
            // The hex of NULL is an empty text.
            Id | Bytes => format!("coalesce('=' || nullif(lower(hex({from})), ''), '-')"),
            _ => format!("coalesce('=' || ({from}), '-')"),
        });
        let row = values.collect::<Vec<_>>().join(" || char(31) || ");
        format!("SELECT {row} FROM {} ORDER BY {}", self.from, self.order().0)
    }

    /// Returns the statement that reads all rows in PostgreSQL, each as the same text.
    pub(super) fn check_target(&self) -> String {
        let values = self.columns().map(|(name, form, _)| {
            let text = match form {
                Number | Small => format!("{name}::text"),
                Text => name.to_owned(),
                Flag => format!("{name}::int::text"),
                Instant => format!("((extract(epoch FROM {name}) * 1000000)::bigint)::text"),
                Id => format!("replace({name}::text, '-', '')"),
                Bytes => format!("nullif(encode({name}, 'hex'), '')"),
            };
            format!("coalesce('=' || {text}, '-')")
        });
        let row = values.collect::<Vec<_>>().join(" || chr(31) || ");
        format!("SELECT {row} FROM {} ORDER BY {}", self.name, self.order().1)
    }

    /// Returns the statement that inserts the rows of the JSON array $1.
    pub(super) fn write_target(&self) -> String {
        let names: Vec<&str> = self.columns().map(|(name, ..)| name).collect();
        let types: Vec<String> = self.columns().map(|(name, form, _)| format!("{name} {}", type_of(form))).collect();
        let values: Vec<String> = self
            .columns()
            .map(|(name, form, _)| match form {
                Instant => format!("'epoch'::timestamptz + x.{name} * interval '1 microsecond'"),
                // A missing id is an empty text.
                Id => format!("nullif(x.{name}, '')::uuid"),
                _ => format!("x.{name}"),
            })
            .collect();
        format!(
            "INSERT INTO {} ({}) SELECT {} FROM json_to_recordset($1::text::json) AS x ({})",
            self.name,
            names.join(", "),
            values.join(", "),
            types.join(", ")
        )
    }
}

const TYPES: [(&str, ColumnType); 7] = [
    ("number", Number),
    ("small", Small),
    ("text", Text),
    ("flag", Flag),
    ("bytes", Bytes),
    ("id", Id),
    ("instant", Instant),
];

fn type_of(form: ColumnType) -> &'static str {
    match form {
        Number | Instant => "bigint",
        Small => "smallint",
        Text | Id => "text",
        Flag => "boolean",
        Bytes => "bytea",
    }
}

#[cfg(test)]
mod tests {
    use super::TABLES;

    #[test]
    fn every_column_has_a_type() {
        for table in &TABLES {
            assert_eq!(
                table.columns().count(),
                table.columns.split(',').filter(|one| !one.is_empty()).count() + table.made.len(),
                "{}",
                table.name
            );
        }
    }
}
