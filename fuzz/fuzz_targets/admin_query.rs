//! Query strings of the admin API: `cargo fuzz run admin_query`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rondo::fuzzing::operator::admin_query(input));
