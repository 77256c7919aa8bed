//! What an environment variable means here. Names that are not on the list mean nothing and are not kept.

use rankscope_model::LaunchSetting;

/// Variables without a meaning of their own that are kept as they are, because they change memory or binding.
const KEPT: [&str; 16] = [
    "CUDA_DEVICE_ORDER",
    "CUDA_MODULE_LOADING",
    "CUDA_LAUNCH_BLOCKING",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_NODEID",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
    "GROUP_RANK",
    "NODE_RANK",
    "TF_GPU_ALLOCATOR",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
];

/// Longest value kept.
const MAX_VALUE: usize = 200;

/// What `name=value` sets. A value that only the shell could work out (`$GPUS`) sets nothing.
pub(super) fn setting(name: &str, value: &str) -> Option<LaunchSetting> {
    use LaunchSetting as S;
    let value = value.trim().trim_matches(['"', '\'']).trim();
    if value.contains(['$', '`']) || value.len() > MAX_VALUE {
        return None;
    }
    let number = || value.parse::<u32>().ok().filter(|n| *n <= super::command::MAX_COUNT);
    let text = || (!value.is_empty()).then(|| value.to_owned());
    match name {
        "CUDA_VISIBLE_DEVICES" | "HIP_VISIBLE_DEVICES" | "ROCR_VISIBLE_DEVICES" => visible_devices(value),
        "RANK" | "OMPI_COMM_WORLD_RANK" | "PMI_RANK" => number().map(S::Rank),
        "LOCAL_RANK" | "OMPI_COMM_WORLD_LOCAL_RANK" | "MPI_LOCALRANKID" => number().map(S::LocalRank),
        "WORLD_SIZE" | "OMPI_COMM_WORLD_SIZE" | "PMI_SIZE" => positive(number()).map(S::WorldSize),
        "LOCAL_WORLD_SIZE" | "OMPI_COMM_WORLD_LOCAL_SIZE" | "MPI_LOCALNRANKS" => {
            positive(number()).map(S::ProcessesPerNode)
        }
        "NNODES" | "SLURM_NNODES" | "SLURM_JOB_NUM_NODES" => positive(number()).map(S::Nodes),
        "SLURM_GPUS_ON_NODE" => positive(number()).map(S::GpusPerNode),
        "SLURM_GPUS_PER_TASK" => positive(number()).map(S::GpusPerProcess),
        "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_ALLOC_CONF" | "PYTORCH_HIP_ALLOC_CONF" => text().map(S::AllocatorConf),
        "XLA_PYTHON_CLIENT_PREALLOCATE" => truth(value).map(S::Preallocates),
        "TF_FORCE_GPU_ALLOW_GROWTH" => truth(value).map(|grows| S::Preallocates(!grows)),
        "XLA_PYTHON_CLIENT_MEM_FRACTION" | "XLA_CLIENT_MEM_FRACTION" => share(value).map(S::MemoryShare),
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES" => {
            truth(value).filter(|left_alone| *left_alone).map(|_| S::VisibleDevicesLeftAlone)
        }
        "ACCELERATE_MIXED_PRECISION" => text().map(S::MixedPrecision),
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS" => positive(number()).map(S::Accumulation),
        "ACCELERATE_DEEPSPEED_ZERO_STAGE" => number().map(S::ZeroStage),
        "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE" => text().map(S::OffloadOptimizer),
        "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE" => text().map(S::OffloadParameters),
        "FSDP_STATE_DICT_TYPE" => text().map(S::StateDictType),
        "FSDP_SHARDING_STRATEGY" => text().map(S::ShardingStrategy),
        _ if is_kept(name) => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || ",.:;+-_/^=".contains(c);
            let is_value = !value.is_empty() && value.chars().all(is_plain);
            is_value.then(|| S::Variable { name: name.to_owned(), value: value.to_owned() })
        }
        _ => None,
    }
}

/// Settings of NCCL are many; none of them is a secret, and a name that sounds like one is not kept.
fn is_kept(name: &str) -> bool {
    let of_nccl = name.starts_with("NCCL_") || name.starts_with("TORCH_NCCL_");
    let is_secret = ["TOKEN", "KEY", "SECRET", "PASS", "AUTH", "CREDENTIAL"].iter().any(|word| name.contains(word));
    KEPT.contains(&name) || (of_nccl && !is_secret)
}

/// `0,1`, `GPU-8f…`, nothing at all.
pub(super) fn visible_devices(value: &str) -> Option<LaunchSetting> {
    let devices: Vec<String> =
        value.split(',').map(str::trim).filter(|device| !device.is_empty()).map(str::to_owned).collect();
    let is_device = |device: &String| {
        device.len() <= 64 && device.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '/' | ':' | '.'))
    };
    devices.iter().all(is_device).then_some(LaunchSetting::VisibleDevices(devices))
}

fn positive(number: Option<u32>) -> Option<u32> {
    number.filter(|n| *n > 0)
}

/// `1`, `true`, `no`, ...
pub(super) fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// A part of a card, above 0 and up to 1.
pub(super) fn share(value: &str) -> Option<f64> {
    value.parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use LaunchSetting as S;

    #[test]
    fn known_names_are_read_and_others_are_not() {
        assert_eq!(
            setting("CUDA_VISIBLE_DEVICES", "0, 1"),
            Some(S::VisibleDevices(vec!["0".to_owned(), "1".to_owned()]))
        );
        assert_eq!(setting("CUDA_VISIBLE_DEVICES", ""), Some(S::VisibleDevices(vec![])));
        assert_eq!(setting("CUDA_VISIBLE_DEVICES", "$GPUS"), None);
        assert_eq!(setting("WORLD_SIZE", "8"), Some(S::WorldSize(8)));
        assert_eq!(setting("WORLD_SIZE", "0"), None);
        assert_eq!(setting("RANK", "0"), Some(S::Rank(0)));
        assert_eq!(setting("RANK", "3 MEMSTATS"), None);
        assert_eq!(setting("TF_FORCE_GPU_ALLOW_GROWTH", "true"), Some(S::Preallocates(false)));
        assert_eq!(setting("XLA_PYTHON_CLIENT_MEM_FRACTION", ".90"), Some(S::MemoryShare(0.9)));
        assert_eq!(setting("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1"), Some(S::VisibleDevicesLeftAlone));
        assert_eq!(
            setting("NCCL_BUFFSIZE", "4194304"),
            Some(S::Variable { name: "NCCL_BUFFSIZE".to_owned(), value: "4194304".to_owned() })
        );
        for name in ["HF_TOKEN", "HOME", "AWS_SECRET_ACCESS_KEY", "MASTER_ADDR", "NCCL_TOKEN"] {
            assert_eq!(setting(name, "1"), None, "{name}");
        }
    }
}
