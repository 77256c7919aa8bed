//! DeepSpeed's configuration file, JSON. Values may be numbers, `"auto"` or left out.

use super::Facts;
use super::command::MAX_COUNT;
use crate::context::ReadError;
use rankscope_model::LaunchSetting;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Whether a text is such a file.
pub(super) fn is_config(head: &str) -> bool {
    head.trim_start().starts_with('{')
        && ["\"zero_optimization\"", "\"train_micro_batch_size_per_gpu\"", "\"zero_allow_untested_optimizer\""]
            .iter()
            .any(|key| head.contains(key))
}

#[derive(Deserialize)]
struct Config {
    train_batch_size: Option<Value>,
    train_micro_batch_size_per_gpu: Option<Value>,
    gradient_accumulation_steps: Option<Value>,
    zero_optimization: Option<Zero>,
    fp16: Option<Precision>,
    bf16: Option<Precision>,
}

#[derive(Deserialize)]
struct Zero {
    stage: Option<Value>,
    offload_optimizer: Option<Offload>,
    offload_param: Option<Offload>,
    /// Older names of `offload_optimizer`.
    cpu_offload: Option<Value>,
    cpu_offload_params: Option<Value>,
    stage3_gather_16bit_weights_on_model_save: Option<Value>,
    stage3_gather_fp16_weights_on_model_save: Option<Value>,
}

#[derive(Deserialize)]
struct Offload {
    device: Option<Value>,
}

#[derive(Deserialize)]
struct Precision {
    enabled: Option<Value>,
}

/// A value of whatever type; objects and lists are passed over without being kept.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Flag(bool),
    Number(f64),
    Word(String),
    Other(IgnoredAny),
}

impl Value {
    fn count(&self) -> Option<u32> {
        let Self::Number(n) = self else { return None };
        let in_range = n.fract() == 0.0 && (0.0..=f64::from(MAX_COUNT)).contains(n);
        // Whole and within u32, as tested.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        in_range.then_some(*n as u32)
    }

    fn is_on(&self) -> bool {
        matches!(self, Self::Flag(true))
    }

    fn word(&self) -> Option<String> {
        match self {
            Self::Word(word) if word.len() <= 64 => Some(word.clone()),
            _ => None,
        }
    }
}

/// Reads the file.
pub(super) fn read(text: &str, facts: &mut Facts<'_>) -> Result<(), ReadError> {
    use LaunchSetting as S;
    let config: Config = serde_json::from_str(text).map_err(|e| ReadError::Malformed {
        offset: offset_of(text, e.line(), e.column()),
        why: format!("not a DeepSpeed configuration ({e})"),
        advice: "upload the file that the program was given".to_owned(),
    })?;
    let count = |value: &Option<Value>| value.as_ref().and_then(Value::count);
    let mut add = |key: &str, setting: Option<S>| {
        if let Some(setting) = setting {
            let (line, quote) = place(text, key);
            facts.add(line, quote, 0, setting);
        }
    };
    let positive = |n: Option<u32>| n.filter(|n| *n > 0);
    add("train_batch_size", positive(count(&config.train_batch_size)).map(S::GlobalBatch));
    add("train_micro_batch_size_per_gpu", positive(count(&config.train_micro_batch_size_per_gpu)).map(S::MicroBatch));
    add("gradient_accumulation_steps", positive(count(&config.gradient_accumulation_steps)).map(S::Accumulation));
    for (key, precision) in [("fp16", &config.fp16), ("bf16", &config.bf16)] {
        let is_on = precision.as_ref().and_then(|p| p.enabled.as_ref()).is_some_and(Value::is_on);
        add(key, is_on.then(|| S::MixedPrecision(key.to_owned())));
    }
    let Some(zero) = &config.zero_optimization else { return Ok(()) };
    add("stage", count(&zero.stage).filter(|stage| *stage <= 3).map(S::ZeroStage));
    let device = |offload: &Option<Offload>, older: &Option<Value>| {
        let older = older.as_ref().is_some_and(Value::is_on).then(|| "cpu".to_owned());
        offload.as_ref().and_then(|o| o.device.as_ref()).and_then(Value::word).or(older)
    };
    add("offload_optimizer", device(&zero.offload_optimizer, &zero.cpu_offload).map(S::OffloadOptimizer));
    add("offload_param", device(&zero.offload_param, &zero.cpu_offload_params).map(S::OffloadParameters));
    for (key, value) in [
        ("stage3_gather_16bit_weights_on_model_save", &zero.stage3_gather_16bit_weights_on_model_save),
        ("stage3_gather_fp16_weights_on_model_save", &zero.stage3_gather_fp16_weights_on_model_save),
    ] {
        let flag = value.as_ref().and_then(|v| if let Value::Flag(on) = v { Some(*on) } else { None });
        add(key, flag.map(S::GathersWeightsOnSave));
    }
    Ok(())
}

/// The first line with the key, and its text.
fn place<'t>(text: &'t str, key: &str) -> (u64, &'t str) {
    let quoted = format!("\"{key}\"");
    (1u64..).zip(text.lines()).find(|(_, line)| line.contains(&quoted)).unwrap_or((1, ""))
}

fn offset_of(text: &str, line: usize, column: usize) -> u64 {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    before.saturating_add(column) as u64
}

#[cfg(test)]
mod tests {
    use super::super::read as read_launch;
    use super::super::tests::settings;
    use crate::context::{Limits, ReadContext};
    use rankscope_model::{ArtifactId, LaunchSetting as S, LaunchSource};

    #[test]
    fn a_configuration_of_stage_3() {
        let text = r#"{
  "bf16": {"enabled": true}, "fp16": {"enabled": "auto"},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "stage3_gather_16bit_weights_on_model_save": true,
    "reduce_bucket_size": 2e8, "mystery": [1, {"a": 2}]
  },
  "gradient_accumulation_steps": 4,
  "train_micro_batch_size_per_gpu": "auto",
  "train_batch_size": 64
}"#;
        assert_eq!(
            settings("ds.json", text),
            [
                S::GlobalBatch(64),
                S::Accumulation(4),
                S::MixedPrecision("bf16".into()),
                S::ZeroStage(3),
                S::OffloadOptimizer("cpu".into()),
                S::GathersWeightsOnSave(true),
            ]
        );
    }

    #[test]
    fn damage_is_a_sentence() {
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name: "ds.json", limits: &limits };
        let cut = "{\"zero_optimization\": {\"stage\": 3,";
        let error = read_launch(LaunchSource::DeepspeedConfig, cut, &ctx).unwrap_err();
        assert!(error.to_string().contains("damaged at byte"), "{error}");
    }
}
