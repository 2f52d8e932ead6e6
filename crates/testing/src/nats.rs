//! A nats-server that is stopped when the test ends, however it ends.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use amb_live::NatsOptions;

/// The binary, found or installed by the project's own script.
fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/nats-server");
        let output = Command::new(script).stderr(Stdio::inherit()).output().expect("scripts/nats-server runs");
        assert!(output.status.success(), "scripts/nats-server found no server and could not install one");
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    })
}

/// A nats-server of a test's own.
#[derive(Debug)]
pub struct NatsServer {
    child: Option<Child>,
    port: u16,
    config: PathBuf,
    dir: tempfile::TempDir,
}

impl NatsServer {
    /// Starts a server with JetStream, open to everybody on loopback.
    pub fn start() -> Self {
        Self::with_config("")
    }

    /// Starts a server with additional configuration.
    pub fn with_config(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("nats.conf");
        fs_err::write(&file, config).unwrap();
        let mut server = Self { child: None, port: free_port(), config: file, dir };
        // Another process may take the port between finding and binding it.
        for _ in 0..5 {
            if server.try_up() {
                return server;
            }
            server.port = free_port();
        }
        panic!("nats-server does not start: {}", server.log());
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Options with long timeouts, since the machine may be busy with many tests.
    pub fn options(&self) -> NatsOptions {
        let patient = Duration::from_secs(20);
        NatsOptions { ack_timeout: patient, connect_timeout: patient, ..NatsOptions::new(&self.url()) }
    }

    /// Kills it without a shutdown.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts it again on the same port.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.try_up(), "nats-server does not come back: {}", self.log());
    }

    /// Starts it again with another configuration.
    pub fn restart_with_config(&mut self, config: &str) {
        fs_err::write(&self.config, config).unwrap();
        self.restart();
    }

    /// Whether it accepts connections and sends its greeting.
    fn try_up(&mut self) -> bool {
        let log = fs_err::File::create(self.dir.path().join("log")).unwrap().into_parts().0;
        let child = Command::new(binary())
            .args(["-a", "127.0.0.1", "-js", "-p", &self.port.to_string(), "-sd"])
            .arg(self.dir.path().join("js"))
            .arg("-c")
            .arg(&self.config)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("nats-server starts");
        let child = self.child.insert(child);
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) {
                stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                let mut greeting = String::new();
                if BufReader::new(stream).read_line(&mut greeting).is_ok() && greeting.starts_with("INFO") {
                    return true;
                }
            }
            if child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        false
    }

    fn log(&self) -> String {
        fs_err::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
