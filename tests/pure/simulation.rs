//! Whole operations under virtual time.

pub mod auditor;
