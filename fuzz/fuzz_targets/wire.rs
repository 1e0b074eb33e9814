//! HTTP/1.1 of upstreams: `cargo fuzz run wire`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::wire::wire(input));
