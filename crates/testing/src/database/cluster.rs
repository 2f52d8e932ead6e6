//! A throwaway PostgreSQL server that all tests of a session share.
//!
//! Test runners start a process for each test, so the server outlives the test that started it. It ends with the
//! session: a watchdog stops it, and removes its files, when the processes that started tests are gone.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

/// The URL of a server on which databases can be created.
pub(super) fn admin_url() -> String {
    match std::env::var("AMB_TEST_POSTGRES") {
        Ok(url) => url,
        Err(_) => shared(),
    }
}

/// The session's server, started if it does not run.
fn shared() -> String {
    let uid = own_uid();
    // One for each checkout, so that two checkouts under test do not share a schema.
    let place = hex::encode(&Sha256::digest(env!("CARGO_MANIFEST_DIR"))[..6]);
    let root = PathBuf::from(format!("/tmp/amb-test-postgres-{uid}-{place}"));
    let lock_path = root.with_extension("lock");
    let lock = fs_err::OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).expect("lock file");
    lock.file().lock().expect("the cluster's lock");
    let users = root.join("users");
    fs_err::create_dir_all(&users).expect("the cluster's directory");
    let session = std::os::unix::process::parent_id();
    fs_err::File::create(users.join(session.to_string())).expect("this session's mark");
    let up = fs_err::read_to_string(root.join("port"))
        .ok()
        .and_then(|port| port.trim().parse().ok())
        .filter(|port: &u16| TcpStream::connect(("127.0.0.1", *port)).is_ok());
    let port = up.unwrap_or_else(|| start(&root, &lock_path, uid));
    format!("postgres://mailbox@127.0.0.1:{port}/postgres")
}

fn start(root: &Path, lock: &Path, uid: u32) -> u16 {
    let port = launch(root, uid, "");
    watch(root, lock, &binaries(), uid);
    let mut file = fs_err::File::create(root.join("port")).expect("the port's file");
    writeln!(file, "{port}").expect("the port");
    port
}

/// A server in a directory of its own, with settings of its own, that ends when this is dropped.
#[derive(Debug)]
pub struct OwnCluster {
    root: tempfile::TempDir,
    uid: u32,
    /// Its port on loopback.
    pub port: u16,
}

impl OwnCluster {
    /// Starts it with TLS, by this certificate and key.
    pub fn with_tls(certificate: &Path, key: &Path) -> Self {
        let uid = own_uid();
        let root = tempfile::tempdir().expect("a directory");
        for (from, name) in [(certificate, "server.pem"), (key, "server.key")] {
            fs_err::copy(from, root.path().join(name)).expect("a certificate");
        }
        // PostgreSQL refuses a key that others can read.
        let place = root.path().display();
        if uid == 0 {
            shell(0, &format!("chown -R postgres {place}"), "chown");
        }
        fs_err::set_permissions(root.path().join("server.key"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("its mode");
        let settings = format!("-c ssl=on -c ssl_cert_file={place}/server.pem -c ssl_key_file={place}/server.key");
        let port = launch(root.path(), uid, &settings);
        Self { root, uid, port }
    }

    /// Starts it with default settings.
    pub fn plain() -> Self {
        let (uid, root) = (own_uid(), tempfile::tempdir().expect("a directory"));
        let port = launch(root.path(), uid, "");
        Self { root, uid, port }
    }

    /// Stops it and starts it again from its own files as if they were a backup: it is then on another timeline, as a
    /// server after a failover.
    pub fn recover(&self) {
        let (bin, data) = (binaries(), self.root.path().join("data"));
        let (bin, data, log) = (bin.display(), data.display(), self.root.path().join("log"));
        // The settings that it was started with are in `postmaster.opts`, which a restart uses.
        let command = format!(
            "touch {data}/recovery.signal && echo \"restore_command = 'false'\" >> {data}/postgresql.conf \
             && {bin}/pg_ctl -D {data} -l {} -m fast -w -t 60 restart",
            log.display()
        );
        shell(self.uid, &command, "a recovery");
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        let data = self.root.path().join("data");
        try_shell(self.uid, &format!("{}/pg_ctl -D {} -m immediate -w stop", binaries().display(), data.display()));
    }
}

fn own_uid() -> u32 {
    fs_err::metadata("/proc/self").expect("/proc").uid()
}

/// Creates and starts a server below a directory. Returns its port.
fn launch(root: &Path, uid: u32, more: &str) -> u16 {
    let bin = binaries();
    let (data, log) = (root.join("data"), root.join("log"));
    let _ = fs_err::remove_dir_all(&data);
    // PostgreSQL refuses to run as root; its own user needs to reach and own the directory.
    if uid == 0 {
        shell(0, &format!("chown postgres {root}", root = root.display()), "chown");
    }
    let options = "--auth=trust --username=mailbox --encoding=UTF8 --locale=C --no-sync";
    shell(uid, &format!("{}/initdb -D {} {options}", bin.display(), data.display()), "initdb");
    for _ in 0..5 {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        // Durability against a crash of the machine is of no use to a test.
        let settings = format!(
            "-p {port} -k {} -c listen_addresses=127.0.0.1 -c fsync=off -c full_page_writes=off -c max_connections=300 \
             -c shared_buffers=64MB -c deadlock_timeout=200ms {more}",
            root.display()
        );
        let command = format!(
            "{}/pg_ctl -D {} -l {} -w -t 60 -o '{settings}' start",
            bin.display(),
            data.display(),
            log.display()
        );
        if try_shell(uid, &command) {
            return port;
        }
    }
    panic!("PostgreSQL does not start: {}", fs_err::read_to_string(&log).unwrap_or_default());
}

/// Stops the server once no process that started tests is left. Checks and stops under the lock, so that a session that
/// begins at that moment either finds the server up and is counted, or starts its own. The lock file stays: a process
/// that waits for it must not hold one that nobody else can see.
fn watch(root: &Path, lock: &Path, bin: &Path, uid: u32) {
    let (root, lock, bin) = (root.display(), lock.display(), bin.display());
    let stop = format!("{bin}/pg_ctl -D {root}/data -m immediate -w stop");
    let stop = if uid == 0 { format!("su postgres -c '{stop}'") } else { stop };
    let script = format!(
        "while :; do
             sleep 1
             exec 9>{lock}; flock 9
             live=
             for user in {root}/users/*; do
                 if kill -0 \"${{user##*/}}\" 2>/dev/null; then live=1; else rm -f \"$user\"; fi
             done
             if [ -z \"$live\" ]; then {stop}; rm -rf {root}; exit; fi
             exec 9>&-
         done"
    );
    // `setsid --fork` returns at once; the watchdog lives on.
    let started = Command::new("setsid")
        .args(["--fork", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the watchdog");
    assert!(started.success(), "the watchdog does not start");
}

/// The newest installation of PostgreSQL.
pub(super) fn binaries() -> PathBuf {
    let mut found: Vec<PathBuf> = fs_err::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect())
        .unwrap_or_default();
    found.retain(|bin| bin.join("initdb").exists());
    found.sort();
    found
        .pop()
        .expect("PostgreSQL is needed for tests: `apt-get install postgresql`, or set AMB_TEST_POSTGRES to a URL")
}

fn shell(uid: u32, command: &str, what: &str) {
    assert!(try_shell(uid, command), "{what} failed: {command}");
}

fn try_shell(uid: u32, command: &str) -> bool {
    let mut shell = if uid == 0 && !command.starts_with("chown") {
        let mut su = Command::new("su");
        su.args(["postgres", "-c", command]);
        su
    } else {
        let mut sh = Command::new("sh");
        sh.args(["-c", command]);
        sh
    };
    // The server must not keep the test's pipes open: a runner waits until they close.
    shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.current_dir("/").status().is_ok_and(|status| status.success())
}
