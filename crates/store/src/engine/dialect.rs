//! Where the statements of the two databases differ: SQL syntax, and how mail is stored in their tables.
//!
//! SQLite keeps a message in `messages` (its `id` is its place) and one row for each recipient in `deliveries`; what else is in
//! a log is in `events`. PostgreSQL keeps a log in `entries`; a message (its place is `session_id`, `seq`) names the entry that
//! delivers it to its one recipient, and `copies` names those of a group's message.

use std::sync::OnceLock;

/// A statement that runs often: formatted once for each database.
pub(crate) struct SqlOf([OnceLock<String>; 2]);

impl SqlOf {
    pub(crate) const fn new() -> Self {
        Self([OnceLock::new(), OnceLock::new()])
    }

    pub(crate) fn get(&'static self, dialect: &Dialect, make: impl FnOnce(&Dialect) -> String) -> &'static str {
        let [sqlite, postgres] = &self.0;
        if dialect.is_postgres { postgres } else { sqlite }.get_or_init(|| make(dialect))
    }
}

/// What a search looks for: messages that have all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// An agent that may find them.
    pub(crate) reader: Option<i64>,
    pub(crate) from: Option<i64>,
    /// Words and phrases of the text or the subject, and of the subject alone.
    pub(crate) text: &'a [String],
    pub(crate) subject: &'a [String],
}

/// Fragments of statements. `m` is a message, `s` its session, `e` its delivery, `t` (of tasks) a task, `l` a transcript's line.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    is_postgres: bool,
    /// A group's name as in the index on it.
    pub(crate) group_key: &'static str,
    /// Locks the rows of a `SELECT` to the end of the transaction.
    pub(crate) for_update: &'static str,
    /// Locks the rows of a `SELECT` against those that refer to them too.
    pub(crate) for_update_key: &'static str,
    /// Takes shared locks on the rows of a `SELECT` to the end of the transaction.
    pub(crate) for_share: &'static str,
    /// Locks the rows of a `SELECT` that no other transaction has locked, and leaves out the others.
    pub(crate) skip_locked: &'static str,
    /// Removes events other than mail from before `$1`, `$2` at most; the last of these statements counts them.
    pub(crate) prune_events: &'static [&'static str],
    /// The boolean that is true, as partial indexes have it.
    pub(crate) yes: &'static str,
    /// The boolean that is not true.
    pub(crate) no: &'static str,
    /// The id of the task `t` as text.
    pub(crate) task_id: &'static str,
    /// Whether the message of the task `t` was delivered to nobody: the office rejected it.
    pub(crate) undelivered_task: &'static str,
    /// What else an update of a task sets whose message is now the one with the public id `$2`.
    pub(crate) set_task_message: &'static str,
    /// Joins the right side to the left one, in this order: without statistics SQLite may begin with the larger table.
    pub(crate) then_join: &'static str,
    /// The function that finds a text in a text.
    pub(crate) position: &'static str,
    /// `IN` the numbers of this parameter.
    pub(crate) in_list: fn(&str) -> String,
    /// Whether the message of this alias was delivered to nobody.
    pub(crate) undelivered: fn(&str) -> String,
    /// The place of `m` within its session.
    pub(crate) place: &'static str,
    /// An indexed column that rises from message to message of the office.
    pub(crate) arrival: &'static str,
    /// `m` by place, the newest first.
    pub(crate) newest_first: &'static str,
    /// Joins to `m`, of a session between two, its delivery.
    pub(crate) join_delivery: &'static str,
    /// Deliveries of messages to groups, with the id of the message, called `e`.
    pub(crate) group_deliveries: &'static str,
    /// Deliveries with their messages; those that are mail.
    pub(crate) deliveries: &'static str,
    pub(crate) is_mail: &'static str,
    /// The delivery `e` as the verbs of receipts name it, and the column that this is of its table.
    pub(crate) delivery: &'static str,
    pub(crate) delivery_table: &'static str,
    pub(crate) delivery_column: &'static str,
    /// `IN` the ids of this parameter.
    pub(crate) in_ids: fn(&str) -> String,
    /// Messages `m` that may have come to the agent `$1`, and that delivery; `NULL` where it did not.
    pub(crate) came_to: &'static str,
    pub(crate) came_as: &'static str,
    /// Selects each number of the list `$1`, and these columns.
    pub(crate) each_of_list: fn(&str) -> String,
    /// A text as it is in JSON.
    pub(crate) as_json: fn(&str) -> String,
    /// The highest number that was ever given in the log of this agent.
    pub(crate) log_head: fn(&str) -> String,
    /// Entries of the log of the agent `$1` under a condition, in an order.
    pub(crate) log: fn(&str, &str) -> String,
    /// Entries of several logs in the order `place` of the list `$1`, whose items are `[agent, since, until]` as JSON: so many
    /// of each log at most, and so many in all.
    pub(crate) logs: fn(usize, usize) -> String,
    /// What joins the messages of such entries to them, called `n`.
    pub(crate) join_message: &'static str,
    /// Whether `m` came to an agent of the household `$1`.
    pub(crate) came_to_household: &'static str,
    /// What sessions `s` are in order by: `NULL` without messages. The same of a message `m`.
    pub(crate) newest_of_session: &'static str,
    pub(crate) newest_is: &'static str,
    /// How many messages the session `s` has, so many at most.
    pub(crate) messages_of_session: fn(u32) -> String,
    /// The sessions `s` of the list `$2`, in its order `w.place`.
    pub(crate) listed_sessions: &'static str,
    /// What to join to the session `s` for the newest of its messages `m` with this property, so many at most, in any order.
    pub(crate) newest: fn(&str, &str) -> String,
    /// Joins to `m`, of a session between two, its delivery without asking for that session.
    pub(crate) pair_delivery: &'static str,
    /// Joins to `m` of the session `s` its delivery: to the agent `$1` in a group, else to the one it went to.
    pub(crate) own_delivery: &'static str,
    /// Whether `m`, of a group, came to the agent of this parameter.
    pub(crate) came_in_group: fn(&str) -> String,
    /// Whether the sessions of an inbox are read together with their newest messages: in SQLite a statement for each costs less.
    pub(crate) joins_newest: bool,
    /// The parameters `$2`, `$3` and `$4` of a search; and its newest hits, of which `$5` or later and before `$6`, `$7` at most:
    /// messages `m`, in the order of `w.place`.
    pub(crate) words: fn(&Wanted<'_>) -> [String; 3],
    pub(crate) hits: &'static str,
    /// The bytes of the database, unread messages and agents, both counted up to `$1`.
    pub(crate) office_size: &'static str,
    /// The place of the last line of the transcript `t`.
    pub(crate) last_line: &'static str,
    /// The place of the line `l`, and the column that its lines are in order by; those of the transcript `$1` between the
    /// places `$2` and `$3`.
    pub(crate) line_place: &'static str,
    pub(crate) line_order: &'static str,
    pub(crate) lines_between: &'static str,
}

pub(crate) const SQLITE: Dialect = Dialect {
    is_postgres: false,
    group_key: "lower(name)",
    for_update: "",
    for_update_key: "",
    for_share: "",
    skip_locked: "",
    // A number that was given is never given again.
    prune_events: &[
        "UPDATE agents SET log_floor = max(log_floor, n.number)
         FROM (SELECT agent_id, max(number) AS number
               FROM (SELECT agent_id, number FROM events WHERE at < $1 ORDER BY at, id LIMIT $2) GROUP BY agent_id) n
         WHERE agents.id = n.agent_id",
        "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE at < $1 ORDER BY at, id LIMIT $2)",
    ],
    yes: "1",
    no: "0",
    task_id: "hex(t.public_id)",
    undelivered_task: "EXISTS (SELECT 1 FROM messages m WHERE m.id = t.message_id
                               AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = m.id))",
    set_task_message: ", message_id = (SELECT id FROM messages WHERE public_id = $2)",
    then_join: "CROSS JOIN",
    position: "instr",
    in_list: |list| format!("IN (SELECT value FROM json_each({list}))"),
    undelivered: |message| format!("NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = {message}.id)"),
    place: "m.id",
    arrival: "m.id",
    newest_first: "m.id DESC",
    join_delivery: "LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id = s.low_id + s.high_id - m.sender_id",
    group_deliveries: "(SELECT m.public_id AS message, d.* FROM messages m CROSS JOIN deliveries d ON d.message_id = m.id) e",
    deliveries: "deliveries e JOIN messages m ON m.id = e.message_id",
    is_mail: "TRUE",
    delivery: "e.message_id",
    delivery_table: "deliveries",
    delivery_column: "message_id",
    in_ids: |list| format!("IN (SELECT unhex(value) FROM json_each({list}))"),
    came_to: "messages m LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id = $1",
    came_as: "e.message_id",
    each_of_list: |columns| format!("SELECT value, {columns} FROM json_each($1) WHERE TRUE"),
    as_json: |text| format!("json_quote({text})"),
    log_head: |agent| {
        format!(
            "max(coalesce((SELECT max(number) FROM deliveries WHERE agent_id = {agent}), 0),
                 coalesce((SELECT max(number) FROM events WHERE agent_id = {agent}), 0),
                 coalesce((SELECT log_floor FROM agents WHERE id = {agent}), 0))"
        )
    },
    log: |condition, order| {
        format!(
            "SELECT number, message_id, NULL AS event, delivered_at, read_at, rung_at, from_person FROM deliveries
             WHERE agent_id = $1 AND {condition}
             UNION ALL SELECT number, NULL, event, NULL, NULL, NULL, NULL FROM events
             WHERE agent_id = $1 AND {condition} {order}"
        )
    },
    // A table-valued function sees the tables to its left, which a subquery does not.
    logs: |each, most| {
        format!(
            "SELECT w.agent_id, w.place, w.number, e.message_id, v.event, e.delivered_at, e.read_at, e.rung_at, e.from_person
             FROM (SELECT x.id AS agent_id, x.place, c.value AS number
                   FROM (SELECT value ->> 0 AS id, value ->> 1 AS since, value ->> 2 AS until, key AS place
                         FROM json_each($1)) x
                   CROSS JOIN json_each((SELECT json_group_array(number) FROM (
                       SELECT number FROM deliveries WHERE agent_id = x.id AND number > x.since AND number <= x.until
                       UNION ALL SELECT number FROM events WHERE agent_id = x.id AND number > x.since AND number <= x.until
                       ORDER BY number LIMIT {each}))) c
                   ORDER BY x.place, c.value LIMIT {most}) w
             LEFT JOIN deliveries e ON e.agent_id = w.agent_id AND e.number = w.number
             LEFT JOIN events v ON v.agent_id = w.agent_id AND v.number = w.number"
        )
    },
    join_message: "LEFT JOIN messages m ON m.id = n.message_id",
    came_to_household: "EXISTS (SELECT 1 FROM deliveries d JOIN agents h ON h.id = d.agent_id
                                WHERE d.message_id = m.id AND h.household_id = $1)",
    newest_of_session: "(SELECT max(m.id) FROM messages m WHERE m.session_id = s.id)",
    newest_is: "m.id",
    messages_of_session: |most| {
        format!("(SELECT count(*) FROM (SELECT 1 FROM messages c WHERE c.session_id = s.id LIMIT {most}))")
    },
    listed_sessions: "(SELECT value AS id, key AS place FROM json_each($2)) w CROSS JOIN sessions s ON s.id = w.id",
    newest: |seen, limit| {
        format!(
            "messages m ON m.id IN (SELECT m.id FROM messages m WHERE m.session_id = s.id AND {seen}
                                    ORDER BY m.id DESC LIMIT {limit})"
        )
    },
    pair_delivery: "LEFT JOIN deliveries e ON e.message_id = m.id",
    own_delivery: "LEFT JOIN deliveries e ON e.message_id = m.id AND e.agent_id =
                       CASE WHEN s.group_id IS NULL THEN s.low_id + s.high_id - m.sender_id ELSE $1 END",
    came_in_group: |agent| {
        format!("EXISTS (SELECT 1 FROM deliveries d WHERE d.message_id = m.id AND d.agent_id = {agent})")
    },
    joins_newest: false,
    words: |wanted| {
        let agent = |kind: &str, agent: Option<i64>| agent.map(|agent| format!("who : \"{kind}{agent}\""));
        let term = |column: &str, term: &String| format!("{column} : \"{}\"", term.replace('"', " "));
        let who = agent("m", wanted.reader).into_iter().chain(agent("f", wanted.from));
        let text = wanted.text.iter().map(|text| term("{content subject}", text));
        let subject = wanted.subject.iter().map(|text| term("subject", text));
        [who.chain(text).chain(subject).collect::<Vec<_>>().join(" AND "), String::new(), String::new()]
    },
    // A row of the index is microseconds << 12 | a number; times that this cannot hold are cut.
    hits: "(SELECT rowid AS place FROM search.words
            WHERE words MATCH $2 AND rowid >= (min(max($5, 0), 2251799813685247) << 12)
            AND rowid < (min(max($6, 0), 2251799813685247) << 12)
            ORDER BY rowid DESC LIMIT $7) w
           JOIN search.docs o ON o.doc = w.place JOIN messages m ON m.id = o.message_id",
    office_size: "SELECT p.page_count * s.page_size,
        (SELECT count(*) FROM (SELECT 1 FROM deliveries INDEXED BY deliveries_unread WHERE read_at IS NULL LIMIT $1)),
        (SELECT count(*) FROM (SELECT 1 FROM agents INDEXED BY agents_folded_name LIMIT $1))
        FROM pragma_page_count() p, pragma_page_size() s",
    last_line: "(SELECT coalesce(max(l.id) & 4294967295, 0) FROM transcript_lines l
                 WHERE l.id BETWEEN t.id << 32 AND (t.id << 32) + 4294967295)",
    line_place: "(l.id & 4294967295)",
    line_order: "l.id",
    lines_between: "l.id > ($1 << 32) + min($2, 4294967295) AND l.id < ($1 << 32) + min($3, 4294967296)",
};

/// The query for all the phrases in the lines of this parameter.
macro_rules! phrases {
    ($lines:literal) => {
        concat!(
            "(SELECT coalesce(string_agg('(' || phraseto_tsquery('simple', term)::text || ')', ' & ')
                              FILTER (WHERE numnode(phraseto_tsquery('simple', term)) > 0), '')::tsquery
              FROM unnest(string_to_array(",
            $lines,
            ", E'\\n')) AS term)"
        )
    };
}

pub(crate) const POSTGRES: Dialect = Dialect {
    is_postgres: true,
    group_key: r#"lower(name COLLATE "C")"#,
    for_update: " FOR NO KEY UPDATE",
    for_update_key: " FOR UPDATE",
    for_share: " FOR SHARE",
    skip_locked: " FOR UPDATE SKIP LOCKED",
    prune_events: &["DELETE FROM entries WHERE (agent_id, number) IN (
                         SELECT agent_id, number FROM entries WHERE session_id IS NULL AND at < $1 ORDER BY at LIMIT $2
                         FOR UPDATE SKIP LOCKED)"],
    yes: "TRUE",
    no: "FALSE",
    task_id: "t.public_id::text",
    // A scalar subquery: as `EXISTS` it becomes a hash of all messages.
    undelivered_task:
        "coalesce((SELECT m.delivery_number IS NULL FROM messages m WHERE m.public_id = t.message_public_id),
                                FALSE)",
    set_task_message: "",
    then_join: "JOIN",
    position: "strpos",
    in_list: |list| format!("= ANY({list})"),
    undelivered: |message| format!("({message}.recipient_id IS NOT NULL AND {message}.delivery_number IS NULL)"),
    place: "m.seq",
    // Ids rise with time.
    arrival: "m.public_id",
    newest_first: "m.created_at DESC, m.session_id DESC, m.seq DESC",
    join_delivery: "LEFT JOIN entries e ON e.agent_id = m.recipient_id AND e.number = m.delivery_number",
    group_deliveries: "(SELECT c.message_public_id AS message, x.* FROM copies c
                        JOIN entries x ON x.agent_id = c.agent_id AND x.number = c.number) e",
    deliveries: "entries e JOIN messages m ON m.session_id = e.session_id AND m.seq = e.seq",
    is_mail: "e.session_id IS NOT NULL",
    delivery: "e.number",
    delivery_table: "entries",
    delivery_column: "number",
    in_ids: |list| format!("= ANY({list})"),
    came_to: "messages m LEFT JOIN copies c ON m.recipient_id IS NULL AND c.message_public_id = m.public_id
                                            AND c.agent_id = $1",
    came_as: "CASE WHEN m.recipient_id = $1 THEN m.delivery_number ELSE c.number END",
    each_of_list: |columns| format!("SELECT unnest(CAST($1 AS bigint[])), {columns}"),
    as_json: |text| format!("to_json({text})::text"),
    log_head: |agent| format!("coalesce((SELECT head FROM mailboxes WHERE agent_id = {agent}), 0)"),
    log: |condition, order| {
        format!(
            "SELECT number, session_id, seq, event, delivered_at, read_at, rung_at, from_person FROM entries
             WHERE agent_id = $1 AND {condition} {order}"
        )
    },
    logs: |each, most| {
        format!(
            "SELECT w.agent_id, w.place, w.number, e.session_id, e.seq, e.event, e.delivered_at, e.read_at, e.rung_at, e.from_person
             FROM (SELECT x.id AS agent_id, x.place, c.number
                   FROM (SELECT (value ->> 0)::bigint AS id, (value ->> 1)::bigint AS since,
                                (value ->> 2)::bigint AS until, place
                         FROM json_array_elements($1::text::json) WITH ORDINALITY AS v (value, place)) x
                   CROSS JOIN LATERAL (SELECT number FROM entries WHERE agent_id = x.id AND number > x.since
                                       AND number <= x.until ORDER BY number LIMIT {each}) c
                   ORDER BY x.place, c.number LIMIT {most}) w
             JOIN entries e ON e.agent_id = w.agent_id AND e.number = w.number"
        )
    },
    join_message: "LEFT JOIN messages m ON m.session_id = n.session_id AND m.seq = n.seq",
    came_to_household: "(EXISTS (SELECT FROM agents h WHERE h.id = m.recipient_id AND m.delivery_number IS NOT NULL
                                 AND h.household_id = $1)
                         OR (m.recipient_id IS NULL AND EXISTS (
                                 SELECT FROM copies d JOIN agents h ON h.id = d.agent_id
                                 WHERE d.message_public_id = m.public_id AND h.household_id = $1)))",
    newest_of_session: "CASE WHEN s.last_seq > 0 THEN coalesce(s.last_at, s.created_at) END",
    newest_is: "m.created_at",
    messages_of_session: |most| format!("least(s.last_seq, {most})"),
    listed_sessions: "unnest(CAST($2 AS bigint[])) WITH ORDINALITY AS w (id, place) JOIN sessions s ON s.id = w.id",
    newest: |seen, limit| {
        format!(
            "LATERAL (SELECT * FROM messages m WHERE m.session_id = s.id AND {seen} ORDER BY m.seq DESC LIMIT {limit}) m
             ON TRUE"
        )
    },
    pair_delivery: "LEFT JOIN entries e ON e.agent_id = m.recipient_id AND e.number = m.delivery_number",
    own_delivery:
        "LEFT JOIN copies c ON s.group_id IS NOT NULL AND c.message_public_id = m.public_id AND c.agent_id = $1
                   LEFT JOIN entries e ON e.agent_id = coalesce(m.recipient_id, c.agent_id)
                                       AND e.number = coalesce(m.delivery_number, c.number)",
    came_in_group: |agent| {
        format!("(SELECT 1 FROM copies d WHERE d.message_public_id = m.public_id AND d.agent_id = {agent}) IS NOT NULL")
    },
    joins_newest: true,
    // Lines of terms, each a phrase of its words. The names of agents are lexemes as they stand.
    words: |wanted| {
        let agent = |kind: &str, agent: Option<i64>| agent.map(|agent| format!("'@{kind}{agent}'"));
        let who: Vec<String> = agent("m", wanted.reader).into_iter().chain(agent("f", wanted.from)).collect();
        let lines = |terms: &[String]| terms.iter().map(|term| term.replace('\n', " ")).collect::<Vec<_>>().join("\n");
        [who.join(" & "), lines(wanted.text), lines(wanted.subject)]
    },
    hits: concat!(
        "(WITH query AS (SELECT CAST(CAST($2 AS text) AS tsquery) && ",
        phrases!("$3"),
        " AS words, ",
        phrases!("$4"),
        " AS subject)
          SELECT w.session_id, w.seq, w.created_at AS place FROM search_words w
          WHERE w.words @@ (SELECT words FROM query)
          AND (numnode((SELECT subject FROM query)) = 0 OR w.subject @@ (SELECT subject FROM query))
          AND w.created_at >= $5 AND w.created_at < $6
          ORDER BY w.created_at DESC, w.session_id DESC, w.seq DESC LIMIT $7) w
         JOIN messages m ON m.session_id = w.session_id AND m.seq = w.seq"
    ),
    office_size: "SELECT pg_database_size(current_database()),
        (SELECT count(*) FROM (SELECT FROM entries WHERE session_id IS NOT NULL AND read_at IS NULL LIMIT $1) u),
        (SELECT count(*) FROM (SELECT FROM agents LIMIT $1) a)",
    last_line: "t.last_seq",
    line_place: "l.seq",
    line_order: "l.seq",
    lines_between: "l.transcript_id = $1 AND l.seq > $2 AND l.seq < $3",
};
