//! Answers with credentials: `cargo fuzz run credentials`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::kept::credentials(input));
