//! Spooled records: `cargo fuzz run spool`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::kept::spool(input));
