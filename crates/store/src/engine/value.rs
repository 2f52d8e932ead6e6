//! Parameters and columns, the same for both databases.

use amb_core::{AgentName, Timestamp};
use uuid::Uuid;

use crate::StoreError;
use crate::error::Result;
use crate::row;

/// A parameter of a statement.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// A number.
    Int(Option<i64>),
    /// A text.
    Text(Option<&'a str>),
    /// An id that the world sees.
    Id(Option<Uuid>),
    /// An instant, to the microsecond.
    Time(Option<Timestamp>),
    /// Whether something is so.
    Flag(bool),
    /// A hash.
    Bytes(&'a [u8]),
    /// Numbers, for [`Dialect::in_list`](super::Dialect).
    Ints(&'a [i64]),
    /// Ids, for [`Dialect::in_ids`](super::Dialect).
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
    &'a Vec<Uuid> => |it| Value::Ids(it),
}

/// The parameters of a statement, in order.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::engine::Value::from($value)),*]
    };
}
pub(crate) use values;

/// A column of a row. SQLite gives times and booleans as numbers, and any 16 bytes as an id.
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

/// The columns of a row, read as they are asked for.
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

    /// The next column.
    pub(crate) fn take<T: FromCell>(&mut self) -> Result<T> {
        let cell = self.columns.cell(self.next)?;
        self.next += 1;
        T::from_cell(cell)
    }
}

/// What a column holds.
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

impl FromCell for AgentName {
    fn from_cell(cell: Cell) -> Result<Self> {
        row::name(&String::from_cell(cell)?)
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

impl<T: FromCell> FromCell for Option<T> {
    fn from_cell(cell: Cell) -> Result<Self> {
        if let Cell::Null = cell { Ok(None) } else { T::from_cell(cell).map(Some) }
    }
}

/// What a row holds.
pub(crate) trait FromRow: Sized {
    /// Takes as many columns as it has.
    fn from_row(row: &mut Row<'_>) -> Result<Self>;
}

impl<T: FromCell> FromRow for T {
    fn from_row(row: &mut Row<'_>) -> Result<Self> {
        row.take()
    }
}

/// A struct whose fields are the columns of a row, in this order. A field may itself be made of several columns.
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
