//! A minimal HTTP client, to measure the moment of the response.

use std::error::Error;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A keep-alive connection.
pub(crate) struct Http {
    stream: TcpStream,
    address: SocketAddr,
}

impl Http {
    pub(crate) async fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address })
    }

    /// Sends a request, reads the whole response and returns its status.
    pub(crate) async fn ask(&mut self, head: &str, key: &str, body: &str) -> Result<u16, Box<dyn Error>> {
        let request = format!(
            "{head} HTTP/1.1\r\nHost: {}\r\nX-API-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        let mut read = Vec::new();
        let head_end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if self.stream.read_buf(&mut read).await? == 0 {
                return Err("the server closed the connection".into());
            }
        };
        let head = std::str::from_utf8(&read[..head_end])?.to_ascii_lowercase();
        let length: usize = match head.lines().find_map(|line| line.strip_prefix("content-length:")) {
            Some(length) => length.trim().parse()?,
            None => 0,
        };
        while read.len() < head_end + length {
            if self.stream.read_buf(&mut read).await? == 0 {
                return Err("the server closed the connection".into());
            }
        }
        Ok(head.split(' ').nth(1).ok_or("no status")?.parse()?)
    }
}
