//! Labels beside the ends of lines: moved apart until none covers another. Knows heights only.

/// A label that wants to stand at `y` and takes `height`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Label<T> {
    pub y: f64,
    pub height: f64,
    /// Higher stays longer when there is no room for all.
    pub weight: u8,
    pub content: T,
}

/// Moves labels apart inside `top..bottom` and drops the lightest (of these, the last) that do not fit.
pub(crate) fn spread<T>(mut labels: Vec<Label<T>>, top: f64, bottom: f64) -> Vec<Label<T>> {
    let needed = |labels: &[Label<T>]| labels.iter().map(|label| label.height).sum::<f64>();
    while needed(&labels) > bottom - top {
        let lightest = labels.iter().enumerate().rev().min_by_key(|(_, label)| label.weight).map(|(index, _)| index);
        let Some(index) = lightest else { break };
        labels.remove(index);
    }
    labels.sort_by(|a, b| a.y.total_cmp(&b.y));
    // Clusters of touching labels, each centred on the mean of the places its members want.
    let mut clusters: Vec<Cluster> = Vec::new();
    for label in &labels {
        let mut cluster = Cluster { wanted: label.y * label.height, height: label.height, members: 1 };
        while let Some(above) = clusters.last() {
            if above.span(top, bottom).1 <= cluster.span(top, bottom).0 {
                break;
            }
            cluster.wanted += above.wanted;
            cluster.height += above.height;
            cluster.members += above.members;
            clusters.pop();
        }
        clusters.push(cluster);
    }
    let mut rest = labels.iter_mut();
    for cluster in clusters {
        let mut y = cluster.span(top, bottom).0;
        for label in rest.by_ref().take(cluster.members) {
            label.y = y + label.height / 2.0;
            y += label.height;
        }
    }
    labels
}

struct Cluster {
    wanted: f64,
    height: f64,
    members: usize,
}

impl Cluster {
    fn span(&self, top: f64, bottom: f64) -> (f64, f64) {
        let start = (self.wanted / self.height - self.height / 2.0).min(bottom - self.height).max(top);
        (start, start + self.height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread_at(ys: &[f64]) -> Vec<f64> {
        let labels = ys.iter().map(|y| Label { y: *y, height: 14.0, weight: 1, content: () }).collect();
        spread(labels, 0.0, 100.0).iter().map(|label| label.y).collect()
    }

    #[test]
    fn labels_that_do_not_touch_stay() {
        assert_eq!(spread_at(&[20.0, 50.0]), [20.0, 50.0]);
    }

    #[test]
    fn touching_labels_share_the_move() {
        assert_eq!(spread_at(&[48.0, 52.0]), [43.0, 57.0]);
        assert_eq!(spread_at(&[2.0, 2.0, 99.0]), [7.0, 21.0, 93.0]);
    }

    #[test]
    fn the_lightest_goes_first() {
        let labels = (0..9u8).map(|n| Label { y: 50.0, height: 14.0, weight: n, content: n }).collect();
        let kept: Vec<u8> = spread(labels, 0.0, 100.0).iter().map(|label| label.content).collect();
        assert_eq!(kept.len(), 7);
        assert!(!kept.contains(&0) && !kept.contains(&1));
    }

    proptest::proptest! {
        #[test]
        fn nothing_overlaps_or_leaves(ys in proptest::collection::vec(-50.0..250.0f64, 0..30)) {
            let labels = ys.iter().map(|y| Label { y: *y, height: 13.0, weight: 1, content: () }).collect();
            let placed = spread(labels, 10.0, 210.0);
            for label in &placed {
                assert!(label.y - 6.5 >= 10.0 - 1e-6 && label.y + 6.5 <= 210.0 + 1e-6);
            }
            for pair in placed.windows(2) {
                assert!(pair[1].y - pair[0].y >= 13.0 - 1e-6);
            }
        }
    }
}
