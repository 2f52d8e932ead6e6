//! Opening the database: the connection pool, the schema, the send queue.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, QueueMode, RecyclingMethod, Runtime,
};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};
use uuid::Uuid;

use super::error::{failed, no_connection, unavailable};
use super::lineage::{self, ServerRole};
use super::listen::NotificationListener;
use super::send_queue::SendQueue;
use super::tls::{self, Tls};
use super::transact::{InUse, TIMEOUT};
use crate::StoreError;
use crate::error::{Result, conflict};
use crate::index_queue::IndexQueue;
use crate::key_cache::KeyCache;
use crate::quota::Account;

mod schema {
    refinery::embed_migrations!("migrations/postgres");
}

/// Most connections to the database. More than it has cores for is waste; with fewer, reads wait.
const CONNECTIONS: usize = 24;
/// How long a key is cached: a revocation by another process takes effect within this time at the latest.
const KEY_CACHE_TTL: Duration = Duration::from_secs(1);
/// The advisory lock under which one process at a time migrates the schema. Any fixed number will do.
const MIGRATION_LOCK: i64 = 0x616d_625f_7374_6f72;

/// After this long all logs are scanned for mail to index: another process may have died before it indexed its mail.
const RESCAN_INTERVAL: Duration = Duration::from_secs(60);
/// Makes commits on this connection durable whatever the server, database or role is configured to, now or later.
const DURABLE: &str = "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
    WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, FALSE)";

/// The error for a server that accepts no writes.
const STANDBY: &str = "the database follows another or recovers, and takes no writes; name the one that does, or wait";

/// The store on PostgreSQL.
#[derive(Debug)]
pub struct PostgresStore {
    pub(super) pool: Pool,
    pub(super) queue: SendQueue,
    pub(super) key_cache: Arc<KeyCache>,
    pub(super) account: Arc<Account>,
    pub(super) index_queue: IndexQueue,
    /// Identifies this process among those on the database.
    pub(super) me: Uuid,
    pub(super) listener: NotificationListener,
}

impl PostgresStore {
    /// Connects, and migrates the schema.
    pub async fn open(url: &str) -> Result<Self> {
        let (config, tls) = configure(url, "amb")?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), tls.clone(), recycling);
        let migrated = Arc::new(AtomicBool::new(false));
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .post_create(Hook::async_fn({
                let migrated = migrated.clone();
                move |client: &mut ClientWrapper, _| {
                    let migrated = migrated.load(Ordering::Acquire);
                    Box::pin(prepare(client, migrated))
                }
            }))
            // The connection used last has its statements prepared and its catalog cached.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            // While the database is busy, as with many registrations at once, callers wait rather than fail.
            .create_timeout(Some(TIMEOUT))
            .wait_timeout(Some(2 * TIMEOUT))
            .recycle_timeout(Some(Duration::from_secs(5)))
            .build()
            .map_err(StoreError::internal)?;
        let mut client = pool.get().await.map_err(out_of_reach)?;
        migrate(&mut client).await?;
        check_move_finished(&client).await?;
        if lineage::check(&mut client).await.map_err(failed)? == ServerRole::Standby {
            return Err(StoreError::unavailable(STANDBY));
        }
        migrated.store(true, Ordering::Release);
        warn_of_settings(&client).await?;
        drop(client);
        let (me, account) = (Uuid::now_v7(), Arc::<Account>::default());
        let key_cache = Arc::new(KeyCache::with_ttl(KEY_CACHE_TTL));
        Ok(Self {
            queue: SendQueue::start(&pool, account.clone()),
            listener: NotificationListener::start(config, tls, me, key_cache.clone()),
            pool,
            key_cache,
            account,
            me,
            index_queue: IndexQueue::rescanned_every(RESCAN_INTERVAL),
        })
    }

    /// Returns a connection of the pool.
    pub(super) async fn client(&self) -> Result<Object> {
        client(&self.pool).await
    }
}

/// Prepares a new connection: makes its commits durable, and checks the server, which may be another than before, one
/// that was or will be promoted. A connection to a server that is still a standby is refused: it would outlast the
/// promotion unchecked.
async fn prepare(client: &mut Client, migrated: bool) -> Result<(), HookError> {
    client.execute(DURABLE, &[]).await.map_err(HookError::Backend)?;
    if migrated && lineage::check(client).await.map_err(HookError::Backend)? == ServerRole::Standby {
        return Err(HookError::message(STANDBY));
    }
    Ok(())
}

/// Warns of settings with which a failure of the machine loses committed mail.
async fn warn_of_settings(client: &Client) -> Result<()> {
    let select = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'";
    for row in client.query(select, &[]).await.map_err(failed)? {
        let setting: &str = row.get(0);
        tracing::warn!(
            setting,
            "PostgreSQL runs with {setting} = off: mail that was accepted is lost when its machine fails; set it to on"
        );
    }
    Ok(())
}

/// Returns a connection of this pool.
pub(super) async fn client(pool: &Pool) -> Result<Object> {
    pool.get().await.map_err(no_connection)
}

/// Migrates a database to an older version of the schema, for tests of later migrations.
#[cfg(feature = "test-support")]
pub async fn migrate_to(client: &mut Client, version: i32) -> Result<()> {
    let runner = schema::migrations::runner().set_target(refinery::Target::Version(version));
    runner.run_async(client).await.map(drop).map_err(StoreError::internal)
}

/// Returns the connection settings of a URL.
fn configure(url: &str, application: &str) -> Result<(Config, Tls)> {
    let (url, tls) = tls::split(url)?;
    let mut config = Config::from_str(&url).map_err(|error| {
        StoreError::invalid("the database URL is not understood; it is postgres://USER:PASSWORD@HOST:PORT/DATABASE")
            .caused_by(error)
    })?;
    config.application_name(application).connect_timeout(Duration::from_secs(5)).tcp_user_timeout(TIMEOUT);
    Ok((config, tls))
}

/// Opens a connection outside the pool. Returns it with the task that drives it until the client is dropped.
pub(crate) async fn connect(url: &str, application: &str) -> Result<(Client, JoinHandle<()>)> {
    let (config, tls) = configure(url, application)?;
    let (client, connection) = config.connect(tls).await.map_err(out_of_reach)?;
    // The client reports how the connection ended.
    let driver = tokio::spawn(async { drop(connection.await) });
    client.execute(DURABLE, &[]).await.map_err(failed)?;
    Ok((client, driver))
}

fn out_of_reach(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    let detail = "the database cannot be reached; check its URL and that it is up".to_owned();
    // The last cause says what to do; those before it name the layers.
    let detail = match std::iter::successors(error.source(), |cause| cause.source()).last() {
        Some(cause) => format!("{detail}: {cause}"),
        None => detail,
    };
    StoreError::unavailable(detail).caused_by(error)
}

/// Fails where a move into this database is not finished.
async fn check_move_finished(client: &Client) -> Result<()> {
    let noted = client.query_one("SELECT to_regclass('copy_source') IS NOT NULL", &[]).await.map_err(failed)?;
    if !noted.get::<_, bool>(0) {
        return Ok(());
    }
    let half = "SELECT EXISTS (SELECT FROM copy_source WHERE checksum IS NULL)";
    match client.query_one(half, &[]).await.map_err(failed)?.get(0) {
        true => Err(conflict("a move into this database is not finished; run `amb move` again, it goes on")),
        false => Ok(()),
    }
}

/// Migrates the schema.
pub(crate) async fn migrate(client: &mut Client) -> Result<()> {
    client.execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK]).await.map_err(failed)?;
    let done = schema::migrations::runner().run_async(client).await;
    client.execute("SELECT pg_advisory_unlock($1)", &[&MIGRATION_LOCK]).await.map_err(failed)?;
    done.map(drop).map_err(|error| {
        let detail = format!("the database's schema could not be brought up to date: {error}");
        StoreError::unavailable(detail).caused_by(error)
    })
}

/// Fails where the database cannot be reached or accepts no writes.
pub(super) async fn ready(store: &PostgresStore) -> Result<()> {
    let check = async {
        let client = InUse::new(store.client().await?);
        let row = client.query_one("SELECT pg_is_in_recovery()", &[]).await;
        client.finished();
        if row.map_err(failed)?.get(0) { Err(unavailable()) } else { Ok(()) }
    };
    tokio::time::timeout(Duration::from_secs(5), check).await.unwrap_or_else(|_| Err(unavailable()))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use parking_lot::Mutex;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use amb_core::Timestamp;

    use super::*;
    use crate::testing::new_agent;
    use crate::{AgentVerbs, Store};
    use amb_testing::PostgresDatabase;

    /// Collects log lines.
    #[derive(Clone, Default)]
    struct LogLines(Arc<Mutex<Vec<String>>>);

    impl Visit for &LogLines {
        fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
            self.0.lock().push(format!("{value:?}"));
        }
    }

    impl Subscriber for LogLines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::WARN
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut &*self);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[tokio::test]
    async fn opening_warns_of_settings_that_lose_committed_mail() {
        let database = PostgresDatabase::fresh().await;
        let client = database.connection().await;
        let fsync: String = client.query_one("SHOW fsync", &[]).await.unwrap().get(0);
        let lines = LogLines::default();
        let logging = tracing::subscriber::set_default(lines.clone());
        let store = PostgresStore::open(&database.url()).await.unwrap();
        drop(logging);
        store.close().await;
        let logged = lines.0.lock().join("\n");
        // Test servers usually run with fsync off; with it on there is no warning.
        assert_eq!(logged.contains("PostgreSQL runs with fsync = off"), fsync == "off", "{logged}");
    }

    #[tokio::test]
    async fn a_cancelled_readiness_check_closes_its_connection() {
        let database = PostgresDatabase::fresh().await;
        let store = PostgresStore::open(&database.url()).await.unwrap();
        ready(&store).await.unwrap();
        let before = store.pool.status().size;
        assert!(ready(&store).now_or_never().is_none(), "cancelled while the query is running");
        assert_eq!(store.pool.status().size, before - 1, "closed, not returned to the pool");
        ready(&store).await.unwrap();
        store.close().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn fifty_registrations_at_once_wait_for_each_other_and_all_succeed() {
        let database = PostgresDatabase::fresh().await;
        let store = Arc::new(PostgresStore::open(&database.url()).await.unwrap());
        let client = database.connection().await;
        client.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(7461627)").await.unwrap();
        let now = Timestamp::from_second(1_772_000_000).unwrap();
        let registering: Vec<_> = (0..50)
            .map(|n| {
                let store = store.clone();
                tokio::spawn(async move { store.register_agent(new_agent(&format!("agent{n}")), now).await })
            })
            .collect();
        // All of them wait: those that have a connection for the lock, the others for a connection.
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let all = CONNECTIONS as i64;
        // On its own connection: a transaction sees pg_stat_activity as it was when it first read it.
        let observer = database.connection().await;
        let wait = async {
            while observer.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) < all
                || store.pool.status().waiting < 50 - CONNECTIONS
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.expect("fifty registrations wait");
        client.batch_execute("COMMIT").await.unwrap();
        for registered in registering {
            registered.await.unwrap().unwrap();
        }
        store.close().await;
    }
}
