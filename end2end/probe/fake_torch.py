"""A stand-in for the parts of torch that the probe looks at, for figures that only a GPU gives.

Every call is recorded, so that tests can say what the probe must never do. The heap is a number that tests set.
"""

import sys
import types


class Module(types.ModuleType):
    pass


class Shape(tuple):
    pass


class Device:
    def __init__(self, text):
        self.type, _, index = text.partition(":")
        self.index = int(index) if index else None
        self.text = text

    def __str__(self):
        return self.text


class Tensor:
    def __init__(self, *shape, dtype="torch.int64", device="cpu", value=1):
        self.shape = Shape(shape)
        self.dtype = dtype
        self.device = Device(device)
        self.value = value

    @property
    def is_cuda(self):
        return self.device.type == "cuda"

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    def element_size(self):
        return 8

    def sum(self):
        if self.is_cuda:
            raise AssertionError("a sum on the GPU must be waited for")
        return Tensor(value=self.value * self.numel())

    def item(self):
        if self.is_cuda:
            raise AssertionError("item() synchronises")
        return self.value


class Cuda(Module):
    """torch.cuda with one allocator per device."""

    def __init__(self, devices=2):
        super().__init__("torch.cuda")
        self.calls = []
        self.initialized = False
        self.heaps = [{"current": 0, "peak": 0, "reserved": 0} for _ in range(devices)]
        self.history = []
        self.memory = types.SimpleNamespace(
            _snapshot=lambda: {"segments": [], "device_traces": []}, _record_memory_history=self.record_history
        )

    def record_history(self, enabled="all", context="all", stacks="all", max_entries=0):
        self.calls.append("_record_memory_history")
        self.history.append(enabled)

    def use(self, device, current, peak=None, reserved=None):
        """What training would do: CUDA is initialised, memory comes and goes."""
        self.initialized = True
        heap = self.heaps[device]
        heap["current"] = current
        heap["peak"] = max(heap["peak"], peak or current)
        heap["reserved"] = max(heap["reserved"], reserved or heap["peak"])

    def is_initialized(self):
        return self.initialized

    def device_count(self):
        self.calls.append("device_count")
        return len(self.heaps)

    def current_device(self):
        self.calls.append("current_device")
        return 0

    def is_current_stream_capturing(self):
        return False

    def memory_stats_as_nested_dict(self, device):
        self.calls.append("memory_stats")
        if not self.initialized:
            return {}
        heap = self.heaps[device]
        none = {"current": 0, "peak": 0}
        return {
            "allocated_bytes": {"all": {"current": heap["current"], "peak": heap["peak"]}},
            "reserved_bytes": {"all": {"current": heap["reserved"], "peak": heap["reserved"]}},
            "active_bytes": {"all": {"current": heap["current"], "peak": heap["peak"]}},
            "inactive_split_bytes": {"all": none},
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }

    def reset_peak_memory_stats(self, device):
        self.calls.append("reset_peak")
        self.heaps[device]["peak"] = self.heaps[device]["current"]

    def mem_get_info(self, device):
        if self.heaps[device]["reserved"] == 0:
            raise AssertionError("mem_get_info on a device without memory creates a context")
        self.calls.append("mem_get_info")
        return (96 << 30) - self.heaps[device]["reserved"] - (512 << 20), 96 << 30

    def get_device_properties(self, device):
        self.calls.append("get_device_properties")
        return types.SimpleNamespace(name="Stand-in", uuid="0000-%d" % device, total_memory=96 << 30)

    def synchronize(self, *unused):
        raise AssertionError("the probe never synchronises")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AssertionError("the probe used torch.cuda.%s" % name)


class Distributed(Module):
    def __init__(self):
        super().__init__("torch.distributed")
        self.rank = None
        self.world_size = None

    def is_available(self):
        return True

    def is_initialized(self):
        return self.rank is not None

    def get_rank(self):
        return self.rank

    def get_world_size(self):
        return self.world_size

    def get_backend(self):
        return "gloo"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AssertionError("the probe used torch.distributed.%s" % name)


def install(devices=2, observer=True):
    """Puts the stand-in where `import torch` finds it, and gives it back."""
    torch = Module("torch")
    torch.__version__ = "2.9.0+standin"
    torch.version = types.SimpleNamespace(cuda="12.8")
    torch.Tensor = Tensor
    torch.cuda = Cuda(devices)
    torch.distributed = Distributed()
    torch.grad = True
    torch.is_grad_enabled = lambda: torch.grad
    torch.observers = []
    torch._C = types.SimpleNamespace()
    if observer:

        def attach(function):
            if not torch.cuda.initialized:
                raise AssertionError("attaching the observer would initialise CUDA")
            torch.observers.append(function)

        torch._C._cuda_attach_out_of_memory_observer = attach
    sys.modules["torch"] = torch
    return torch


def remove():
    for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
        del sys.modules[name]
