//! Opening the database: its pool, its schema, its queue of sends.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, QueueMode, RecyclingMethod, Runtime,
};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config};
use uuid::Uuid;

use super::error::{failed, no_connection, unavailable};
use super::lineage::{self, Takes};
use super::listen::NotificationListener;
use super::replicas;
use super::send_queue::SendQueue;
use super::tls::{self, Tls};
use super::transact::{InUse, PATIENCE};
use crate::StoreError;
use crate::error::{Result, conflict};
use crate::known::KnownKeys;
use crate::quota::Account;
use crate::replicas::Hint;
use crate::unindexed::Unindexed;

mod schema {
    refinery::embed_migrations!("migrations/postgres");
}

/// Connections to the database at most. More than the database has cores for is waste; fewer leaves readers waiting.
const CONNECTIONS: usize = 24;
/// How long a key is cached: a revocation by another process takes effect within this time.
const BELIEVED: Duration = Duration::from_secs(1);
/// Processes that start at once bring the schema up to date one after the other. Any fixed number will do.
const MIGRATION_LOCK: i64 = 0x616d_625f_7374_6f72;

/// After this long all logs are looked at for mail to index: another process may have died before it did.
const ALL_LOGS: Duration = Duration::from_secs(60);
/// Keeps what the setting says where that is durable, and does not change any more when the server's configuration does.
const DURABLE: &str = "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
    WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, FALSE)";

/// Why a server is not used.
const FOLLOWS: &str = "the database follows another or recovers, and takes no writes; name the one that does, or wait";

/// What the office remembers, on PostgreSQL.
#[derive(Debug)]
pub struct PostgresStore {
    pool: Pool,
    pub(super) queue: SendQueue,
    pub(super) known: Arc<KnownKeys>,
    pub(super) account: Arc<Account>,
    pub(super) unindexed: Unindexed,
    /// Tells this process from others on the database.
    pub(super) me: Uuid,
    listener: NotificationListener,
}

impl PostgresStore {
    /// Connects, and brings the schema up to date.
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
            // The connection used last has its statements prepared and its pages cached.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            // A database that is busy, as with many registrations at once, makes its callers wait rather than fail.
            .create_timeout(Some(PATIENCE))
            .wait_timeout(Some(2 * PATIENCE))
            .recycle_timeout(Some(Duration::from_secs(5)))
            .build()
            .map_err(StoreError::internal)?;
        let mut client = pool.get().await.map_err(out_of_reach)?;
        migrate(&mut client).await?;
        is_whole(&client).await?;
        if lineage::check(&mut client).await.map_err(failed)? == Takes::Nothing {
            return Err(StoreError::unavailable(FOLLOWS));
        }
        migrated.store(true, Ordering::Release);
        warn_of_settings(&client).await?;
        drop(client);
        let (me, known, account) = (Uuid::now_v7(), Arc::new(KnownKeys::shared(BELIEVED)), Arc::<Account>::default());
        Ok(Self {
            queue: SendQueue::start(&pool, account.clone()),
            listener: NotificationListener::start(config, tls, me, Arc::clone(&known)),
            pool,
            known,
            account,
            me,
            unindexed: Unindexed::believed_for(ALL_LOGS),
        })
    }

    /// A connection of the pool.
    pub(super) async fn client(&self) -> Result<Object> {
        client(&self.pool).await
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.listener.subscribe()
    }

    pub(super) async fn shut(&self) {
        self.queue.close().await;
        if let Ok(client) = self.client().await {
            // Where this fails, the other processes notice the missing heartbeat.
            let _ = tokio::time::timeout(Duration::from_secs(1), replicas::sign_off(&client, self.me)).await;
        }
        self.listener.stop();
        self.pool.close();
    }
}

/// Makes a new connection ready. What was committed on it is durable when that is answered, whatever the role, the database
/// or the server's configuration say. And it may lead to another server than the one before: one that took over, or is about
/// to. A connection that was made before that has ended would outlast it without having been looked at.
async fn prepare(client: &mut Client, migrated: bool) -> Result<(), HookError> {
    client.execute(DURABLE, &[]).await.map_err(HookError::Backend)?;
    if migrated && lineage::check(client).await.map_err(HookError::Backend)? == Takes::Nothing {
        return Err(HookError::message(FOLLOWS));
    }
    Ok(())
}

/// Says where this server loses what it has committed when its machine fails.
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

/// A connection of this pool.
pub(super) async fn client(pool: &Pool) -> Result<Object> {
    pool.get().await.map_err(no_connection)
}

/// Brings a database to an older version of the schema, for tests of what comes after it.
#[cfg(feature = "test-support")]
pub async fn migrate_to(client: &mut Client, version: i32) -> Result<()> {
    let runner = schema::migrations::runner().set_target(refinery::Target::Version(version));
    runner.run_async(client).await.map(drop).map_err(StoreError::internal)
}

/// What a URL says, and what we say to every server.
fn configure(url: &str, application: &str) -> Result<(Config, Tls)> {
    let (url, tls) = tls::split(url)?;
    let mut config = Config::from_str(&url).map_err(|error| {
        StoreError::invalid("the database URL is not understood; it is postgres://USER:PASSWORD@HOST:PORT/DATABASE")
            .caused_by(error)
    })?;
    config.application_name(application).connect_timeout(Duration::from_secs(5)).tcp_user_timeout(PATIENCE);
    Ok((config, tls))
}

/// A connection of its own, under a name of its own, and the task that drives it until its client is gone.
pub(crate) async fn connect(url: &str, application: &str) -> Result<(Client, JoinHandle<()>)> {
    let (config, tls) = configure(url, application)?;
    let (client, connection) = config.connect(tls).await.map_err(out_of_reach)?;
    // How it ended is known to whoever waited for an answer.
    let driver = tokio::spawn(async { drop(connection.await) });
    client.execute(DURABLE, &[]).await.map_err(failed)?;
    Ok((client, driver))
}

fn out_of_reach(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    let detail = "the database cannot be reached; check its URL and that it is up".to_owned();
    let detail = match error.source() {
        Some(cause) => format!("{detail}: {cause}"),
        None => detail,
    };
    StoreError::unavailable(detail).caused_by(error)
}

/// Refuses a database into which half an office was moved.
async fn is_whole(client: &Client) -> Result<()> {
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

/// Brings the schema up to date.
pub(crate) async fn migrate(client: &mut Client) -> Result<()> {
    client.execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK]).await.map_err(failed)?;
    let done = schema::migrations::runner().run_async(client).await;
    client.execute("SELECT pg_advisory_unlock($1)", &[&MIGRATION_LOCK]).await.map_err(failed)?;
    done.map(drop).map_err(|error| {
        let detail = format!("the database's schema could not be brought up to date: {error}");
        StoreError::unavailable(detail).caused_by(error)
    })
}

/// Whether the database can be reached and accepts writes.
pub(super) async fn ready(store: &PostgresStore) -> Result<()> {
    let look = async {
        let client = InUse::new(store.client().await?);
        let row = client.query_one("SELECT pg_is_in_recovery()", &[]).await;
        client.finished();
        if row.map_err(failed)?.get(0) { Err(unavailable()) } else { Ok(()) }
    };
    tokio::time::timeout(Duration::from_secs(5), look).await.unwrap_or_else(|_| Err(unavailable()))
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
    use crate::unit::new_agent;
    use crate::{AgentVerbs, Store};
    use amb_testing::PostgresDatabase;

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl Visit for &Lines {
        fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
            self.0.lock().push(format!("{value:?}"));
        }
    }

    impl Subscriber for Lines {
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
    async fn settings_that_lose_committed_mail_are_warned_of_at_start() {
        let database = PostgresDatabase::fresh().await;
        let client = database.connection().await;
        let fsync: String = client.query_one("SHOW fsync", &[]).await.unwrap().get(0);
        let lines = Lines::default();
        let logging = tracing::subscriber::set_default(lines.clone());
        let store = PostgresStore::open(&database.url()).await.unwrap();
        drop(logging);
        store.close().await;
        let said = lines.0.lock().join("\n");
        // Tests usually run on a server with fsync off; on another nothing is to be said.
        assert_eq!(said.contains("PostgreSQL runs with fsync = off"), fsync == "off", "{said}");
    }

    #[tokio::test]
    async fn a_look_whether_the_database_is_ready_leaves_no_busy_connection_behind() {
        let database = PostgresDatabase::fresh().await;
        let store = PostgresStore::open(&database.url()).await.unwrap();
        ready(&store).await.unwrap();
        let before = store.pool.status().size;
        assert!(ready(&store).now_or_never().is_none(), "given up while the question is on its way");
        assert_eq!(store.pool.status().size, before - 1, "closed, not given to the next");
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
        // All of them wait: those that have a connection for the names, the others for a connection.
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let all = CONNECTIONS as i64;
        // Inside a transaction the server's activity is seen as it was at its first look.
        let looking = database.connection().await;
        let wait = async {
            while looking.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) < all
                || store.pool.status().waiting < 50 - CONNECTIONS
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.expect("fifty registrations that wait");
        client.batch_execute("COMMIT").await.unwrap();
        for registered in registering {
            registered.await.unwrap().unwrap();
        }
        store.close().await;
    }
}
