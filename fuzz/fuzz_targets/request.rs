//! Request lines, headers and handshakes, and what a target gets of them: `cargo fuzz run request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::request::request(input));
