//! The files and payloads of other systems: read leniently, written strictly, nothing lost either way.
