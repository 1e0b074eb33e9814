//! Compressed bodies: `cargo fuzz run compressed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::kept::compressed(input));
