//! Documents between Python's dicts and JSON.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PySequence, PyString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

use crate::failure;

/// The deepest nesting that is converted; offices accept nothing deeper.
const DEEPEST: usize = 64;

/// Converts a Python value to JSON: mappings with text keys, sequences, text, numbers, booleans and None.
pub(crate) fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    read(value, 0)
}

fn read(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let py = value.py();
    if depth > DEEPEST {
        return Err(failure::invalid(py, format!("a value is nested more than {DEEPEST} deep")));
    }
    if value.is_none() {
        Ok(Value::Null)
    } else if let Ok(flag) = value.cast::<PyBool>() {
        Ok(Value::Bool(flag.is_true()))
    } else if let Ok(text) = value.cast::<PyString>() {
        // Lone surrogates are not valid text.
        let text = text.to_str().map_err(|_| failure::invalid(py, "a text has characters that UTF-8 cannot say"))?;
        Ok(Value::String(text.to_owned()))
    } else if let Ok(number) = value.cast::<PyInt>() {
        let number = number.extract::<i64>().map(Number::from).or_else(|_| number.extract::<u64>().map(Number::from));
        number.map(Value::Number).map_err(|_| failure::invalid(py, "an integer has more than 64 bits"))
    } else if let Ok(number) = value.cast::<PyFloat>() {
        let number = Number::from_f64(number.value());
        number.map(Value::Number).ok_or_else(|| failure::invalid(py, "a number is infinite or not a number"))
    } else if let Ok(mapping) = value.cast::<PyMapping>() {
        let mut object = Map::new();
        for item in mapping.items()?.iter() {
            let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let key = key.extract().map_err(|_| failure::invalid(py, "the keys of a document are text"))?;
            object.insert(key, read(&value, depth + 1)?);
        }
        Ok(Value::Object(object))
    } else if let Ok(sequence) = value.cast::<PySequence>()
        && !value.hasattr("decode")?
    {
        sequence.try_iter()?.map(|item| read(&item?, depth + 1)).collect::<PyResult<_>>().map(Value::Array)
    } else {
        Err(failure::invalid(py, format!("a value of type {} cannot be said in JSON", value.get_type().name()?)))
    }
}

/// Parses a dict as one of our documents.
pub(crate) fn parse<T: DeserializeOwned>(value: &Bound<'_, PyAny>, what: &str) -> PyResult<T> {
    let json = from_python(value)?;
    serde_json::from_value(json).map_err(|error| failure::invalid(value.py(), format!("{what}: {error}")))
}

/// Converts a document to a Python value.
pub(crate) fn to_python(py: Python<'_>, document: &impl Serialize) -> PyResult<Py<PyAny>> {
    let json = serde_json::to_value(document).map_err(|error| failure::invalid(py, error.to_string()))?;
    write(py, json)
}

fn write(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Null => Ok(py.None()),
        Value::Bool(flag) => flag.into_py_any(py),
        Value::String(text) => text.into_py_any(py),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into_py_any(py),
            (None, Some(number)) => number.into_py_any(py),
            (None, None) => number.as_f64().into_py_any(py),
        },
        Value::Array(items) => {
            let list = PyList::empty(py);
            items.into_iter().try_for_each(|item| list.append(write(py, item)?))?;
            list.into_py_any(py)
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            fields.into_iter().try_for_each(|(key, value)| dict.set_item(key, write(py, value)?))?;
            dict.into_py_any(py)
        }
    }
}
