//! A PostgreSQL database of its own for each test.

use sha2::{Digest, Sha256};
use tokio_postgres::{Client, Config, NoTls};

use super::cluster;
use amb_store::{PostgresStore, Store};

/// An empty database with the schema in it, removed when this is dropped.
#[derive(Debug)]
pub struct PostgresDatabase {
    admin: String,
    name: String,
}

impl PostgresDatabase {
    /// A copy of the template, on the server that `AMB_TEST_POSTGRES` names (its user may create databases), or on a
    /// throwaway one that this session's tests share.
    pub async fn fresh() -> Self {
        let admin = tokio::task::spawn_blocking(cluster::admin_url).await.expect("a PostgreSQL server for tests");
        let name = format!("t{}", uuid::Uuid::now_v7().simple());
        let client = connect(&admin).await;
        let template = template(&client, &admin).await;
        client.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await.expect("a test's database");
        // With this the planner scans a whole table only where no index serves, however small the table.
        client.batch_execute(&format!("ALTER DATABASE {name} SET enable_seqscan = off")).await.expect("a setting");
        Self { admin, name }
    }

    /// Fails where a statement on this database scanned a whole table for want of an index. Call it when the store is
    /// closed: statistics are complete when a connection has ended.
    pub async fn assert_no_full_scan(&self) {
        let client = connect(&self.url()).await;
        // Scanned on purpose: once after a start, to find what search has yet to index, and what all agents have
        // stored.
        let sql = "SELECT relname::text, seq_scan FROM pg_stat_user_tables WHERE seq_scan > 0
                   AND relname NOT IN ('refinery_schema_history', 'mailboxes', 'search_cursors', 'usage')";
        let rows = client.query(sql, &[]).await.expect("statistics");
        let scans: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert!(scans.is_empty(), "tables that were read whole: {scans:?}");
    }

    /// A database with nothing in it.
    pub async fn empty() -> Self {
        let admin = tokio::task::spawn_blocking(cluster::admin_url).await.expect("a PostgreSQL server for tests");
        let name = format!("t{}", uuid::Uuid::now_v7().simple());
        connect(&admin).await.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a test's database");
        Self { admin, name }
    }

    /// Migrates it to an older version of the schema, and returns a connection.
    pub async fn migrate_to(&self, version: i32) -> Client {
        let mut client = connect(&self.url()).await;
        amb_store::test_support::postgres_migrate_to(&mut client, version).await.expect("an older schema");
        client
    }

    /// Runs a statement on it.
    pub async fn run(&self, sql: &str) {
        connect(&self.url()).await.batch_execute(sql).await.expect("a statement of a test");
    }

    /// Blocks inserts into a table while the returned guard lives.
    pub async fn wait_at(&self, table: &str, condition: &str) -> Client {
        let client = connect(&self.url()).await;
        let sql = format!(
            "SELECT pg_advisory_lock(77);
             CREATE OR REPLACE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NEW; END $$;
             CREATE TRIGGER wait BEFORE INSERT ON {table} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION wait()"
        );
        client.batch_execute(&sql).await.expect("a trigger");
        client
    }

    /// Whether a connection to this database waits for a lock.
    pub async fn is_somebody_waiting(&self) -> bool {
        let waiting = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock')";
        connect(&self.admin).await.query_one(waiting, &[&self.name]).await.expect("the server's activity").get(0)
    }

    /// Runs one of PostgreSQL's programs on it, such as `pg_dump`.
    pub async fn tool(&self, program: &str, arguments: &[&str]) {
        let mut command = tokio::process::Command::new(cluster::binaries().join(program));
        let done = command.args(arguments).arg("--dbname").arg(self.url()).output().await.expect("a program");
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Deadlocks that the server found in this database. Call it when the store is closed: statistics are complete when
    /// a connection has ended.
    pub async fn deadlocks(&self) -> i64 {
        let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = $1";
        connect(&self.admin).await.query_one(sql, &[&self.name]).await.expect("statistics").get(0)
    }

    /// A new connection.
    pub async fn connection(&self) -> Client {
        connect(&self.url()).await
    }

    /// Waits until nobody else is connected: the server takes a moment to notice that a connection has ended.
    pub async fn alone(&self) {
        let client = connect(&self.url()).await;
        let others =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        while client.query_one(others, &[]).await.expect("the server's activity").get::<_, i64>(0) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// Its URL, for [`amb_store::open`].
    pub fn url(&self) -> String {
        with_database(&self.admin, &self.name)
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        let (admin, name) = (self.admin.clone(), self.name.clone());
        // A runtime of its own: this may be dropped inside one, which cannot block.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = connect(&admin).await;
                let _ = client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
            });
        });
        let _ = dropped.join();
    }
}

async fn connect(url: &str) -> Client {
    let config: Config = url.parse().expect("a URL of PostgreSQL");
    let (client, connection) = config.connect(NoTls).await.expect("a connection to the test server");
    tokio::spawn(connection);
    client
}

/// The database that others are copies of: created once for each version of the schema.
async fn template(client: &Client, admin: &str) -> String {
    let schema = concat!(
        include_str!("../../../store/migrations/postgres/V1__mail.sql"),
        include_str!("../../../store/migrations/postgres/V2__work.sql"),
        include_str!("../../../store/migrations/postgres/V3__replicas.sql"),
        include_str!("../../../store/migrations/postgres/V4__search_pending.sql"),
        include_str!("../../../store/migrations/postgres/V5__times_and_lineage.sql"),
        include_str!("../../../store/migrations/postgres/V6__consent.sql"),
        include_str!("../../../store/migrations/postgres/V7__usage.sql"),
        include_str!("../../../store/migrations/postgres/V8__search_rejected.sql"),
    );
    let name = format!("amb_template_{}", &hex::encode(Sha256::digest(schema))[..16]);
    // One test creates it while the others wait.
    client.batch_execute("SELECT pg_advisory_lock(7461626)").await.expect("the template's lock");
    let there = client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&name]).await.unwrap();
    if there.is_none() {
        let making = format!("{name}_making");
        client.batch_execute(&format!("DROP DATABASE IF EXISTS {making} WITH (FORCE)")).await.unwrap();
        client.batch_execute(&format!("CREATE DATABASE {making}")).await.unwrap();
        let store = PostgresStore::open(&with_database(admin, &making)).await.expect("the schema");
        store.close().await;
        let rest = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1";
        client.execute(rest, &[&making]).await.unwrap();
        client.batch_execute(&format!("ALTER DATABASE {making} RENAME TO {name}")).await.expect("the template");
    }
    client.batch_execute("SELECT pg_advisory_unlock(7461626)").await.unwrap();
    name
}

/// The URL with another database in it.
fn with_database(url: &str, database: &str) -> String {
    let (base, options) = url.split_once('?').map_or((url, String::new()), |(base, rest)| (base, format!("?{rest}")));
    let base = base.rsplit_once('/').map_or(base, |(base, _)| base);
    format!("{base}/{database}{options}")
}
