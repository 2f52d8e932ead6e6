//! Row numbers, instants and ids as SQLite keeps them.

use amb_core::Timestamp;
use rusqlite::Row;
use uuid::Uuid;

/// Bits of the place in a composed row number.
const PLACE: u32 = 32;

/// The row number of a place in a transcript.
pub(super) fn row(owner: i64, place: i64) -> i64 {
    (owner << PLACE) | place
}

/// A number in a log, of which none is negative.
pub(super) fn number_of(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// An instant that we wrote.
pub(super) fn instant(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or_default()
}

/// The instant in a column.
pub(super) fn instant_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    Ok(instant(row.get(column)?))
}

/// The id in a column.
pub(super) fn uuid_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    Ok(Uuid::from_bytes(row.get(column)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_number_holds_its_owner_and_its_place() {
        for (owner, place) in [(1, 1), (7, 4_294_967_295), (2_147_483_647, 3)] {
            let row = row(owner, place);
            assert_eq!((row >> PLACE, row & i64::from(u32::MAX)), (owner, place));
        }
    }
}
