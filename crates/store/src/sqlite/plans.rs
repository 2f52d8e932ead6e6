//! Prepares every statement. With `test-support` its query plan is checked: a test that runs a statement which scans
//! all mail or all agents fails.

use rusqlite::{CachedStatement, Connection};

/// Cached statements.
pub(super) trait Prepared {
    /// Returns the statement, prepared now or cached.
    fn prepared(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>>;
}

impl Prepared for Connection {
    fn prepared(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        #[cfg(feature = "test-support")]
        seen::check(self, sql)?;
        self.prepare_cached(sql)
    }
}

#[cfg(feature = "test-support")]
pub(super) mod seen {
    use std::collections::HashSet;
    use std::sync::LazyLock;

    use parking_lot::Mutex;
    use rusqlite::Connection;

    /// Statements that scan whole tables on purpose: once after a start, to find mail to index or unindex.
    const ALLOWED_SCANS: [&str; 2] = ["FROM agents a LEFT JOIN search.cursors", "FROM search.docs d WHERE NOT EXISTS"];

    #[derive(Default)]
    struct SeenPlans {
        statements: HashSet<String>,
        scans: Vec<String>,
    }

    static SEEN: LazyLock<Mutex<SeenPlans>> = LazyLock::new(Mutex::default);

    /// Checks a statement's plan when it is first prepared.
    pub(super) fn check(db: &Connection, sql: &str) -> rusqlite::Result<()> {
        let mut seen = SEEN.lock();
        if !seen.statements.insert(sql.to_owned()) || ALLOWED_SCANS.iter().any(|known| sql.contains(known)) {
            return Ok(());
        }
        let word = sql.split_whitespace().next().unwrap_or_default();
        if !["SELECT", "UPDATE", "DELETE", "INSERT", "WITH"].contains(&word) {
            return Ok(());
        }
        let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
        let mut rows = explain.raw_query();
        while let Some(row) = rows.next()? {
            let step: String = row.get(3)?;
            // Subqueries and constants have few rows; a virtual table has its own index.
            let harmless = [
                "VIRTUAL TABLE",
                "CONSTANT ROW",
                "VALUES CLAUSE",
                "SCAN up",
                "SCAN down",
                "SCAN n",
                "SCAN w",
                "(subquery",
            ];
            if step.starts_with("SCAN") && !harmless.iter().any(|word| step.contains(word)) && !ordered(sql, &step) {
                seen.scans.push(format!("{step}: {sql}"));
            }
        }
        Ok(())
    }

    /// Returns whether this is an ordered index scan that stops at a limit.
    fn ordered(sql: &str, step: &str) -> bool {
        step.contains("USING") && sql.contains("LIMIT")
    }

    /// Returns the statements of this process that scan whole tables.
    pub fn scans() -> Vec<String> {
        SEEN.lock().scans.clone()
    }
}
