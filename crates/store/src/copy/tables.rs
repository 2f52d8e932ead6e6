//! What is copied, and how each column of SQLite becomes one of PostgreSQL.

/// How a column travels: as JSON, from what SQLite holds to what PostgreSQL does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Number,
    Small,
    Text,
    Flag,
    Bytes,
    Id,
    /// Microseconds there, an instant here.
    Instant,
}

use Form::{Bytes, Flag, Id, Instant, Number, Small, Text};

/// A table: where it is read from, in which order, and its columns with how they are read.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// Columns of SQLite by which it is read page by page; there is an index that begins with them.
    pub(super) key: &'static [&'static str],
    from: &'static str,
    /// One order for both sides, in the words of each.
    order: (&'static str, &'static str),
    /// Name, form, and the expression in SQLite (empty for the column of the same name).
    columns: &'static [(&'static str, Form, &'static str)],
}

/// The place in a composed row number.
macro_rules! place {
    ($row:literal) => {
        concat!("(", $row, " & 4294967295)")
    };
}

/// All tables, those that others refer to first.
pub(super) const TABLES: [Table; 21] = [
    Table {
        name: "households",
        key: &["id"],
        from: "households",
        order: ("id", "id"),
        columns: &[("id", Number, ""), ("public_id", Id, ""), ("created_at", Instant, "")],
    },
    Table {
        name: "household_tokens",
        key: &["id"],
        from: "household_tokens",
        order: ("id", "id"),
        columns: &[
            ("id", Number, ""),
            ("public_id", Id, ""),
            ("household_id", Number, ""),
            ("hash", Text, ""),
            ("owner", Flag, ""),
            ("label", Text, ""),
            ("created_at", Instant, ""),
            ("revoked_at", Instant, ""),
        ],
    },
    Table {
        name: "agents",
        key: &["id"],
        from: "agents",
        order: ("id", "id"),
        columns: &[
            ("id", Number, ""),
            ("public_id", Id, ""),
            ("name", Text, ""),
            ("api_key_hash", Text, ""),
            ("api_key_prefix", Text, ""),
            ("previous_key_hash", Text, ""),
            ("previous_key_until", Instant, ""),
            ("owner_contact", Text, ""),
            ("description", Text, ""),
            ("capabilities", Text, ""),
            ("allow_from", Text, ""),
            ("max_concurrent_tasks", Number, ""),
            ("discoverable", Flag, ""),
            ("created_at", Instant, ""),
            ("deleted_at", Instant, ""),
            ("household_id", Number, ""),
            ("household_token_id", Number, ""),
            ("person", Flag, ""),
            ("paused_at", Instant, ""),
            ("paused_by", Text, ""),
            ("paused_from", Number, ""),
        ],
    },
    Table {
        name: "mailboxes",
        key: &["id"],
        from: "agents",
        order: ("id", "agent_id"),
        columns: &[
            ("agent_id", Number, "agents.id"),
            (
                "head",
                Number,
                "max(agents.log_floor, coalesce((SELECT max(number) FROM deliveries d WHERE d.agent_id = agents.id), 0), coalesce((SELECT max(number) FROM events e WHERE e.agent_id = agents.id), 0))",
            ),
        ],
    },
    Table {
        name: "operators",
        key: &["agent_id"],
        from: "operators",
        order: ("agent_id", "agent_id"),
        columns: &[("agent_id", Number, ""), ("since", Instant, "")],
    },
    Table {
        name: "presence",
        key: &["agent_id"],
        from: "presence",
        order: ("agent_id", "agent_id"),
        columns: &[("agent_id", Number, ""), ("last_seen", Instant, ""), ("here", Flag, "")],
    },
    Table {
        name: "connections",
        key: &["id"],
        from: "connections",
        order: ("id", "id"),
        columns: &[
            ("id", Number, ""),
            ("public_id", Id, ""),
            ("requester_id", Number, ""),
            ("target_id", Number, ""),
            ("low_id", Number, ""),
            ("high_id", Number, ""),
            ("status", Text, ""),
            ("verification_code", Text, ""),
            ("code_private", Flag, ""),
            ("message", Text, ""),
            ("created_at", Instant, ""),
            ("updated_at", Instant, ""),
            ("expires_at", Instant, ""),
        ],
    },
    Table {
        name: "groups",
        key: &["id"],
        from: "groups",
        order: ("id", "id"),
        columns: &[("id", Number, ""), ("name", Text, ""), ("owner_id", Number, ""), ("created_at", Instant, "")],
    },
    Table {
        name: "group_members",
        key: &["group_id", "agent_id"],
        from: "group_members",
        order: ("group_id, agent_id", "group_id, agent_id"),
        columns: &[("group_id", Number, ""), ("agent_id", Number, ""), ("joined", Flag, "")],
    },
    Table {
        name: "sessions",
        key: &["id"],
        from: "sessions",
        order: ("id", "id"),
        columns: &[
            ("id", Number, ""),
            ("public_id", Id, ""),
            ("subject", Text, ""),
            ("subject_key", Text, ""),
            ("initiator_id", Number, ""),
            ("participant_id", Number, ""),
            ("group_id", Number, ""),
            ("low_id", Number, ""),
            ("high_id", Number, ""),
            ("created_at", Instant, ""),
            ("ended_at", Instant, ""),
            ("ended_by", Text, ""),
            ("last_seq", Number, "coalesce((SELECT max(m.id) FROM messages m WHERE m.session_id = sessions.id), 0)"),
        ],
    },
    Table {
        name: "session_members",
        key: &["agent_id", "session_id"],
        from: "session_members",
        order: ("agent_id, session_id", "agent_id, session_id"),
        columns: &[("agent_id", Number, ""), ("session_id", Number, ""), ("unread", Number, "")],
    },
    Table {
        name: "messages",
        key: &["m.id"],
        from: "messages m JOIN sessions s ON s.id = m.session_id",
        order: ("m.session_id, m.id", "session_id, seq"),
        columns: &[
            ("session_id", Number, "m.session_id"),
            ("seq", Number, "m.id"),
            ("public_id", Id, "m.public_id"),
            ("sender_id", Number, ""),
            ("recipient_id", Number, "s.low_id + s.high_id - m.sender_id"),
            (
                "delivery_number",
                Number,
                "(SELECT d.number FROM deliveries d WHERE d.message_id = m.id AND s.group_id IS NULL)",
            ),
            ("created_at", Instant, "m.created_at"),
            ("priority", Small, ""),
            ("ttl", Small, ""),
            ("kind", Text, ""),
            ("trace", Text, ""),
            ("reply_to", Id, ""),
            ("correlation_id", Text, ""),
            ("task", Text, ""),
            ("callback", Text, ""),
            ("content", Text, ""),
            ("parts", Text, ""),
            ("metadata", Text, ""),
        ],
    },
    Table {
        name: "deliveries",
        key: &["message_id", "agent_id"],
        from: "deliveries",
        order: ("agent_id, number", "agent_id, number"),
        columns: &[
            ("agent_id", Number, ""),
            ("number", Number, ""),
            ("session_id", Number, "(SELECT m.session_id FROM messages m WHERE m.id = message_id)"),
            ("seq", Number, "message_id"),
            ("priority", Small, ""),
            ("delivered_at", Instant, ""),
            ("read_at", Instant, ""),
            ("lease_until", Instant, ""),
            ("rung_at", Instant, ""),
        ],
    },
    Table {
        name: "events",
        key: &["id"],
        from: "events",
        order: ("agent_id, number", "agent_id, number"),
        columns: &[("agent_id", Number, ""), ("number", Number, ""), ("event", Text, ""), ("at", Instant, "")],
    },
    Table {
        name: "copies",
        key: &["d.message_id", "d.agent_id"],
        from: "deliveries d JOIN messages m ON m.id = d.message_id
               JOIN sessions s ON s.id = m.session_id AND s.group_id IS NOT NULL",
        order: ("m.public_id, d.agent_id", "message_public_id, agent_id"),
        columns: &[
            ("message_public_id", Id, "m.public_id"),
            ("agent_id", Number, "d.agent_id"),
            ("number", Number, "d.number"),
        ],
    },
    Table {
        name: "tasks",
        key: &["id"],
        from: "tasks",
        order: ("id", "id"),
        columns: &[
            ("id", Number, ""),
            ("public_id", Id, ""),
            ("owner_id", Number, ""),
            ("assignee_id", Number, ""),
            ("state", Text, ""),
            ("subject", Text, ""),
            ("message_public_id", Id, ""),
            ("session_public_id", Id, ""),
            ("parent_id", Number, ""),
            ("deadline", Instant, ""),
            ("overdue", Flag, ""),
            ("note", Text, ""),
            ("callback", Text, ""),
            ("canceled_by", Text, ""),
            ("created_at", Instant, ""),
            ("updated_at", Instant, ""),
        ],
    },
    Table {
        name: "transcripts",
        key: &["id"],
        from: "transcripts",
        order: ("id", "id"),
        columns: &[
            ("id", Number, ""),
            ("key", Text, ""),
            ("owner_id", Number, ""),
            ("created_at", Instant, ""),
            (
                "last_seq",
                Number,
                "coalesce((SELECT max(l.id) & 4294967295 FROM transcript_lines l WHERE l.transcript_id = transcripts.id), 0)",
            ),
        ],
    },
    Table {
        name: "transcript_access",
        key: &["transcript_id", "agent_id"],
        from: "transcript_access",
        order: ("transcript_id, agent_id", "transcript_id, agent_id"),
        columns: &[("transcript_id", Number, ""), ("agent_id", Number, ""), ("may_write", Flag, "")],
    },
    Table {
        name: "transcript_lines",
        key: &["id"],
        from: "transcript_lines",
        order: ("id", "transcript_id, seq"),
        columns: &[
            ("transcript_id", Number, ""),
            ("seq", Number, place!("id")),
            ("author_id", Number, ""),
            ("message_id", Text, ""),
            ("line", Text, ""),
            ("created_at", Instant, ""),
        ],
    },
    Table {
        name: "usage",
        key: &["agent_id"],
        from: "usage",
        order: ("agent_id", "agent_id"),
        columns: &[("agent_id", Number, ""), ("messages", Number, ""), ("bytes", Number, "")],
    },
    Table {
        name: "idempotency",
        key: &["agent_id", "key"],
        from: "idempotency",
        order: ("agent_id, key", "agent_id, key COLLATE \"C\""),
        columns: &[
            ("agent_id", Number, ""),
            ("key", Text, ""),
            ("draft_hash", Bytes, ""),
            ("answer", Text, ""),
            ("created_at", Instant, ""),
        ],
    },
];

impl Table {
    /// The table of PostgreSQL, and which of its rows are these: a log is one table there.
    pub(super) fn target(&self) -> (&'static str, &'static str) {
        match self.name {
            "deliveries" => ("entries", "WHERE event IS NULL"),
            "events" => ("entries", "WHERE event IS NOT NULL"),
            name => (name, ""),
        }
    }

    /// Counts it in SQLite.
    pub(super) fn count_source(&self) -> String {
        format!("SELECT count(*) FROM {}", self.from)
    }

    /// Reads at most so many rows after a place: the columns of the key, and the row as JSON. The key's values of the last
    /// row before are ?1 and so on; without them it begins at the beginning.
    pub(super) fn read_source(&self, begun: bool, most: usize) -> String {
        let values: Vec<String> = self
            .columns
            .iter()
            .map(|(name, form, from)| {
                let from = if from.is_empty() { name } else { from };
                match form {
                    Id => format!("'{name}', lower(hex({from}))"),
                    Bytes => format!("'{name}', '\\x' || hex({from})"),
                    _ => format!("'{name}', {from}"),
                }
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

    /// Every row of SQLite as a text that is the same on both sides.
    pub(super) fn check_source(&self) -> String {
        let values = self.columns.iter().map(|(name, form, from)| {
            let from = if from.is_empty() { name } else { from };
            match form {
                // The hex of nothing is an empty text.
                Id | Bytes => format!("coalesce('=' || nullif(lower(hex({from})), ''), '-')"),
                _ => format!("coalesce('=' || ({from}), '-')"),
            }
        });
        let row = values.collect::<Vec<_>>().join(" || char(31) || ");
        format!("SELECT {row} FROM {} ORDER BY {}", self.from, self.order.0)
    }

    /// Every row of PostgreSQL as the same text.
    pub(super) fn check_target(&self) -> String {
        let values = self.columns.iter().map(|(name, form, _)| {
            let text = match form {
                Number | Small => format!("{name}::text"),
                Text => (*name).to_owned(),
                Flag => format!("{name}::int::text"),
                Instant => format!("((extract(epoch FROM {name}) * 1000000)::bigint)::text"),
                Id => format!("replace({name}::text, '-', '')"),
                Bytes => format!("nullif(encode({name}, 'hex'), '')"),
            };
            format!("coalesce('=' || {text}, '-')")
        });
        let row = values.collect::<Vec<_>>().join(" || chr(31) || ");
        let (table, only) = self.target();
        format!("SELECT {row} FROM {table} {only} ORDER BY {}", self.order.1)
    }

    /// Writes rows that are a JSON array in $1.
    pub(super) fn write_target(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, ..)| *name).collect();
        let types: Vec<String> =
            self.columns.iter().map(|(name, form, _)| format!("{name} {}", type_of(*form))).collect();
        let values: Vec<String> = self
            .columns
            .iter()
            .map(|(name, form, _)| match form {
                Instant => format!("'epoch'::timestamptz + x.{name} * interval '1 microsecond'"),
                // An id that is not there comes as an empty text.
                Id => format!("nullif(x.{name}, '')::uuid"),
                _ => format!("x.{name}"),
            })
            .collect();
        format!(
            "INSERT INTO {} ({}) SELECT {} FROM json_to_recordset($1::text::json) AS x ({})",
            self.target().0,
            names.join(", "),
            values.join(", "),
            types.join(", ")
        )
    }
}

fn type_of(form: Form) -> &'static str {
    match form {
        Number | Instant => "bigint",
        Small => "smallint",
        Text | Id => "text",
        Flag => "boolean",
        Bytes => "bytea",
    }
}
