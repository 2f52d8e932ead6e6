//! Every statement is prepared here. In tests its query plan is checked: a test that runs a statement which scans all mail or all
//! agents fails.

use rusqlite::{CachedStatement, Connection};

/// Preparing a statement.
pub(super) trait Prepared {
    /// The statement, prepared now or before.
    fn prepared(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>>;
}

impl Prepared for Connection {
    fn prepared(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        #[cfg(feature = "test-support")]
        seen::look(self, sql)?;
        self.prepare_cached(sql)
    }
}

#[cfg(feature = "test-support")]
pub(super) mod seen {
    use std::collections::HashSet;
    use std::sync::LazyLock;

    use parking_lot::Mutex;
    use rusqlite::Connection;

    /// Statements that look at everything, on purpose: once after a start, to find what search has yet to index or
    /// to forget.
    const ON_PURPOSE: [&str; 2] = ["FROM agents a LEFT JOIN search.cursors", "FROM search.docs d WHERE NOT EXISTS"];

    #[derive(Default)]
    struct SeenPlans {
        statements: HashSet<String>,
        scans: Vec<String>,
    }

    static SEEN: LazyLock<Mutex<SeenPlans>> = LazyLock::new(Mutex::default);

    /// Looks at a statement's plan when it is first prepared.
    pub(super) fn look(db: &Connection, sql: &str) -> rusqlite::Result<()> {
        let mut seen = SEEN.lock();
        if !seen.statements.insert(sql.to_owned()) || ON_PURPOSE.iter().any(|known| sql.contains(known)) {
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
            // A subquery's rows are few, and so are constants; a virtual table answers from its own index.
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

    /// A walk along an index that stops at a limit is no look at everything.
    fn ordered(sql: &str, step: &str) -> bool {
        step.contains("USING") && sql.contains("LIMIT")
    }

    /// What looks at whole tables, of all that ran in this process.
    pub fn scans() -> Vec<String> {
        SEEN.lock().scans.clone()
    }
}
