//! Parameters and columns of statements, the same for both databases.

use std::str::FromStr;

use amb_core::doc::ConnectionStatus;
use amb_core::transcript::TranscriptKey;
use amb_core::{
    AgentName, ConnectionId, CorrelationId, Kind, MessageId, Priority, SessionId, TaskId, TaskState, Timestamp,
};
use uuid::Uuid;

use crate::StoreError;
use crate::error::Result;

/// A parameter of a statement.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    Int(Option<i64>),
    Text(Option<&'a str>),
    /// A public id.
    Id(Option<Uuid>),
    /// An instant, to the microsecond.
    Time(Option<Timestamp>),
    Flag(bool),
    /// A hash.
    Bytes(&'a [u8]),
    /// Numbers, for [`Dialect::in_list`](super::Dialect).
    Ints(&'a [i64]),
    /// Public ids, for [`Dialect::in_ids`](super::Dialect).
    Ids(&'a [Uuid]),
}

macro_rules! value_from {
    ($($from:ty => |$it:ident| $to:expr,)+) => {
        $(impl<'a> From<$from> for Value<'a> {
            fn from($it: $from) -> Self {
                $to
            }
        })+
    };
}

value_from! {
    i64 => |it| Value::Int(Some(it)),
    u32 => |it| Value::Int(Some(it.into())),
    u64 => |it| Value::Int(Some(i64::try_from(it).unwrap_or(i64::MAX))),
    usize => |it| Value::Int(Some(i64::try_from(it).unwrap_or(i64::MAX))),
    Option<i64> => |it| Value::Int(it),
    &'a str => |it| Value::Text(Some(it)),
    &'a String => |it| Value::Text(Some(it)),
    Option<&'a str> => |it| Value::Text(it),
    Uuid => |it| Value::Id(Some(it)),
    Option<Uuid> => |it| Value::Id(it),
    Timestamp => |it| Value::Time(Some(it)),
    Option<Timestamp> => |it| Value::Time(it),
    bool => |it| Value::Flag(it),
    &'a [u8] => |it| Value::Bytes(it),
    &'a [i64] => |it| Value::Ints(it),
    &'a Vec<i64> => |it| Value::Ints(it),
    &'a [Uuid] => |it| Value::Ids(it),
    &'a Vec<Uuid> => |it| Value::Ids(it),
}

/// The parameters of a statement, in order.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::engine::Value::from($value)),*]
    };
}
pub(crate) use values;

/// A column of a row. SQLite has times and booleans as numbers, and any 16 bytes as an id.
#[derive(Debug)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Id(Uuid),
    Time(Timestamp),
    Flag(bool),
    Bytes(Vec<u8>),
}

/// The columns of a row, read on demand.
pub(crate) trait Cells {
    fn cell(&self, index: usize) -> Result<Cell>;
}

/// A row whose columns are taken in order.
pub struct Row<'a> {
    columns: &'a dyn Cells,
    next: usize,
}

impl<'a> Row<'a> {
    pub(crate) fn new(columns: &'a dyn Cells) -> Self {
        Self { columns, next: 0 }
    }

    /// Takes the next column.
    pub(crate) fn take<T: FromCell>(&mut self) -> Result<T> {
        let cell = self.columns.cell(self.next)?;
        self.next += 1;
        T::from_cell(cell)
    }
}

/// A type that is read from one column.
pub(crate) trait FromCell: Sized {
    fn from_cell(cell: Cell) -> Result<Self>;
}

fn wrong<T>(cell: &Cell) -> Result<T> {
    Err(StoreError::internal(format!("a column has another type: {cell:?}")))
}

impl FromCell for i64 {
    fn from_cell(cell: Cell) -> Result<Self> {
        if let Cell::Int(it) = cell { Ok(it) } else { wrong(&cell) }
    }
}

impl FromCell for u64 {
    /// Counts and log numbers, which are never negative.
    fn from_cell(cell: Cell) -> Result<Self> {
        i64::from_cell(cell).map(|it| u64::try_from(it).unwrap_or(0))
    }
}

impl FromCell for bool {
    fn from_cell(cell: Cell) -> Result<Self> {
        match cell {
            Cell::Flag(it) => Ok(it),
            Cell::Int(it) => Ok(it != 0),
            _ => wrong(&cell),
        }
    }
}

impl FromCell for String {
    fn from_cell(cell: Cell) -> Result<Self> {
        if let Cell::Text(it) = cell { Ok(it) } else { wrong(&cell) }
    }
}

impl FromCell for Vec<u8> {
    fn from_cell(cell: Cell) -> Result<Self> {
        match cell {
            Cell::Bytes(it) => Ok(it),
            Cell::Id(it) => Ok(it.into_bytes().to_vec()),
            _ => wrong(&cell),
        }
    }
}

impl FromCell for Uuid {
    fn from_cell(cell: Cell) -> Result<Self> {
        if let Cell::Id(it) = cell { Ok(it) } else { wrong(&cell) }
    }
}

impl FromCell for Timestamp {
    fn from_cell(cell: Cell) -> Result<Self> {
        match cell {
            Cell::Time(it) => Ok(it),
            Cell::Int(it) => Timestamp::from_microsecond(it).map_err(StoreError::internal),
            _ => wrong(&cell),
        }
    }
}

impl FromCell for Kind {
    /// NULL is a plain message.
    fn from_cell(cell: Cell) -> Result<Self> {
        match cell {
            Cell::Null => Ok(Kind::Message),
            Cell::Text(it) => it.parse().map_err(StoreError::internal),
            _ => wrong(&cell),
        }
    }
}

impl FromCell for Priority {
    fn from_cell(cell: Cell) -> Result<Self> {
        let rank = usize::try_from(i64::from_cell(cell)?).ok();
        Ok(rank.and_then(|rank| Priority::ALL.get(rank).copied()).unwrap_or_default())
    }
}

impl FromCell for ConnectionStatus {
    fn from_cell(cell: Cell) -> Result<Self> {
        serde_json::from_value(String::from_cell(cell)?.into()).map_err(StoreError::internal)
    }
}

/// Types that are stored as text.
macro_rules! from_text {
    ($($name:ty)+) => {
        $(impl FromCell for $name {
            fn from_cell(cell: Cell) -> Result<Self> {
                Self::from_str(&String::from_cell(cell)?).map_err(StoreError::internal)
            }
        })+
    };
}

from_text!(AgentName CorrelationId TaskState TranscriptKey);

/// Public ids.
macro_rules! from_uuid {
    ($($name:ty)+) => {
        $(impl FromCell for $name {
            fn from_cell(cell: Cell) -> Result<Self> {
                Uuid::from_cell(cell).map(Into::into)
            }
        })+
    };
}

from_uuid!(ConnectionId MessageId SessionId TaskId);

impl<T: FromCell> FromCell for Option<T> {
    fn from_cell(cell: Cell) -> Result<Self> {
        if let Cell::Null = cell { Ok(None) } else { T::from_cell(cell).map(Some) }
    }
}

/// A type that is read from the next columns of a row.
pub(crate) trait FromRow: Sized {
    fn from_row(row: &mut Row<'_>) -> Result<Self>;
}

impl<T: FromCell> FromRow for T {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        row.take()
    }
}

/// Implements [`FromRow`] for a struct whose fields are the columns, in this order. A field may have several columns.
macro_rules! from_row {
    ($name:ident: $($field:ident)+) => {
        impl $crate::engine::FromRow for $name {
            fn from_row(row: &mut $crate::engine::Row<'_>) -> $crate::error::Result<Self> {
                Ok(Self { $($field: $crate::engine::FromRow::from_row(row)?),+ })
            }
        }
    };
}
pub(crate) use from_row;

macro_rules! tuple_from_row {
    ($($name:ident)+) => {
        impl<$($name: FromRow),+> FromRow for ($($name,)+) {
            fn from_row(row: &mut Row<'_>) -> Result<Self> {
                Ok(($($name::from_row(row)?,)+))
            }
        }
    };
}

tuple_from_row!(A);
tuple_from_row!(A B);
tuple_from_row!(A B C);
tuple_from_row!(A B C D);
tuple_from_row!(A B C D E);
tuple_from_row!(A B C D E F);
tuple_from_row!(A B C D E F G);
