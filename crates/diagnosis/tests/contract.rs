//! The diagnosis as a public contract: keys, snapshot of one whole diagnosis, promises that hold for any evidence.

#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test fails loudly; an absent cause is exactly zero")]

mod support;

use rankscope_diagnosis::{Policy, diagnose, figures, next_step};
use rankscope_model::{CauseLabel, Evidence, Item, ItemStatus, Subject, Verdict};
use serde_json::Value;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map(|o| o.keys().map(String::as_str).collect()).unwrap_or_default()
}

#[test]
fn json_has_exactly_the_keys_of_the_contract() {
    let evidence = support::stray_contexts();
    let json = serde_json::to_value(diagnose(&evidence, &Policy::default())).unwrap();
    let sorted = |mut list: Vec<&'static str>| {
        list.sort_unstable();
        list
    };
    assert_eq!(
        keys(&json),
        sorted(vec!["format", "verdict", "summary", "imbalance", "causes", "checklist", "findings", "artifacts"])
    );
    assert_eq!(
        keys(&json["causes"][0]),
        sorted(vec!["label", "confidence", "ranks", "why", "against", "remedy", "evidence"])
    );
    assert_eq!(keys(&json["checklist"][0]), sorted(vec!["stage", "item", "status", "findings", "collect"]));
    assert_eq!(
        keys(&json["findings"][0]),
        sorted(vec!["id", "item", "label", "severity", "confidence", "claim", "ranks", "evidence"])
    );
    for key in ["quantity", "ratio", "max_bytes", "median_bytes", "heaviest"] {
        assert!(json["imbalance"].get(key).is_some(), "imbalance.{key}");
    }
}

#[test]
fn stray_contexts_are_named_with_their_evidence() {
    let evidence = support::stray_contexts();
    let policy = Policy::default();
    let diagnosis = diagnose(&evidence, &policy);
    insta::assert_json_snapshot!(diagnosis);

    assert_eq!(diagnosis.verdict, Verdict::Imbalance);
    assert_eq!(diagnosis.causes[0].label, CauseLabel::CtxNoSetDevice);
    assert!(diagnosis.causes[0].confidence < 0.5, "process rows alone do not single out one label");
    let imbalance = diagnosis.imbalance.as_ref().unwrap();
    assert_eq!(imbalance.heaviest, [Subject::Device(0)]);
    assert!(diagnosis.causes[0].ranks.is_empty(), "PIDs are not ranks");
    let next = next_step(&diagnosis).unwrap();
    assert_eq!(next.0, Item::DeviceVisibility);
    insta::assert_json_snapshot!("figures_of_stray_contexts", figures(&evidence, &diagnosis, &policy));
}

#[test]
fn every_item_is_there_and_no_unknown_is_left_without_a_command() {
    for evidence in [Evidence::default(), support::stray_contexts()] {
        let diagnosis = diagnose(&evidence, &Policy::default());
        let items: Vec<Item> = diagnosis.checklist.iter().map(|entry| entry.item).collect();
        assert_eq!(items, Item::ALL);
        for entry in &diagnosis.checklist {
            assert!(entry.status != ItemStatus::Unknown || !entry.collect.is_empty(), "{:?}", entry.item);
        }
    }
}

#[test]
fn nothing_read_is_inconclusive_and_asks_for_files() {
    let diagnosis = diagnose(&Evidence::default(), &Policy::default());
    assert_eq!(diagnosis.verdict, Verdict::Inconclusive);
    assert!(diagnosis.imbalance.is_none() && diagnosis.causes.is_empty());
    assert!(!diagnosis.summary.is_empty());
    assert!(next_step(&diagnosis).is_some());
}
