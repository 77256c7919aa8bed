//! Item `unsynced_buffers`: nothing large lives on one rank only. Decided by call sites in the snapshots of several
//! ranks; a lone site is told under the item that its stack speaks of.

use crate::case::Case;
use crate::combine::{Claim, Ledger, Mechanism};
use crate::policy::weight;
use crate::sites;
use rankscope_model::{Bytes, Item, ItemStatus, Rank, Severity, Subject};

/// Sites told one by one.
const TOLD: usize = 4;
/// Less than one part of so many of the gap is a side matter.
const SMALL: u64 = 5;

pub(super) fn apply(case: &Case, ledger: &mut Ledger) {
    let Some(sites) = sites::compare(case.evidence, case.policy) else { return };
    for site in sites.lone.iter().take(TOLD) {
        let refs = case.refs([site.at]);
        let others = match site.others {
            0 => "no other rank holds anything there".to_owned(),
            most => format!("no other rank holds more than {} there", Bytes(most)),
        };
        let text = format!("Rank {} holds {} from {}; {others}.", site.rank, Bytes(site.bytes), site.place);
        let explained = site.bytes.saturating_sub(site.others);
        let heavy = case.main.as_ref().map(|(_, spread)| spread).filter(|spread| spread.stands_out());
        let (is_elsewhere, is_small) = heavy.map_or((false, false), |spread| {
            let is_heavy = spread.heaviest.contains(&Subject::Rank(Rank(site.rank)));
            (!is_heavy && !spread.is_low_outlier, explained < spread.gap() / SMALL)
        });
        let item = site.label.item();
        if is_elsewhere {
            // True, and no reason why another rank is the fuller one.
            ledger.claim(Claim {
                item,
                label: None,
                severity: Severity::Info,
                confidence: 0.9,
                text: format!("{text} It is not the fuller one."),
                ranks: vec![site.rank],
                refs,
            });
            continue;
        }
        ledger.signal(&[site.label], if is_small { weight::FAINT } else { weight::STRONG }, &text, &refs);
        ledger.ranks(&[site.label], &[site.rank]);
        let who = match heavy {
            Some(spread) if spread.heaviest.len() > 1 => format!("rank {}", site.rank),
            _ => "it".to_owned(),
        };
        let because = match site.others {
            0 => format!("{who} alone holds {} from {}", Bytes(site.bytes), site.place),
            most => {
                format!(
                    "{who} holds {} from {}, no other rank more than {}",
                    Bytes(site.bytes),
                    site.place,
                    Bytes(most)
                )
            }
        };
        ledger.mechanism(&[site.label], &Mechanism { because, alone: text.clone(), explained: Some(explained) });
        ledger.status(item, if is_small { ItemStatus::Suspect } else { ItemStatus::Fail });
        ledger.claim(Claim {
            item,
            label: Some(site.label),
            severity: if is_small { Severity::Warning } else { Severity::Critical },
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
