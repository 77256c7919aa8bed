//! The page that explains the reasoning says the numbers that the code holds.

use rankscope_diagnosis::Policy;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// `name -> value` of the rows that begin with a name in backticks.
fn rows(page: &str) -> BTreeMap<&str, &str> {
    page.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split('|');
            let name = cells.next()?.trim().strip_suffix('`')?;
            Some((name, cells.next()?.trim()))
        })
        .collect()
}

/// A value as the page writes it, in bytes where it has a unit.
fn number(shown: &str) -> f64 {
    let (number, unit) = shown.split_once(' ').unwrap_or((shown, ""));
    let factor = match unit {
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => 1.0,
    };
    number.parse::<f64>().unwrap_or_else(|_| panic!("{shown} is no number")) * factor
}

#[test]
fn every_threshold_is_on_the_page_with_its_value() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reasoning.md")).unwrap();
    let rows = rows(&page);
    // `Policy { noise: Bytes(268435456), noise_share: 0.02, ... }`
    let policy = format!("{:?}", Policy::default());
    let fields = policy.trim_start_matches("Policy {").trim_end_matches('}');
    let mut seen = 0;
    for field in fields.split(", ") {
        let (name, value) = field.split_once(':').unwrap();
        let (name, value) = (name.trim(), value.trim().trim_start_matches("Bytes(").trim_end_matches(')'));
        let shown = rows.get(name).unwrap_or_else(|| panic!("docs/reasoning.md does not tell {name}"));
        let (told, held) = (number(shown), value.parse::<f64>().unwrap());
        assert!((told - held).abs() <= held.abs() * 1e-9, "{name}: the page says {shown}, the code {value}");
        seen += 1;
    }
    assert!(seen > 30, "only {seen} thresholds were compared");
}
