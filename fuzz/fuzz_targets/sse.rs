//! Server-sent events and the look at the beginning of a stream: `cargo fuzz run sse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::sse(input));
