//! SQL fragments that differ between the two databases. Their tables are the same, except for the search index and the
//! last number of each log.

use std::sync::OnceLock;

/// A statement that runs often, formatted once for each database.
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

/// A search. A hit has to meet all conditions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// An agent that may see the hits.
    pub(crate) reader: Option<i64>,
    pub(crate) from: Option<i64>,
    /// Words and phrases in the text or the subject, and in the subject only.
    pub(crate) text: &'a [String],
    pub(crate) subject: &'a [String],
}

/// Fragments of statements. `m` is a message, `s` its session, `e` its delivery, `t` a task.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    is_postgres: bool,
    /// A group's name as in its index.
    pub(crate) group_key: &'static str,
    /// Locks the rows of a `SELECT` to the end of the transaction.
    pub(crate) for_update: &'static str,
    /// Locks the rows of a `SELECT` also against inserts that refer to them.
    pub(crate) for_update_key: &'static str,
    /// Locks the rows of a `SELECT` in shared mode to the end of the transaction.
    pub(crate) for_share: &'static str,
    /// Locks the rows of a `SELECT`, without those that another transaction has locked.
    pub(crate) skip_locked: &'static str,
    /// The id of the task `t` as text.
    pub(crate) task_id: &'static str,
    /// Joins in this order: without statistics SQLite may begin with the larger table.
    pub(crate) then_join: &'static str,
    /// The function that returns the position of a substring.
    pub(crate) position: &'static str,
    /// Whether a number is in the list of this parameter.
    pub(crate) in_list: fn(&str) -> String,
    /// Whether an id is in the list of this parameter.
    pub(crate) in_ids: fn(&str) -> String,
    /// Selects each number of the list `$1` with these columns.
    pub(crate) each_of_list: fn(&str) -> String,
    /// A text as a JSON string.
    pub(crate) as_json: fn(&str) -> String,
    /// The highest number that was ever assigned in the log of this agent.
    pub(crate) log_head: fn(&str) -> String,
    /// Selects entries of several logs in the order `place` of the JSON list `$1` of `[agent, since, until]`, with a
    /// maximum for each log and for all.
    pub(crate) logs: fn(usize, usize) -> String,
    /// The sort key of sessions `s`, `NULL` without messages; and the same of a message `m`.
    pub(crate) newest_of_session: &'static str,
    pub(crate) newest_is: &'static str,
    /// The sessions `s` of the list `$2`, whose order is `w.place`.
    pub(crate) listed_sessions: &'static str,
    /// Joins to the session `s` the newest of its messages `m` that meet a condition, up to a limit, in any order.
    pub(crate) newest: fn(&str, &str) -> String,
    /// Whether an inbox is read by one statement with the newest messages of all sessions. In SQLite a statement for
    /// each session is faster.
    pub(crate) joins_newest: bool,
    /// The parameters `$2`, `$3` and `$4` of a search; and its newest hits from `$5` to before `$6`, at most `$7`:
    /// messages `m`, ordered by `w.place`.
    pub(crate) words: fn(&Wanted<'_>) -> [String; 3],
    pub(crate) hits: &'static str,
    /// Selects the bytes of the database, and the numbers of unread messages and agents, counted up to `$1`.
    pub(crate) office_size: &'static str,
}

pub(crate) const SQLITE: Dialect = Dialect {
    is_postgres: false,
    group_key: "lower(name)",
    for_update: "",
    for_update_key: "",
    for_share: "",
    skip_locked: "",
    task_id: "hex(t.public_id)",
    then_join: "CROSS JOIN",
    position: "instr",
    in_list: |list| format!("IN (SELECT value FROM json_each({list}))"),
    in_ids: |list| format!("IN (SELECT unhex(value) FROM json_each({list}))"),
    each_of_list: |columns| format!("SELECT value, {columns} FROM json_each($1) WHERE TRUE"),
    as_json: |text| format!("json_quote({text})"),
    log_head: |agent| {
        format!(
            "max(coalesce((SELECT max(number) FROM deliveries WHERE agent_id = {agent}), 0),
                 coalesce((SELECT max(number) FROM events WHERE agent_id = {agent}), 0),
                 coalesce((SELECT log_floor FROM agents WHERE id = {agent}), 0))"
        )
    },
    // A table-valued function can refer to the tables to its left, a subquery cannot.
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
    newest_of_session: "(SELECT max(m.id) FROM messages m WHERE m.session_id = s.id)",
    newest_is: "m.id",
    listed_sessions: "(SELECT value AS id, key AS place FROM json_each($2)) w CROSS JOIN sessions s ON s.id = w.id",
    newest: |seen, limit| {
        format!(
            "messages m ON m.id IN (SELECT m.id FROM messages m WHERE m.session_id = s.id AND {seen}
                                    ORDER BY m.id DESC LIMIT {limit})"
        )
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
    // A row id of the index is microseconds << 12 | a sequence number; times out of its range are clamped.
    hits: "(SELECT rowid AS place FROM search.words
            WHERE words MATCH $2 AND rowid >= (min(max($5, 0), 2251799813685247) << 12)
            AND rowid < (min(max($6, 0), 2251799813685247) << 12)
            ORDER BY rowid DESC LIMIT $7) w
           JOIN search.docs o ON o.doc = w.place JOIN messages m ON m.id = o.message_id",
    office_size: "SELECT p.page_count * s.page_size,
        (SELECT count(*) FROM (SELECT 1 FROM deliveries INDEXED BY deliveries_unread WHERE read_at IS NULL LIMIT $1)),
        (SELECT count(*) FROM (SELECT 1 FROM agents INDEXED BY agents_folded_name LIMIT $1))
        FROM pragma_page_count() p, pragma_page_size() s",
};

/// The tsquery for the phrases in the lines of this parameter.
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
    task_id: "t.public_id::text",
    then_join: "JOIN",
    position: "strpos",
    in_list: |list| format!("= ANY({list})"),
    in_ids: |list| format!("= ANY({list})"),
    each_of_list: |columns| format!("SELECT unnest(CAST($1 AS bigint[])), {columns}"),
    as_json: |text| format!("to_json({text})::text"),
    log_head: |agent| format!("coalesce((SELECT head FROM mailboxes WHERE agent_id = {agent}), 0)"),
    // `number + 0`: for two bounds of one column the planner expects a short range, and would read the log to its end
    // and sort it.
    logs: |each, most| {
        format!(
            "SELECT x.id AS agent_id, x.place, c.*
             FROM (SELECT (value ->> 0)::bigint AS id, (value ->> 1)::bigint AS since, (value ->> 2)::bigint AS until, place
                   FROM json_array_elements($1::text::json) WITH ORDINALITY AS v (value, place)) x
             CROSS JOIN LATERAL (
                 SELECT * FROM (
                     SELECT number, message_id, NULL AS event, delivered_at, read_at, rung_at, from_person FROM deliveries
                     WHERE agent_id = x.id AND number > x.since AND number + 0 <= x.until ORDER BY number LIMIT {each}) d
                 UNION ALL SELECT * FROM (
                     SELECT number, NULL::bigint, event, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::boolean
                     FROM events
                     WHERE agent_id = x.id AND number > x.since AND number + 0 <= x.until ORDER BY number LIMIT {each}) v
                 ORDER BY number LIMIT {each}) c
             ORDER BY x.place, c.number LIMIT {most}"
        )
    },
    newest_of_session: "s.last_at",
    newest_is: "m.created_at",
    listed_sessions: "unnest(CAST($2 AS bigint[])) WITH ORDINALITY AS w (id, place) JOIN sessions s ON s.id = w.id",
    newest: |seen, limit| {
        format!(
            "LATERAL (SELECT * FROM messages m WHERE m.session_id = s.id AND {seen} ORDER BY m.id DESC LIMIT {limit}) m
             ON TRUE"
        )
    },
    joins_newest: true,
    // One term per line, each a phrase. The names of agents are lexemes.
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
          SELECT w.message_id, w.created_at AS place FROM search_words w
          WHERE w.words @@ (SELECT words FROM query)
          AND (numnode((SELECT subject FROM query)) = 0 OR w.subject @@ (SELECT subject FROM query))
          AND w.created_at >= $5 AND w.created_at < $6
          ORDER BY w.created_at DESC, w.message_id DESC LIMIT $7) w
         JOIN messages m ON m.id = w.message_id"
    ),
    office_size: "SELECT pg_database_size(current_database()),
        (SELECT count(*) FROM (SELECT FROM deliveries WHERE read_at IS NULL LIMIT $1) u),
        (SELECT count(*) FROM (SELECT FROM agents LIMIT $1) a)",
};
