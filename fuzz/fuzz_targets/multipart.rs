//! The scan of forms and the replacing of their model: `cargo fuzz run multipart`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::form_scan(input));
