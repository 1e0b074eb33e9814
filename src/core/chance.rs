//! Randomness that the core is handed. One seeded source per operation makes a run repeatable.

/// A source of uniform random numbers.
pub trait Chance {
    /// A uniform number below `bound`; 0 when `bound` is 0.
    fn below(&mut self, bound: u64) -> u64;
}

impl<R: rand::RngCore> Chance for R {
    fn below(&mut self, bound: u64) -> u64 {
        use rand::Rng;
        if bound == 0 {
            0
        } else {
            self.random_range(0..bound)
        }
    }
}
