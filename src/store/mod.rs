//! Where records go on disk.

pub mod sqlite;
