//! Medians and percentiles of a handful of samples.

/// The value below which `percent` of the samples lie; 0 without samples.
pub fn percentile(samples: &mut [u64], percent: usize) -> u64 {
    samples.sort_unstable();
    let last = samples.len().saturating_sub(1);
    samples.get(last * percent / 100).copied().unwrap_or(0)
}

/// One line: median, p99 and maximum in microseconds.
pub fn line(name: &str, samples: &mut [u64]) -> String {
    let (p50, p99, max) = (
        percentile(samples, 50),
        percentile(samples, 99),
        percentile(samples, 100),
    );
    format!(
        "{name:<10} n {:>5}   p50 {p50:>6} us   p99 {p99:>6} us   max {max:>6} us",
        samples.len()
    )
}
