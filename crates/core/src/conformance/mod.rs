//! One generic story after another, written against the trait, to be run by every office.
