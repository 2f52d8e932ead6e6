//! Paper for outgoing messages: one allocation for many.
//!
//! A message is written by its sender's thread and let go by the connection's. The allocator pays for that with a lock at
//! every piece; here a piece is only counted.

use parking_lot::Mutex;
use tokio_util::bytes::{Bytes, BytesMut};

/// Bytes that are allocated at once.
const SHEET: usize = 32 * 1024;
/// Larger pieces are allocated by themselves: a piece keeps its whole sheet alive.
const LARGE: usize = SHEET / 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pad(Mutex<BytesMut>);

impl Pad {
    /// A copy of these bytes.
    pub(super) fn copy(&self, bytes: &[u8]) -> Bytes {
        self.write(bytes.len(), |sheet| sheet.extend_from_slice(bytes))
    }

    /// What `write` writes, which is about `size` bytes.
    pub(super) fn write(&self, size: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
        if size > LARGE {
            let mut alone = BytesMut::with_capacity(size);
            write(&mut alone);
            return alone.freeze();
        }
        let mut sheet = self.0.lock();
        if sheet.capacity() < size {
            *sheet = BytesMut::with_capacity(SHEET);
        }
        write(&mut sheet);
        sheet.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_stays_whatever_is_written_after_it() {
        let pad = Pad::default();
        let pieces: Vec<_> = (0..10_000).map(|number| pad.copy(format!("piece {number}").as_bytes())).collect();
        let large = pad.copy(&[7; 2 * SHEET]);
        for (number, piece) in pieces.iter().enumerate() {
            assert_eq!(*piece, format!("piece {number}"));
        }
        assert_eq!(large, vec![7; 2 * SHEET]);
    }
}
