//! Small drawings that stand beside words: each state has a shape of its own, so that colour is never the only sign.
//! Knows the states, no page.

use leptos::prelude::*;
use rankscope_model::{CauseFate, Diagnosis, ItemStatus, Outcome, OwnStatus, Severity, Verdict};

/// Four bars, one of them higher: the product in a glyph.
const BRAND: &str = r#"<svg class="glyph" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false"><g class="glyph-calm"><rect x="5" y="7" width="2.5" height="7" rx=".8"/><rect x="9" y="7" width="2.5" height="7" rx=".8"/><rect x="13" y="7" width="2.5" height="7" rx=".8"/></g><rect class="glyph-hot" x="1" y="2" width="2.5" height="12" rx=".8"/></svg>"#;

const DIAMOND: &str = r#"<path d="M6 .6 11.4 6 6 11.4.6 6Z" fill="currentColor"/>"#;
const HALF: &str = r#"<circle cx="6" cy="6" r="4.6" fill="none" stroke="currentColor" stroke-width="1.6"/><path d="M6 1.4a4.6 4.6 0 0 1 0 9.2Z" fill="currentColor"/>"#;
const CHECK: &str = r#"<circle cx="6" cy="6" r="5.4" fill="currentColor"/><path d="m3.4 6.2 1.8 1.8 3.4-3.8" fill="none" stroke="var(--card)" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round"/>"#;
const RING: &str = r#"<circle cx="6" cy="6" r="4.6" fill="none" stroke="currentColor" stroke-width="1.6" stroke-dasharray="2.2 1.4"/>"#;
const DASH: &str = r#"<path d="M2 6h8" stroke="currentColor" stroke-width="1.6" stroke-linecap="round"/>"#;
const SQUARE: &str = r#"<rect x="1.4" y="1.4" width="9.2" height="9.2" rx="1.6" fill="currentColor"/>"#;
const TRIANGLE: &str = r#"<path d="M6 1 11.5 10.8H.5Z" fill="currentColor"/>"#;

fn shape(class: &'static str, body: &'static str) -> impl IntoView {
    let svg =
        format!(r#"<svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true" focusable="false">{body}</svg>"#);
    view! { <span class=format!("shape {class}") inner_html=svg></span> }
}

/// The product's glyph.
pub fn brand() -> impl IntoView {
    view! { <span class="brand-mark" inner_html=BRAND></span> }
}

/// Diamond: fail. Half disc: suspect. Check: pass. Broken ring: unknown. Dash: does not apply.
pub fn status(status: ItemStatus) -> impl IntoView {
    match status {
        ItemStatus::Fail => shape("is-hot", DIAMOND),
        ItemStatus::Suspect => shape("is-warn", HALF),
        ItemStatus::Pass => shape("is-ok", CHECK),
        ItemStatus::Unknown => shape("is-dim", RING),
        ItemStatus::NotApplicable => shape("is-dim", DASH),
    }
}

/// Diamond: imbalance. Square: all full. Check: balanced. Broken ring: not settled.
pub fn verdict(verdict: Verdict) -> impl IntoView {
    match verdict {
        Verdict::Imbalance => shape("is-hot", DIAMOND),
        Verdict::UniformPressure => shape("is-warn", SQUARE),
        Verdict::Balanced => shape("is-ok", CHECK),
        Verdict::Inconclusive => shape("is-dim", RING),
    }
}

/// The same of a report, where a difference that is meant to be gets a dash.
pub fn verdict_of(diagnosis: &Diagnosis) -> AnyView {
    if diagnosis.is_by_design() { shape("is-dim", DASH).into_any() } else { verdict(diagnosis.verdict).into_any() }
}

/// Diamond: critical. Half disc: warning. Dash: worth knowing.
pub fn severity(severity: Severity) -> impl IntoView {
    match severity {
        Severity::Critical => shape("is-hot", DIAMOND),
        Severity::Warning => shape("is-warn", HALF),
        Severity::Info => shape("is-dim", DASH),
    }
}

/// Check: fixed. Half disc: partly. Diamond: not fixed. Broken ring: cannot tell.
pub fn outcome(outcome: Outcome) -> impl IntoView {
    status(outcome.status())
}

/// Diamond: remains, or new. Check: gone. Broken ring: not seen.
pub fn fate(fate: CauseFate) -> impl IntoView {
    match fate {
        CauseFate::Remains | CauseFate::New => shape("is-hot", DIAMOND),
        CauseFate::Gone => shape("is-ok", CHECK),
        CauseFate::NotSeen => shape("is-dim", RING),
    }
}

/// What a person says of an item.
pub fn own(own: OwnStatus) -> impl IntoView {
    match own {
        OwnStatus::Open => shape("is-dim", RING),
        OwnStatus::Holds => shape("is-ok", CHECK),
        OwnStatus::Fails => shape("is-hot", DIAMOND),
        OwnStatus::Mended => shape("is-warn", HALF),
        OwnStatus::DoesNotApply => shape("is-dim", DASH),
    }
}

/// A triangle: something was skipped or doubted.
pub fn warning() -> impl IntoView {
    shape("is-warn", TRIANGLE)
}
