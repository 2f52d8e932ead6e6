//! The database as a file: who has it open, whether the disk takes writes, copies of it.

pub(super) mod backup;
pub(super) mod checkpoint;
pub(super) mod disk;
pub(super) mod disk_space;
pub(super) mod lock;
pub(super) mod restore;
