//! accelerate's configuration file: flat YAML of `key: value`, with one level of nested groups.
//!
//! Read line by line and no more than that: anchors, aliases, tags, block texts and flow collections have no meaning
//! here, so a text cannot make them grow. A line of that kind is passed over.

use super::Facts;
use super::command::MAX_COUNT;
use super::variables::{truth, visible_devices};
use rankscope_model::LaunchSetting;

/// Whether a text is such a file.
pub(super) fn is_config(head: &str) -> bool {
    let has = |key: &str| head.lines().any(|line| line.starts_with(key));
    has("compute_environment:") || (has("distributed_type:") && (has("num_processes:") || has("mixed_precision:")))
}

/// Reads the file.
pub(super) fn read(text: &str, facts: &mut Facts<'_>) {
    let mut group = String::new();
    for (number, line) in (1u64..).zip(text.lines()) {
        let Some((key, value)) = pair(line) else { continue };
        let is_nested = line.starts_with([' ', '\t']);
        if !is_nested {
            group.clear();
        }
        if value.is_empty() && !is_nested {
            key.clone_into(&mut group);
        } else if let Some(setting) = setting(if is_nested { &group } else { "" }, key, value) {
            facts.add(number, line, 0, setting);
        }
    }
}

/// `key: value`, the value without quotes and comment.
fn pair(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.starts_with(['#', '-', '&', '*', '!', '%', '{', '[', '?', '|', '>']) {
        return None;
    }
    let (key, value) = line.split_once(':')?;
    let value = value.split(" #").next().unwrap_or(value).trim();
    if value.starts_with(['&', '*', '!', '{', '[', '|', '>', '#']) {
        return None;
    }
    let value = value.trim_matches(['"', '\'']);
    let is_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (is_key && value.len() <= 200).then_some((key, value))
}

fn setting(group: &str, key: &str, value: &str) -> Option<LaunchSetting> {
    use LaunchSetting as S;
    let number = || value.parse::<u32>().ok().filter(|n| *n <= MAX_COUNT);
    let count = || number().filter(|n| *n > 0);
    let word = || {
        let is_plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
        (!value.is_empty() && is_plain).then(|| value.to_owned())
    };
    match (group, key) {
        ("", "distributed_type") => word().map(S::DistributedType),
        ("", "num_processes") => count().map(S::WorldSize),
        ("", "num_machines") => count().map(S::Nodes),
        ("", "gpu_ids") if value != "all" => visible_devices(value),
        ("", "mixed_precision") => word().map(S::MixedPrecision),
        ("" | "deepspeed_config", "gradient_accumulation_steps") => count().map(S::Accumulation),
        ("deepspeed_config", "zero_stage") => number().filter(|stage| *stage <= 3).map(S::ZeroStage),
        ("deepspeed_config", "offload_optimizer_device") => word().map(S::OffloadOptimizer),
        ("deepspeed_config", "offload_param_device") => word().map(S::OffloadParameters),
        ("deepspeed_config", "zero3_save_16bit_model") => truth(value).map(S::GathersWeightsOnSave),
        ("fsdp_config", "fsdp_state_dict_type") => word().map(S::StateDictType),
        ("fsdp_config", "fsdp_sharding_strategy") => word().map(S::ShardingStrategy),
        ("fsdp_config", "fsdp_offload_params") => {
            truth(value).filter(|on| *on).map(|_| S::OffloadParameters("cpu".to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;
    use LaunchSetting as S;

    #[test]
    fn a_configuration_with_a_group() {
        let text = "compute_environment: LOCAL_MACHINE\ndebug: false\ndeepspeed_config:\n  gradient_accumulation_steps: 4\n  offload_optimizer_device: none\n  zero3_save_16bit_model: true\n  zero_stage: 3\ndistributed_type: DEEPSPEED\ngpu_ids: 0,2\nmixed_precision: 'bf16' # half\nnum_machines: 1\nnum_processes: 2\nzero_stage: 1\n";
        assert_eq!(
            settings("default_config.yaml", text),
            [
                S::Accumulation(4),
                S::OffloadOptimizer("none".into()),
                S::GathersWeightsOnSave(true),
                S::ZeroStage(3),
                S::DistributedType("DEEPSPEED".into()),
                S::VisibleDevices(vec!["0".into(), "2".into()]),
                S::MixedPrecision("bf16".into()),
                S::Nodes(1),
                S::WorldSize(2),
            ]
        );
    }

    #[test]
    fn aliases_and_collections_mean_nothing() {
        let text = "compute_environment: LOCAL_MACHINE\na: &a [x, x]\nb: *a\nnum_processes: *a\nmixed_precision: {a: b}\n- num_machines: 3\n";
        assert_eq!(settings("c.yaml", text), []);
    }
}
