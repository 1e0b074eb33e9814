//! Error bodies and the verdict on them: `cargo fuzz run json_envelope`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::envelope(input));
