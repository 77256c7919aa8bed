//! The few statistics that the rules need, written for values that may be empty, equal or huge.

pub(crate) use rankscope_model::lower_median;

/// Arithmetic mean, rounded down; `None` when empty.
pub(crate) fn mean(values: &[u64]) -> Option<u64> {
    let count = u128::try_from(values.len()).ok().filter(|n| *n > 0)?;
    let sum: u128 = values.iter().map(|v| u128::from(*v)).sum();
    u64::try_from(sum / count).ok()
}

/// Pearson's r of pairs; `None` for fewer than two pairs or no variance on a side.
pub(crate) fn pearson(pairs: &[(f64, f64)]) -> Option<f64> {
    let n = pairs.len() as f64;
    if pairs.len() < 2 {
        return None;
    }
    let mean_x = pairs.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = pairs.iter().map(|p| p.1).sum::<f64>() / n;
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        let (dx, dy) = (x - mean_x, y - mean_y);
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    let r = xy / (xx.sqrt() * yy.sqrt());
    r.is_finite().then(|| r.clamp(-1.0, 1.0))
}

/// Least-squares slope of pairs that are centred on zero; `None` without variance.
pub(crate) fn slope(pairs: &[(f64, f64)]) -> Option<f64> {
    let xx: f64 = pairs.iter().map(|(x, _)| x * x).sum();
    let xy: f64 = pairs.iter().map(|(x, y)| x * y).sum();
    Some(xy / xx).filter(|slope| slope.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_few_and_huge() {
        assert_eq!(mean(&[u64::MAX, u64::MAX]), Some(u64::MAX));
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn correlation_needs_variance() {
        assert_eq!(pearson(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(pearson(&[(1.0, 2.0)]), None);
        let r = pearson(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).unwrap();
        assert!((r - 1.0).abs() < 1e-12);
    }
}
