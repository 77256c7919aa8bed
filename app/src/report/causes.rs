//! Causes with what speaks for and against them. The first stands large, the others one line each.

use super::code::remedy;
use super::places::Places;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{Cause, CauseLabel, Diagnosis, EvidenceRef, Verdict};

/// Below this the first cause is one of several: shown, not accused.
const ACCUSED_FROM: f64 = 0.5;

/// Findings that are shown where no cause is named.
const READ_SHOWN: usize = 2;

/// Every cause, best first.
pub fn causes(diagnosis: &Diagnosis, places: &Places<'_>) -> AnyView {
    let Some((first, others)) = diagnosis.causes.split_first() else {
        return nothing(diagnosis, places);
    };
    let others = (!others.is_empty()).then(|| {
        let lines = others.iter().map(|cause| other(cause, places)).collect_view();
        view! { <div class="others"><h3>"Considered, less likely"</h3>{lines}</div> }
    });
    let settled = !matches!(first.label, CauseLabel::Unresolved | CauseLabel::Benign);
    let by_design = diagnosis.is_by_design();
    let accusing = settled && !by_design && first.confidence >= ACCUSED_FROM;
    view! {
        <section class="card cause" class:accusing=accusing class:doubtful=settled && !accusing && !by_design class:unsettled=!settled aria-label="Cause">
            <div class="cause-head">
                <h2>{first.label.title()}</h2>
                {settled.then(|| confidence(first.confidence))}
            </div>
            {who(first, settled)}
            {body(first, places)}
            {others}
        </section>
    }
    .into_any()
}

fn confidence(value: f64) -> impl IntoView {
    view! { <span class="conf">{format!("{}, {value:.2}", words::confidence(value))}</span> }
}

fn who(cause: &Cause, settled: bool) -> AnyView {
    let ranks = words::numbered("rank", &cause.ranks);
    let label = settled.then(|| view! { <code>{cause.label.slug()}</code> });
    if ranks.is_empty() && !settled {
        return ().into_any();
    }
    let concerns = (!ranks.is_empty()).then(|| view! { <span>{format!("concerns {ranks}")}</span> });
    view! { <p class="who">{label}{concerns}</p> }.into_any()
}

fn other(cause: &Cause, places: &Places<'_>) -> impl IntoView {
    view! {
        <details class="other">
            <summary>
                <span>{cause.label.title()}</span>
                <span class="num">{format!("{}, {:.2}", words::confidence(cause.confidence), cause.confidence)}</span>
            </summary>
            {body(cause, places)}
        </details>
    }
}

fn body(cause: &Cause, places: &Places<'_>) -> AnyView {
    let why = reasons(cause, "why", &cause.why, places);
    let against = reasons(cause, "against", &cause.against, places);
    let loose: Vec<&EvidenceRef> =
        cause.evidence.iter().filter(|reference| !names_a_reason(reference, cause)).collect();
    let loose = (!loose.is_empty()).then(|| view! { <div class="also">"See also"{places.links(loose)}</div> });
    let any = !(cause.why.is_empty() && cause.against.is_empty());
    view! {
        {any.then(|| view! { <ul class="why">{why}{against}</ul> })}
        {loose}
        {(!cause.remedy.trim().is_empty()).then(|| remedy(&cause.remedy))}
    }
    .into_any()
}

/// `why.0` supports the first reason for.
fn names_a_reason(reference: &EvidenceRef, cause: &Cause) -> bool {
    let Some((side, n)) = reference.reason.as_deref().and_then(|reason| reason.split_once('.')) else { return false };
    let count = match side {
        "why" => cause.why.len(),
        "against" => cause.against.len(),
        _ => 0,
    };
    n.parse::<usize>().is_ok_and(|n| n < count)
}

fn reasons(cause: &Cause, side: &'static str, texts: &[String], places: &Places<'_>) -> AnyView {
    let against = side == "against";
    texts
        .iter()
        .enumerate()
        .map(|(n, text)| {
            let key = format!("{side}.{n}");
            let references =
                cause.evidence.iter().filter(|reference| reference.reason.as_deref() == Some(key.as_str()));
            view! {
                <li class:no=against>
                    <span class="visually-hidden">{if against { "Against: " } else { "For: " }}</span>
                    {words::shown_line(text)}
                    {places.links(references)}
                </li>
            }
        })
        .collect_view()
        .into_any()
}

fn nothing(diagnosis: &Diagnosis, places: &Places<'_>) -> AnyView {
    let text = match diagnosis.verdict {
        Verdict::Imbalance => {
            "The difference is real, but nothing in these files says where it comes from. The next step would."
        }
        Verdict::UniformPressure => {
            "No rank stands out: the model or the batch is too big for these cards. Evening the ranks out will not help."
        }
        Verdict::Balanced => "No rank stands out and no card is near its capacity.",
        Verdict::Inconclusive => {
            "These files do not settle whether one rank or GPU needs more than the others. The headline says why."
        }
    };
    // What is said of the ranks in question, whatever the cause: where the difference is read.
    let read = diagnosis.findings.iter().filter(|finding| {
        let is_observed = finding.label.is_none() && !finding.ranks.is_empty() && !finding.evidence.is_empty();
        diagnosis.verdict == Verdict::Imbalance && is_observed
    });
    let read: Vec<AnyView> = read
        .take(READ_SHOWN)
        .map(|finding| {
            view! { <li>{words::shown_line(&finding.claim)}{places.links(&finding.evidence)}</li> }.into_any()
        })
        .collect();
    let read = (!read.is_empty()).then(|| view! { <ul class="why">{read}</ul> });
    view! {
        <section class="card cause unsettled" aria-label="Cause">
            <div class="cause-head"><h2>"No cause named"</h2></div>
            <p>{text}</p>
            {read}
        </section>
    }
    .into_any()
}
