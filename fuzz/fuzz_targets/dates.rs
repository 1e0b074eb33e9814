//! Dates of HTTP, of records and of credentials: `cargo fuzz run dates`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::kept::dates(input));
