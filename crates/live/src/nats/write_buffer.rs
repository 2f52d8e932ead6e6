//! A buffer for outgoing messages: one allocation for many.
//!
//! A message is written by its sender's thread and freed by the connection's, for which the allocator takes a lock.
//! Here messages share a block, and freeing one only decrements the block's reference count.

use parking_lot::Mutex;
use tokio_util::bytes::{Bytes, BytesMut};

/// Size of a block.
const BLOCK_BYTES: usize = 32 * 1024;
/// Larger messages get an allocation of their own, since a message keeps its whole block alive.
const MAX_SHARED_BYTES: usize = BLOCK_BYTES / 8;

/// The block that is being filled.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer(Mutex<BytesMut>);

impl WriteBuffer {
    /// Copies these bytes.
    pub(super) fn copy(&self, bytes: &[u8]) -> Bytes {
        self.write(bytes.len(), |block| block.extend_from_slice(bytes))
    }

    /// Returns what `write` writes, which is about `size` bytes.
    pub(super) fn write(&self, size: usize, write: impl FnOnce(&mut BytesMut)) -> Bytes {
        if size > MAX_SHARED_BYTES {
            let mut alone = BytesMut::with_capacity(size);
            write(&mut alone);
            return alone.freeze();
        }
        let mut block = self.0.lock();
        if block.capacity() < size {
            *block = BytesMut::with_capacity(BLOCK_BYTES);
        }
        write(&mut block);
        block.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_writes_do_not_change_earlier_ones() {
        let buffer = WriteBuffer::default();
        let pieces: Vec<_> = (0..10_000).map(|number| buffer.copy(format!("piece {number}").as_bytes())).collect();
        let large = buffer.copy(&[7; 2 * BLOCK_BYTES]);
        for (number, piece) in pieces.iter().enumerate() {
            assert_eq!(*piece, format!("piece {number}"));
        }
        assert_eq!(large, vec![7; 2 * BLOCK_BYTES]);
    }
}
