//! The latency of a push among thousands of idle sockets.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::http::Http;
use crate::start::memory;

/// Concurrent handshakes.
const TOGETHER: usize = 100;
/// Number of measured sends.
const SAMPLES: usize = 500;
/// Pause between two sends, so that they do not measure each other.
const REST: Duration = Duration::from_millis(4);

/// Opens sockets for the keys in the file, both of each line, and prints the bytes that the server has for each, and
/// the median and the 99th percentile of the time from a send's answer to the push, in milliseconds.
pub(crate) async fn sockets(address: SocketAddr, pid: u32, count: usize, keys: &str) -> Result<(), Box<dyn Error>> {
    let text = fs_err::read_to_string(keys)?;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    // The first socket is the recipient.
    let listeners: Vec<String> = lines
        .iter()
        .map(|line| line[1])
        .chain(lines.iter().map(|line| line[0]))
        .take(count)
        .map(str::to_owned)
        .collect();
    let before = memory(pid)?;
    let (heard, mut hears) = mpsc::channel(1024);
    let mut opening = JoinSet::new();
    let mut idle = Vec::with_capacity(listeners.len());
    for (number, key) in listeners.into_iter().enumerate() {
        if number == 0 {
            let mut socket = open(address, key).await?;
            let heard = heard.clone();
            tokio::spawn(async move {
                while let Some(Ok(said)) = socket.next().await {
                    if let Message::Text(_) = said
                        && heard.send(Instant::now()).await.is_err()
                    {
                        return;
                    }
                }
            });
            continue;
        }
        opening.spawn(open(address, key));
        if opening.len() >= TOGETHER
            && let Some(open) = opening.join_next().await
        {
            idle.push(open??);
        }
    }
    while let Some(open) = opening.join_next().await {
        idle.push(open??);
    }
    // The server's tasks are running a moment after the handshakes.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = memory(pid)?;
    let each = after.saturating_sub(before) * 1024 / (idle.len() as u64 + 1);
    let line = &lines[0];
    let body = format!(r#"{{"to":"{}","subject":"Push","content":"{}"}}"#, line[3], "p".repeat(200));
    let mut http = Http::connect(address).await?;
    let mut times = Vec::with_capacity(SAMPLES);
    while times.len() < SAMPLES {
        let status = http.ask("POST /messages/send", line[0], &body).await?;
        let answered = Instant::now();
        if status != 201 {
            return Err(format!("answered {status}").into());
        }
        let heard = tokio::time::timeout(Duration::from_secs(10), hears.recv()).await?.ok_or("the socket ended")?;
        // A push before the sender read its response counts as 0.
        times.push(heard.saturating_duration_since(answered));
        tokio::time::sleep(REST).await;
    }
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e3;
    println!("{} {each} {:.2} {:.2}", idle.len() + 1, at(50), at(99));
    Ok(())
}

async fn open(address: SocketAddr, key: String) -> Result<WebSocketStream<TcpStream>, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let small = WebSocketConfig::default().read_buffer_size(1024).write_buffer_size(0);
    let url = format!("ws://{address}/ws?api_key={key}");
    let (socket, _) = client_async_with_config(url, stream, Some(small)).await.map_err(|error| error.to_string())?;
    Ok(socket)
}
