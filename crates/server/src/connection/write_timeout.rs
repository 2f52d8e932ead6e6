//! Closes connections whose client stops reading or reads too slowly, which frees the responses buffered for it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Minimum rate at which a client must read, in bytes a second. The largest page takes about four minutes.
const MIN_RATE: f64 = 16.0 * 1024.0;

/// A stream whose pending writes fail with a timeout unless they progress at [`MIN_RATE`], measured over each `period`.
pub(super) struct WriteTimeout<S, G> {
    stream: S,
    period: Duration,
    /// Set while a write is pending.
    pending: Option<PendingWrite>,
    /// Dropped with the stream, which lives as long as the connection does, whether it speaks HTTP or WebSocket.
    _guard: G,
}

struct PendingWrite {
    /// Bytes written in this period.
    written: u64,
    /// The end of this period.
    end: Pin<Box<Sleep>>,
}

impl PendingWrite {
    fn new(period: Duration) -> Self {
        Self { written: 0, end: Box::pin(sleep(period)) }
    }
}

impl<S, G> WriteTimeout<S, G> {
    pub(super) fn new(stream: S, period: Duration, guard: G) -> Self {
        Self { stream, period, pending: None, _guard: guard }
    }

    /// Handles the outcome of a write. Progress alone does not restart the period: a client that reads a byte now and
    /// then would keep a response in memory for hours.
    fn wrote(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match (&written, &mut self.pending) {
            (Poll::Pending, _) => return self.wait(cx),
            (Poll::Ready(Ok(count)), Some(pending)) => pending.written += *count as u64,
            _ => {}
        }
        written
    }

    /// Handles the outcome of a flush, after which no write is pending.
    fn flushed(&mut self, cx: &mut Context<'_>, flushed: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        match flushed {
            Poll::Pending => self.wait(cx),
            Poll::Ready(_) => {
                self.pending = None;
                flushed
            }
        }
    }

    /// Returns `Pending`, or an error if too little was written in the period that ended.
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let period = self.period;
        let pending = self.pending.get_or_insert_with(|| PendingWrite::new(period));
        while pending.end.as_mut().poll(cx).is_ready() {
            if (pending.written as f64) < MIN_RATE * period.as_secs_f64() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "write timeout")));
            }
            *pending = PendingWrite::new(period);
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

    /// Reads up to `bytes` after each pause, until the stream ends. Returns the number of bytes read.
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
    async fn a_write_to_a_client_that_does_not_read_times_out() {
        let (mut stream, _theirs) = stream();
        let stuck = stream.write_all(&[7; 4096]).await.unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_too_slowly_times_out() {
        let (mut stream, theirs) = stream();
        let reader = read_slowly(theirs, Duration::from_secs(1), 512);
        let stuck = stream.write_all(&vec![7; 4 << 20]).await.unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
        drop(stream);
        assert!(reader.await.unwrap() < 64 * 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_at_the_minimum_rate_gets_everything() {
        let (mut stream, theirs) = stream();
        let reader = read_slowly(theirs, Duration::from_millis(50), 1024);
        let begun = tokio::time::Instant::now();
        stream.write_all(&vec![7; 4 << 20]).await.unwrap();
        stream.flush().await.unwrap();
        assert!(begun.elapsed() > 5 * LIMIT, "it took several periods");
        drop(stream);
        assert_eq!(reader.await.unwrap(), 4 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_between_responses_do_not_count() {
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
    async fn the_guard_is_dropped_with_the_stream() {
        let guard = std::sync::Arc::new(());
        let (ours, _theirs) = tokio::io::duplex(16);
        let stream = WriteTimeout::new(ours, LIMIT, guard.clone());
        assert_eq!(std::sync::Arc::strong_count(&guard), 2);
        drop(stream);
        assert_eq!(std::sync::Arc::strong_count(&guard), 1);
    }
}
