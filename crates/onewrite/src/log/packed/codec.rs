//! Compresses a page, by itself or as its difference from another, and decompresses it.
//!
//! There are two methods: LZ4 blocks, fast both ways, and zstd frames (`zstd-safe`, the C library
//! without unused parts). The latter are smaller because they entropy-code, at several times the
//! cost. A difference uses the other page as its dictionary.
//!
//! LZ4 takes two libraries. For differences it is `lz4_flex`: they take a third of the time of
//! liblz4, which first hashes the whole dictionary. For all else it is liblz4 (`lzzzz`). A page by
//! itself takes it 7 microseconds and `lz4_flex` 12 (a table of texts, 4 KiB). Pages with empty
//! space are decompressed in a quarter of the time.
//!
//! With any bytes from disk, decompression writes within the page it is given, and says whether it
//! filled that page. Called by `packer`, and for reads by [`super`].

use std::cell::RefCell;

use zstd_safe::{CCtx, DCtx};

use crate::sync::with_kept;

/// The lowest effort of zstd. On pages of 4 KiB higher levels gain one or two percent, at a
/// multiple of the time.
const ZSTD_LEVEL: i32 = 1;

/// How far LZ4 goes on after each failed look for a match. With 2, a page takes three quarters of
/// the time that it takes with 1, and 4 % more bytes.
const LZ4_ACCELERATION: i32 = 2;

/// The compression method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// An LZ4 block, without a frame or a size.
    Lz4,
    /// A zstd frame.
    Zstd,
}

thread_local! {
    /// The contexts of zstd, some 100 KiB each, made when first used.
    static ZSTD_OUT: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static ZSTD_IN: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Compresses `page` into `out`, with `base` as its dictionary if there is one. Returns the
/// compressed size in bytes, if it is smaller than the page.
pub fn compress(method: Method, page: &[u8], base: Option<&[u8]>, out: &mut [u8]) -> Option<usize> {
    let bytes = match (method, base) {
        (Method::Lz4, None) => lzzzz::lz4::compress(page, out, LZ4_ACCELERATION).ok(),
        (Method::Lz4, Some(base)) => lz4_flex::block::compress_into_with_dict(page, out, base).ok(),
        (Method::Zstd, base) => with_kept(&ZSTD_OUT, |context| {
            let context = context_in(context, CCtx::try_create)?;
            match base {
                None => context.compress(out, page, ZSTD_LEVEL).ok(),
                Some(base) => context
                    .compress_using_dict(out, page, base, ZSTD_LEVEL)
                    .ok(),
            }
        }),
    }?;
    (1..page.len()).contains(&bytes).then_some(bytes)
}

/// Enough space for what [`compress`] may try before it gives up.
pub fn space_for(page_bytes: usize) -> usize {
    lz4_flex::block::get_maximum_output_size(page_bytes)
}

/// The reverse of [`compress`]; `false` if the data do not give a whole page.
pub fn decompress(method: Method, data: &[u8], base: Option<&[u8]>, page: &mut [u8]) -> bool {
    use lzzzz::lz4;
    let bytes = match (method, base) {
        (Method::Lz4, None) => lz4::decompress(data, page).ok(),
        (Method::Lz4, Some(base)) => lz4::decompress_with_dict(data, page, base).ok(),
        (Method::Zstd, base) => with_kept(&ZSTD_IN, |context| {
            let context = context_in(context, DCtx::try_create)?;
            match base {
                None => context.decompress(page, data).ok(),
                Some(base) => context.decompress_using_dict(page, data, base).ok(),
            }
        }),
    };
    bytes == Some(page.len())
}

/// The context, made at first use; `None` without memory for it.
fn context_in<T>(context: &mut Option<T>, make: impl FnOnce() -> Option<T>) -> Option<&mut T> {
    if context.is_none() {
        *context = make();
    }
    context.as_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(method: Method, page: &[u8], base: Option<&[u8]>) -> Option<usize> {
        let mut out = vec![0; space_for(page.len())];
        let bytes = compress(method, page, base, &mut out)?;
        let mut back = vec![0; page.len()];
        assert!(decompress(method, &out[..bytes], base, &mut back));
        assert_eq!(back, page);
        for cut in [0, bytes / 2, bytes - 1] {
            let whole = decompress(method, &out[..cut], base, &mut back);
            assert!(!whole || back == page, "a part of the data is another page");
        }
        Some(bytes)
    }

    /// A page with recognizable content, and the numbers that make it: a failure prints these
    /// three.
    #[derive(Clone, Copy, Debug)]
    struct Recipe {
        power: u32,
        values: u32,
        seed: u64,
    }

    impl Recipe {
        fn any() -> impl Strategy<Value = Self> {
            (9u32..=16, 32u32..256, any::<u64>()).prop_map(|(power, values, seed)| Self {
                power,
                values,
                seed,
            })
        }

        fn page(self) -> Vec<u8> {
            let mut state = self.seed | 1;
            (0..1usize << self.power)
                .map(|_| {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    ((state >> 33) as u32 % self.values) as u8
                })
                .collect()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_compressed_comes_back(recipe in Recipe::any(), changes in proptest::collection::vec(any::<(prop::sample::Index, u8)>(), 0..20)) {
            let page = recipe.page();
            let mut base = page.clone();
            for (at, byte) in &changes {
                let at = at.index(base.len());
                base[at] = *byte;
            }
            for method in [Method::Lz4, Method::Zstd] {
                round_trip(method, &page, None);
                let difference = round_trip(method, &page, Some(&base));
                // Twenty changes of a byte, and the bytes that LZ4 takes to find a match again
                // after each. Its table has no room for every position of a larger page, and from
                // 64 KiB on it does not reach back.
                let is_small = difference.is_some_and(|bytes| bytes < 400 + page.len() / 8);
                prop_assert!(is_small || page.len() > 1 << 14, "{difference:?}");
            }
        }

        #[test]
        fn no_bytes_are_too_strange(data in proptest::collection::vec(any::<u8>(), 0..600), zstd in any::<bool>()) {
            let mut page = vec![0; 512];
            let mut data = data;
            if zstd && data.len() > 4 {
                data[..4].copy_from_slice(&[0x28, 0xb5, 0x2f, 0xfd]);
            }
            for method in [Method::Lz4, Method::Zstd] {
                decompress(method, &data, None, &mut page);
                decompress(method, &data, Some(&[7; 512]), &mut page);
            }
        }
    }

    #[test]
    fn what_cannot_be_compressed_is_not() {
        let mut state = 1u64;
        let noise: Vec<u8> = (0..4096)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        for method in [Method::Lz4, Method::Zstd] {
            assert_eq!(round_trip(method, &noise, None), None);
        }
    }
}
