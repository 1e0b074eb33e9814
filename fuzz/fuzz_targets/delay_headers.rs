//! Delay headers and bodies: `cargo fuzz run delay_headers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::delay_headers(input));
