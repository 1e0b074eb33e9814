//! Quantiles of a sample, medians over rounds, ratios within rounds. Nothing here knows what was measured.

/// The smallest value that `share` of the samples do not exceed; 0 without samples.
pub fn quantile(samples: &mut [u64], share: f64) -> u64 {
    samples.sort_unstable();
    let rank = (samples.len() as f64 * share).ceil() as usize;
    samples.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Smallest, middle and largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Median; of an even number the mean of the two in the middle.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

/// The spread of some values; nothing without any.
pub fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    let lower = if sorted.len().is_multiple_of(2) {
        sorted.get(middle.checked_sub(1)?)?
    } else {
        upper
    };
    Some(Spread {
        min: *sorted.first()?,
        median: lower.midpoint(*upper),
        max: *sorted.last()?,
    })
}

/// The spread of `a` by `b`, round by round, so that what disturbed a round disturbs both sides of its ratio.
pub fn ratio(a: &[f64], b: &[f64]) -> Option<Spread> {
    let ratios: Vec<f64> = a
        .iter()
        .zip(b)
        .filter(|(_, b)| **b > 0.0)
        .map(|(a, b)| a / b)
        .collect();
    spread(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_sample() {
        let mut samples: Vec<u64> = (1..=100).rev().collect();
        let got = [0.0, 0.5, 0.99, 0.999, 1.0].map(|share| quantile(&mut samples, share));
        assert_eq!(got, [1, 50, 99, 100, 100]);
        assert_eq!(quantile(&mut [], 0.5), 0);
        assert_eq!(quantile(&mut [7], 0.5), 7);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(
            spread(&[4.0, 1.0, 2.0]),
            Some(Spread {
                min: 1.0,
                median: 2.0,
                max: 4.0
            })
        );
        assert_eq!(
            spread(&[4.0, 1.0, 2.0, 3.0]),
            Some(Spread {
                min: 1.0,
                median: 2.5,
                max: 4.0
            })
        );
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was half as fast in the second round; the ratio does not notice.
        let got = ratio(&[10.0, 20.0, 12.0], &[5.0, 10.0, 6.0]);
        assert_eq!(
            got,
            Some(Spread {
                min: 2.0,
                median: 2.0,
                max: 2.0
            })
        );
        assert_eq!(ratio(&[1.0, 2.0], &[0.0]), None, "nothing to divide by");
    }
}
