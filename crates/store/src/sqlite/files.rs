//! The database file: its lock, failed syncs, checkpoints, backup and restore.

pub(super) mod backup;
pub(super) mod checkpoint;
pub(super) mod disk;
pub(super) mod disk_space;
pub(super) mod lock;
pub(super) mod restore;
