"""Pours a large household into a closed office: fill.py DATABASE-URL MESSAGES."""

import sqlite3
import subprocess
import sys

URL, MESSAGES = sys.argv[1], int(sys.argv[2])
AGENTS, SESSIONS, TASKS = 1_000, 10_000, 20_000

# Written once for both: {uuid}, {at} and {json} differ. Agents 1001… are of the person's household; session n is between two of
# them; message n is in session n mod SESSIONS, so that sessions grow side by side, as they do.
COMMON_STATES = "CASE n % 10 WHEN 0 THEN 'pending' WHEN 1 THEN 'accepted' WHEN 2 THEN 'working' WHEN 3 THEN 'rejected' WHEN 4 THEN 'failed' ELSE 'completed' END"


def sqlite(path: str) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")
    home = db.execute("SELECT household_id FROM agents WHERE person = 1").fetchone()[0]
    now = db.execute("SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)").fetchone()[0]
    series = "WITH RECURSIVE k (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < {})"
    one = f"(1001 + n % {AGENTS})"
    # Another agent, the same for every message of a session.
    other = f"(1001 + (n + 1 + (n / {AGENTS}) * 7 % ({AGENTS} - 1)) % {AGENTS})"
    db.executescript(f"""
        BEGIN;
        INSERT INTO agents (id, public_id, name, api_key_hash, api_key_prefix, description, capabilities, allow_from,
                            max_concurrent_tasks, created_at, household_id)
        {series.format(AGENTS)} SELECT 1000 + n, randomblob(16), 'agent-' || n, NULL, 'amb_0000', 'Agent number ' || n, '[]', '["*"]',
                            5, {now} - 86400000000, {home} FROM k;
        INSERT INTO presence (agent_id, last_seen, here)
        {series.format(AGENTS)} SELECT 1000 + n, {now} - (n % 60) * 1000000, 1 FROM k;
        INSERT INTO sessions (id, public_id, subject, subject_key, initiator_id, participant_id, low_id, high_id, created_at)
        {series.format(SESSIONS)} SELECT n, randomblob(16), 'Subject number ' || n, 'subject number ' || n, {one}, {other},
                            min({one}, {other}), max({one}, {other}), {now} - 86400000000 FROM k;
        INSERT INTO session_members (agent_id, session_id, unread)
        {series.format(SESSIONS)} SELECT {one}, n, n % 3 FROM k;
        INSERT INTO session_members (agent_id, session_id, unread)
        {series.format(SESSIONS)} SELECT {other}, n, 0 FROM k;
        INSERT INTO messages (id, public_id, session_id, sender_id, created_at, priority, ttl, content)
        {series.format(MESSAGES)} SELECT 1000000 + n, randomblob(16), s.id, iif(n / {SESSIONS} % 2, s.initiator_id, s.participant_id),
                            {now} - ({MESSAGES} - n) * 50000, 1, 2, 'This is message number ' || n || ' of many, with some words to read in it.'
        FROM k JOIN sessions s ON s.id = 1 + n % {SESSIONS};
        INSERT INTO deliveries (message_id, agent_id, number, priority, delivered_at, read_at)
        SELECT m.id, s.low_id + s.high_id - m.sender_id, m.id, 1, m.created_at, iif(m.id > 1000000 + {MESSAGES} - 5000, NULL, m.created_at)
        FROM messages m JOIN sessions s ON s.id = m.session_id WHERE m.id > 1000000;
        INSERT INTO tasks (id, public_id, owner_id, assignee_id, state, subject, message_public_id, session_public_id,
                           parent_id, deadline, overdue, created_at, updated_at)
        {series.format(TASKS)} SELECT n, randomblob(16), {one}, {other}, {COMMON_STATES}, 'Task number ' || n, m.public_id, s.public_id,
                           iif(n % 4 = 0 AND n > 1, n - 1, NULL), {now} + 3600000000, n % 50 = 0, {now} - n * 1000000, {now} - n * 1000000
        FROM k JOIN messages m ON m.id = 1000000 + n JOIN sessions s ON s.id = m.session_id;
        COMMIT;
        ANALYZE;
    """)
    db.close()
    # Nothing is left to index: what is measured are pages, not the indexing of a million messages.
    search = sqlite3.connect(f"{path}-search")
    search.execute(f"ATTACH DATABASE '{path}' AS mail")
    search.execute("INSERT OR REPLACE INTO cursors SELECT agent_id, max(number) FROM mail.deliveries GROUP BY agent_id")
    search.commit()


def postgres(url: str) -> None:
    one = f"(1001 + n % {AGENTS})"
    other = f"(1001 + (n + 1 + (n / {AGENTS}) * 7 % ({AGENTS} - 1)) % {AGENTS})"
    series = lambda most: f"FROM generate_series(1, {most}) AS k (n)"
    script = f"""
        SET synchronous_commit = off;
        INSERT INTO agents (id, public_id, name, api_key_prefix, description, capabilities, allow_from, max_concurrent_tasks,
                            created_at, household_id)
        SELECT 1000 + n, gen_random_uuid(), 'agent-' || n, 'amb_0000', 'Agent number ' || n, '[]', '["*"]', 5, now() - interval '1 day',
               (SELECT household_id FROM agents WHERE person) {series(AGENTS)};
        INSERT INTO mailboxes (agent_id, head) SELECT 1000 + n, 2000000 {series(AGENTS)};
        INSERT INTO presence (agent_id, last_seen) SELECT 1000 + n, now() {series(AGENTS)};
        INSERT INTO sessions (id, public_id, subject, subject_key, initiator_id, participant_id, low_id, high_id, created_at, last_at)
        SELECT n, gen_random_uuid(), 'Subject number ' || n, 'subject number ' || n, {one}, {other}, least({one}, {other}),
               greatest({one}, {other}), now() - interval '1 day', now() - n * interval '1 second' {series(SESSIONS)};
        INSERT INTO session_members (agent_id, session_id, unread) SELECT {one}, n, n % 3 {series(SESSIONS)};
        INSERT INTO session_members (agent_id, session_id, unread) SELECT {other}, n, 0 {series(SESSIONS)};
        INSERT INTO messages (public_id, session_id, sender_id, created_at, priority, ttl, content)
        SELECT gen_random_uuid(), s.id, CASE WHEN n / {SESSIONS} % 2 = 1 THEN s.initiator_id ELSE s.participant_id END,
               now() - ({MESSAGES} - n) * interval '50 milliseconds', 1, 2,
               'This is message number ' || n || ' of many, with some words to read in it.'
        {series(MESSAGES)} JOIN sessions s ON s.id = 1 + n % {SESSIONS} ORDER BY n;
        INSERT INTO deliveries (message_id, agent_id, number, priority, delivered_at, read_at)
        SELECT m.id, s.low_id + s.high_id - m.sender_id, m.id, 1, m.created_at,
               CASE WHEN m.id > {MESSAGES} - 5000 THEN NULL ELSE m.created_at END
        FROM messages m JOIN sessions s ON s.id = m.session_id;
        INSERT INTO search_cursors (agent_id, number) SELECT 1000 + n, 2000000 {series(AGENTS)};
        INSERT INTO tasks (id, public_id, owner_id, assignee_id, state, subject, message_public_id, session_public_id, parent_id, deadline,
                           overdue, created_at, updated_at)
        SELECT n, gen_random_uuid(), {one}, {other}, {COMMON_STATES}, 'Task number ' || n, m.public_id, s.public_id,
               CASE WHEN n % 4 = 0 AND n > 1 THEN n - 1 END, now() + interval '1 hour', n % 50 = 0, now() - n * interval '1 second', now() - n * interval '1 second'
        {series(TASKS)} JOIN messages m ON m.id = n JOIN sessions s ON s.id = m.session_id;
        ANALYZE;
    """
    subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", url], input=script, text=True, check=True)


if URL.startswith("sqlite:"):
    sqlite(URL.removeprefix("sqlite:"))
else:
    postgres(URL)
