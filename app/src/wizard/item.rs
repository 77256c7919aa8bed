//! One item: what it means, what the machine says with its evidence, what would decide it and the place for its
//! output, the remedy, and what people say.

use super::Wizard;
use super::{guide, own};
use crate::evidence_form::{EvidenceForm, evidence_form};
use crate::icons;
use crate::report::{Places, code_block, remedy};
use crate::standing::Standing;
use crate::words;
use leptos::prelude::*;
use rankscope_diagnosis::item_remedy;
use rankscope_model::{Cause, Collect, Finding, Item, ItemStatus};

/// The probe's module, as commands import it.
const PROBE_MODULE: &str = "rankscope_probe";

/// Causes below this are rivals that nobody acts on.
const SHOWN_CAUSE: f64 = 0.2;

/// The item as a card; `leads` opens what is folded otherwise.
pub fn item(standing: &Standing<'_>, wizard: &Wizard<'_>, places: &Places<'_>, leads: bool) -> AnyView {
    let item = standing.item();
    let words = guide::item(item);
    let status = standing.entry.status;
    let causes: Vec<&Cause> = wizard
        .report
        .diagnosis
        .causes
        .iter()
        .filter(|cause| cause.label.item() == item && cause.confidence >= SHOWN_CAUSE)
        .collect();
    view! {
        <section
            class="card wizard-item"
            class:failing=status == ItemStatus::Fail
            class:suspect=status == ItemStatus::Suspect
            id=format!("item-{}", item.slug())
            aria-labelledby=format!("title-{}", item.slug())
        >
            {leads.then(|| view! { <p class="first-mark">"Look here first"</p> })}
            <div class="cause-head">
                <h2 id=format!("title-{}", item.slug())>{standing.heading()}</h2>
                {status_badge(standing)}
                {own::badge(standing)}
            </div>
            <p class="means">{words.means}</p>
            <p class="dim">{words.matters}" "<a href=page_about(item)>"Wrong and right code, and how to prove it"</a></p>
            {machine(standing, &causes, wizard, places)}
            {if status == ItemStatus::Fail {
                // It is decided: what helps comes before what would make it more certain.
                view! { {remedy_part(standing, &causes, wizard)}{collects(standing, wizard, false)} }.into_any()
            } else {
                view! { {collects(standing, wizard, leads)}{remedy_part(standing, &causes, wizard)} }.into_any()
            }}
            {own::own(standing, wizard)}
        </section>
    }
    .into_any()
}

/// Where the documentation speaks of the item.
fn page_about(item: Item) -> String {
    format!("/docs/stage-{}#{}", item.stage().slug(), item.slug().replace('_', "-"))
}

/// An item that cannot apply, in one line that opens.
pub fn folded(standing: &Standing<'_>, wizard: &Wizard<'_>) -> AnyView {
    let item = standing.item();
    let reason = match standing.own().filter(|_| standing.own_status().is_some()) {
        Some(note) if !note.note.is_empty() => format!("{}: {}", note.author, words::shown_line(&note.note)),
        Some(note) => format!("{} says that it does not apply", words::shown_line(&note.author)),
        None => standing
            .findings
            .first()
            .map_or_else(|| guide::item(item).not_applicable.to_owned(), |finding| words::shown_line(&finding.claim)),
    };
    view! {
        <li id=format!("item-{}", item.slug())>
            <details>
                <summary class="item">
                    {icons::status(ItemStatus::NotApplicable)}
                    <span class="item-title">{item.title()}<span class="dim">{format!(" {reason}")}</span></span>
                    <span class="item-word">"does not apply"</span>
                </summary>
                <div class="item-body">
                    <p>{guide::item(item).means}</p>
                    {own::own(standing, wizard)}
                </div>
            </details>
        </li>
    }
    .into_any()
}

fn status_badge(standing: &Standing<'_>) -> AnyView {
    let status = standing.entry.status;
    let class = match status {
        ItemStatus::Fail => "is-fail",
        ItemStatus::Suspect => "is-suspect",
        ItemStatus::Pass => "is-pass",
        ItemStatus::Unknown | ItemStatus::NotApplicable => "is-open",
    };
    view! { <span class=format!("badge {class}")>{icons::status(status)}{standing.word()}</span> }.into_any()
}

fn machine(standing: &Standing<'_>, causes: &[&Cause], wizard: &Wizard<'_>, places: &Places<'_>) -> AnyView {
    if standing.findings.is_empty() && causes.is_empty() {
        let text = match standing.entry.status {
            ItemStatus::Unknown => "The files say nothing of it yet.",
            ItemStatus::Pass => "The files speak for it.",
            _ => "The files point that way; no line of them can be quoted.",
        };
        return view! { <p class="nothing-said">{icons::status(standing.entry.status)}<span>{text}</span></p> }
            .into_any();
    }
    let run = &wizard.report.run.id;
    let causes = causes
        .iter()
        .map(|cause| {
            view! {
                <li>
                    <a href=format!("/runs/{run}")>{cause.label.title()}</a>
                    <span class="num dim">{format!(" {}, {:.2}", words::confidence(cause.confidence), cause.confidence)}</span>
                </li>
            }
        })
        .collect_view();
    let named = (!standing.findings.is_empty() || !wizard.report.diagnosis.causes.is_empty()).then_some(causes);
    let findings = standing.findings.iter().map(|finding| finding_line(finding, places)).collect_view();
    view! {
        <h3>"What the files say"</h3>
        <ul class="findings">{findings}</ul>
        <ul class="named">{named}</ul>
    }
    .into_any()
}

fn finding_line(finding: &Finding, places: &Places<'_>) -> AnyView {
    view! {
        <li class="finding">
            {icons::severity(finding.severity)}
            <div>
                {words::shown_line(&finding.claim)}
                <span class="num">{format!(" confidence {:.2}", finding.confidence)}</span>
                {places.links(&finding.evidence)}
            </div>
        </li>
    }
    .into_any()
}

fn collects(standing: &Standing<'_>, wizard: &Wizard<'_>, leads: bool) -> Option<AnyView> {
    let item = standing.item();
    let collect = &standing.entry.collect;
    if collect.is_empty() || item == Item::Verified {
        return None;
    }
    let heading =
        if standing.entry.status == ItemStatus::Unknown { "Would decide it" } else { "Would make it certain" };
    let (first, rest) = collect.split_first()?;
    let rest = (!rest.is_empty()).then(|| {
        let rest = rest.iter().map(step).collect_view();
        view! { <details class="exact"><summary>"Another way"</summary>{rest}</details> }
    });
    let form = evidence_form(EvidenceForm {
        action: format!("/runs/{}/files?item={}", wizard.report.run.id, item.slug()),
        api: format!("/api/v1/runs/{}/files", wizard.report.run.id),
        back: Some(format!("/runs/{}/checklist/{}#item-{}", wizard.report.run.id, item.stage().slug(), item.slug())),
        button: "Add and decide again",
        id: item.slug(),
        new_run: false,
        projects: Vec::new(),
        max_file_bytes: wizard.max_file_bytes,
        max_request_bytes: wizard.max_request_bytes,
    });
    let place = if leads {
        form
    } else {
        view! { <details class="exact drop-here"><summary>"Add its output here"</summary>{form}</details> }.into_any()
    };
    Some(
        view! {
            <div class="decide">
                <h3>{heading}</h3>
                {step(first)}
                {rest}
                {place}
            </div>
        }
        .into_any(),
    )
}

fn step(collect: &Collect) -> AnyView {
    let is_probe = collect.command.contains(PROBE_MODULE);
    view! {
        <div class="collect">
            <p>
                {words::shown(&collect.what)}
                {is_probe.then(|| view! { " "<a href="/docs/probe">"What the probe is"</a> })}
            </p>
            {code_block(&collect.command)}
        </div>
    }
    .into_any()
}

/// The remedy of the cause that stands under the item, else the item's own for the scripts' framework.
fn remedy_part(standing: &Standing<'_>, causes: &[&Cause], wizard: &Wizard<'_>) -> Option<AnyView> {
    if standing.item() == Item::Verified {
        return None;
    }
    let of_cause = causes.iter().find(|cause| !cause.remedy.trim().is_empty());
    let own = item_remedy(standing.item(), &wizard.report.figures.facts.frameworks);
    let (text, name): (&str, &str) = match of_cause {
        Some(cause) => (&cause.remedy, cause.label.title()),
        None => (&own.text, own.framework),
    };
    let open = matches!(standing.entry.status, ItemStatus::Fail | ItemStatus::Suspect);
    let title = if open { "Remedy" } else { "If it fails" };
    Some(
        view! {
            <details class="exact remedy-fold" open=open>
                <summary>{title}<span class="dim">{format!(" {name}")}</span></summary>
                {remedy(text)}
            </details>
        }
        .into_any(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docs::chapter;

    #[test]
    fn the_documentation_speaks_of_every_item() {
        for item in Item::ALL {
            let address = page_about(*item);
            let (page, anchor) = address.trim_start_matches("/docs/").split_once('#').unwrap();
            let found = chapter(page).is_some_and(|chapter| chapter.page.anchors.contains(anchor));
            assert!(found, "{address}");
        }
    }
}
