//! The scan of request bodies and the replacing of their model: `cargo fuzz run scan`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::request_scan(input));
