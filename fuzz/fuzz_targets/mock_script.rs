//! Scripts of the scripted provider: `cargo fuzz run mock_script`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::operator::mock_script(input));
