//! A server's own GPUs: the sampler without spool and without HTTP, for a server on the same machine.

use super::{new_source, now};
use rankscope_model::{LIVE_FORMAT, LiveBatch, LiveDropped, LiveLine, LiveRecord};
use rankscope_telemetry::sampler::{self, Delivery, SamplerConfig, Timed};
use std::io;
use tokio::sync::mpsc::Sender;

/// Samples this machine and hands batches over, as an agent would send them, until the other side is dropped or the
/// returned function is called: then it says that it ends, and drops the sender.
pub fn sample(
    config: SamplerConfig,
    batches: Sender<(LiveBatch, Vec<LiveLine>)>,
) -> io::Result<impl Fn() + Send + Sync> {
    let mut numbering = Numbering { source: new_source(), node: config.node.clone(), next: 0 };
    let sampler = sampler::spawn(config)?;
    let stopper = sampler.stopper();
    std::thread::Builder::new().name("own-gpus".into()).spawn(move || {
        let end = || Delivery { lines: vec![Timed { t: now(), record: LiveRecord::End }], ..Delivery::default() };
        for delivery in sampler.deliveries.iter().chain(std::iter::once_with(end)) {
            if let Some(batch) = numbering.batch(delivery)
                && batches.blocking_send(batch).is_err()
            {
                return;
            }
        }
    })?;
    Ok(stopper)
}

/// Counts the lines of one source.
struct Numbering {
    source: String,
    node: String,
    next: u64,
}

impl Numbering {
    /// `None` where there is nothing to send.
    fn batch(&mut self, delivery: Delivery) -> Option<(LiveBatch, Vec<LiveLine>)> {
        let t = delivery.lines.first()?.t;
        let mut lines = Vec::with_capacity(delivery.lines.len() + 1);
        if delivery.lost.lines > 0 {
            let (first, last) = (self.next, self.next + delivery.lost.lines - 1);
            let record =
                LiveRecord::Dropped(LiveDropped { first, last, samples: delivery.lost.samples, by_server: true });
            lines.push(LiveLine { seq: last, t, record });
            self.next = last + 1;
        }
        for line in delivery.lines {
            lines.push(line.numbered(self.next));
            self.next += 1;
        }
        let head = LiveBatch {
            format: LIVE_FORMAT.to_owned(),
            source: self.source.clone(),
            node: self.node.clone(),
            first: lines.first()?.seq,
            last: lines.last()?.seq,
        };
        Some((head, lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::UnixMicros;
    use rankscope_telemetry::sampler::Lost;

    #[test]
    fn what_was_lost_has_its_positions() {
        let mut numbering = Numbering { source: "s".into(), node: "n".into(), next: 0 };
        let line = || Timed { t: UnixMicros(1), record: LiveRecord::End };
        let mut batch = |lost, lines| {
            let delivery = Delivery { lost: Lost { lines: lost, samples: 10 * lost }, lines };
            numbering.batch(delivery).map(|(head, lines)| {
                assert_eq!((head.first, head.last), (lines[0].seq, lines.last().unwrap().seq));
                lines.iter().map(|line| line.seq).collect::<Vec<_>>()
            })
        };
        assert_eq!(batch(0, vec![line(), line()]), Some(vec![0, 1]));
        assert_eq!(batch(3, vec![line()]), Some(vec![4, 5]));
        assert_eq!(batch(0, vec![]), None);
    }
}
