//! An office in memory, for the tests of doors.
