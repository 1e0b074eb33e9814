//! Numbers made of texts, the same in every process: for identities that outlive a snapshot and for consistent hashing.
//!
//! Not here: anything that guards a secret. What is hashed here is never a credential.

/// 64-bit FNV-1a, mixed once more so that every bit depends on every byte.
pub fn stable(parts: &[&[u8]]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = OFFSET;
    for part in parts {
        for byte in *part {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
        // No byte of UTF-8, so that ("a", "bc") and ("ab", "c") differ.
        hash = (hash ^ 0xff).wrapping_mul(PRIME);
    }
    mix(hash, 0)
}

/// One number of two; a change of any bit changes about half of the others.
pub const fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
