//! Bodies to be explained: `cargo fuzz run explain_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::operator::explain_body(input));
