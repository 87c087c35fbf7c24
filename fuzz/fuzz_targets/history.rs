//! See `onewrite_hostile`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| onewrite_hostile::history(data));
