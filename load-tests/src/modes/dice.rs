//! Seeded draws. What happens to a request follows from the seed and its id alone, so that the order of arrivals changes nothing.

/// A stream of draws; equal seeds and texts give equal streams.
pub struct Dice(u64);

impl Dice {
    /// The draws that belong to this text.
    pub fn of(seed: u64, text: &str) -> Dice {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Dice(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next draw.
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 when there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll().checked_rem(end).unwrap_or(0)
    }

    /// Whether something happens that happens so many times in a hundred.
    pub fn percent(&mut self, times: u64) -> bool {
        self.below(100) < times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_from_seed_and_text() {
        let draws = |seed, text| {
            let mut dice = Dice::of(seed, text);
            [dice.below(1000), dice.below(1000), dice.below(1000)]
        };
        assert_eq!(draws(1, "a"), draws(1, "a"));
        assert_ne!(draws(1, "a"), draws(2, "a"));
        assert_ne!(draws(1, "a"), draws(1, "b"));
    }

    #[test]
    fn thirty_in_a_hundred_are_thirty_in_a_hundred() {
        let hits = (0..10_000).filter(|n| Dice::of(7, &format!("c-{n}")).percent(30));
        let hits = hits.count();
        assert!((2800..3200).contains(&hits), "{hits}");
    }
}
