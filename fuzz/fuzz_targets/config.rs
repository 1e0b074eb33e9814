//! Configurations: `cargo fuzz run config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::operator::config(input));
