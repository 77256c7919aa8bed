//! Item `unsynced_buffers`: nothing large lives on one rank only. Decided by call sites in the snapshots of several
//! ranks; a lone site is told under the item that its stack speaks of.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::weight;
use crate::sites;
use rankscope_model::{Bytes, Item, ItemStatus, Severity};

/// Sites told one by one.
const TOLD: usize = 4;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let Some(sites) = sites::compare(case.evidence, case.policy) else { return };
    for site in sites.lone.iter().take(TOLD) {
        let refs = case.refs([site.at]);
        let others = match site.others {
            0 => "no other rank holds anything there".to_owned(),
            most => format!("no other rank holds more than {} there", Bytes(most)),
        };
        let text = format!("Rank {} holds {} from {}; {others}.", site.rank, Bytes(site.bytes), site.place);
        ledger.signal(&[site.label], weight::STRONG, &text, &refs);
        ledger.ranks(&[site.label], &[site.rank]);
        ledger.mechanism(
            &[site.label],
            &Mechanism {
                because: format!("it alone holds {} from {}", Bytes(site.bytes), site.place),
                alone: text.clone(),
                explained: Some(site.bytes.saturating_sub(site.others)),
            },
        );
        let item = site.label.item();
        ledger.status(item, ItemStatus::Fail);
        ledger.claim(Claim {
            item,
            label: Some(site.label),
            severity: Severity::Critical,
            confidence: 0.9,
            text,
            ranks: vec![site.rank],
            refs,
        });
    }
    if sites.lone.is_empty() && sites.is_settled {
        ledger.status(Item::UnsyncedBuffers, ItemStatus::Pass);
        ledger.claim(Claim {
            item: Item::UnsyncedBuffers,
            label: None,
            severity: Severity::Info,
            confidence: 0.8,
            text: format!(
                "The largest call sites of all {} ranks hold equal bytes; none is on one rank only.",
                sites.ranks.len()
            ),
            ranks: sites.ranks.clone(),
            refs: case.refs(sites.places.iter().copied()),
        });
    }
}
