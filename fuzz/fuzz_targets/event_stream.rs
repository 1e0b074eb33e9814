//! AWS event-stream frames: `cargo fuzz run event_stream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::event_stream(input));
