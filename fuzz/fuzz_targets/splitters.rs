//! Streams of lines and of elements: `cargo fuzz run splitters`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::kept::splitters(input));
