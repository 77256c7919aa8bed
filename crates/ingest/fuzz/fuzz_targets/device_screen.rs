//! What tools draw and list: gpustat, nvitop, `rocm-smi`, `amd-smi`, `nvidia-smi -L`, `topo -m`.
#![no_main]

const BEGINNINGS: &[&str] = &[
    "node7                Mon May  6 07:08:09 2024  550.54.15\n[0] NVIDIA A40       | 61'C,  97 % | 21000 / 46068 MB |",
    "│ NVITOP 1.3.2         Driver Version: 550.54.15    CUDA Driver Version: 12.4 │\n│",
    "============================ ROCm System Management Interface ============================\n",
    "GPU[0]\t\t: VRAM Total Memory (B): 68702699520\nGPU[",
    "| AMD-SMI 26.0.0      amdgpu version: 6.14.14  ROCm version: 7.0.0    |\n",
    "GPU: 0\n    MEM_USAGE:\n        TOTAL_VRAM: 196592 MB\n",
    "GPU  VRAM_USED  VRAM_TOTAL\n",
    "GPU 0: NVIDIA A40 (UUID: GPU-5a1b2c3d-0000-4000-8000-000000000002)\n  MIG 1g.5gb Device 0: ",
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t",
    "        GPU0    GPU1    CPU Affinity\nGPU0     X      ",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rankscope_ingest_fuzz::feed_behind(
    BEGINNINGS,
    rankscope_ingest::nvidia_smi::read,
    bytes
));
