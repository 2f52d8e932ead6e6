//! Closes connections whose client does not read for too long, or reads too slowly, and frees the answers kept for them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The slowest that a client may take what it is sent, in bytes a second. The largest page takes about four minutes.
const MIN_RATE: f64 = 16.0 * 1024.0;

/// A stream on which what waits to be written goes out at [`MIN_RATE`] at least, measured over each `limit`.
pub(crate) struct WriteTimeout<S, G> {
    stream: S,
    limit: Duration,
    /// Set while a write waits; `None` while the client keeps up.
    behind: Option<SlowWrite>,
    /// Dropped with the stream, which lives as long as the connection does, whether it speaks HTTP or WebSocket.
    _guard: G,
}

/// What a client that is behind has taken, and until when it is watched.
struct SlowWrite {
    taken: u64,
    end: Pin<Box<Sleep>>,
}

impl SlowWrite {
    fn new(limit: Duration) -> Self {
        Self { taken: 0, end: Box::pin(sleep(limit)) }
    }
}

impl<S, G> WriteTimeout<S, G> {
    pub(crate) fn new(stream: S, limit: Duration, guard: G) -> Self {
        Self { stream, limit, behind: None, _guard: guard }
    }

    /// The outcome of a write. Progress alone does not start the time afresh: a byte now and then would hold an answer
    /// in memory for hours.
    fn wrote(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match (&written, &mut self.behind) {
            (Poll::Pending, _) => return self.wait(cx),
            (Poll::Ready(Ok(count)), Some(behind)) => behind.taken += *count as u64,
            _ => {}
        }
        written
    }

    /// The outcome of a flush: all that was written before is with the system now.
    fn flushed(&mut self, cx: &mut Context<'_>, flushed: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        match flushed {
            Poll::Pending => self.wait(cx),
            Poll::Ready(_) => {
                self.behind = None;
                flushed
            }
        }
    }

    /// Waits for the client, as long as it is fast enough.
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let limit = self.limit;
        let behind = self.behind.get_or_insert_with(|| SlowWrite::new(limit));
        while behind.end.as_mut().poll(cx).is_ready() {
            if (behind.taken as f64) < MIN_RATE * limit.as_secs_f64() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "write timeout")));
            }
            *behind = SlowWrite::new(limit);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin, G: Unpin> AsyncRead for WriteTimeout<S, G> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin, G: Unpin> AsyncWrite for WriteTimeout<S, G> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.wrote(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.flushed(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.flushed(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::task::JoinHandle;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn stream() -> (WriteTimeout<DuplexStream, ()>, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1024);
        (WriteTimeout::new(ours, LIMIT, ()), theirs)
    }

    /// Reads so many bytes after each pause, until nothing more comes.
    fn read_slowly(mut theirs: DuplexStream, pause: Duration, bytes: usize) -> JoinHandle<usize> {
        tokio::spawn(async move {
            let (mut read, mut buffer) = (0, vec![0; bytes]);
            loop {
                sleep(pause).await;
                match theirs.read(&mut buffer).await {
                    Ok(0) | Err(_) => return read,
                    Ok(count) => read += count,
                }
            }
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_reads_ends() {
        let (mut stream, _theirs) = stream();
        let stuck = stream.write_all(&[7; 4096]).await.unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_a_little_now_and_then_is_cut_off() {
        let (mut stream, theirs) = stream();
        let reader = read_slowly(theirs, Duration::from_secs(1), 512);
        let stuck = stream.write_all(&vec![7; 4 << 20]).await.unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
        drop(stream);
        assert!(reader.await.unwrap() < 64 * 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_that_keeps_on_reading_gets_all() {
        let (mut stream, theirs) = stream();
        let reader = read_slowly(theirs, Duration::from_millis(50), 1024);
        let begun = tokio::time::Instant::now();
        stream.write_all(&vec![7; 4 << 20]).await.unwrap();
        stream.flush().await.unwrap();
        assert!(begun.elapsed() > 5 * LIMIT, "longer than any pause may be");
        drop(stream);
        assert_eq!(reader.await.unwrap(), 4 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_between_answers_do_not_count() {
        let (mut stream, mut theirs) = stream();
        for _ in 0..3 {
            let (written, read) = tokio::join!(
                async {
                    stream.write_all(&[7; 2048]).await?;
                    stream.flush().await
                },
                async { theirs.read_exact(&mut [0; 2048]).await }
            );
            written.unwrap();
            read.unwrap();
            sleep(10 * LIMIT).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_with_a_stream_is_let_go_of_with_it() {
        let held = std::sync::Arc::new(());
        let (ours, _theirs) = tokio::io::duplex(16);
        let stream = WriteTimeout::new(ours, LIMIT, held.clone());
        assert_eq!(std::sync::Arc::strong_count(&held), 2);
        drop(stream);
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
}
