//! Heads of requests in HTTP/1.1: `cargo fuzz run request_head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::wire::request_head(input));
