//! Token counts of answers in every framing: `cargo fuzz run usage`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::usage(input));
