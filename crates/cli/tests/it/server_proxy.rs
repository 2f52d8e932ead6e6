//! A way to a database that can be cut, silenced and mended.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How the way is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Connections end, and new ones end at once.
    Cut,
    /// Connections stay, and nothing comes through: a network that drops packets.
    Silent,
}

/// Passes bytes on until it is told not to.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    way: watch::Sender<Way>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let way = watch::Sender::new(Way::Open);
        let ways = way.subscribe();
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(pass(client, target, ways.clone()));
            }
        });
        Self { address, way, task }
    }

    pub(crate) fn cut(&self) {
        self.way.send_replace(Way::Cut);
    }

    pub(crate) fn silence(&self) {
        self.way.send_replace(Way::Silent);
    }

    pub(crate) fn mend(&self) {
        self.way.send_replace(Way::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut client: TcpStream, target: SocketAddr, mut way: watch::Receiver<Way>) {
    // A connection that lived through a silence is not trusted to have lost nothing: it ends with the silence.
    if *way.borrow_and_update() == Way::Open
        && let Ok(mut server) = TcpStream::connect(target).await
    {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
            _ = way.changed() => {}
        }
    }
    if *way.borrow_and_update() == Way::Silent {
        let _ = way.changed().await;
    }
}
