# Copyright the Rankscope authors
# SPDX-License-Identifier: Apache-2.0
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance with
# the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0. Unless required by
# applicable law or agreed to in writing, software distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the License for the specific language
# governing permissions and limitations under the License.
"""Rankscope probe: logs what each rank of a training job gets and holds.

    import rankscope_probe as probe
    probe.start()

    for batch in loader:
        probe.step(batch)   # first line of the loop body

Each rank writes ``rankscope_{job}_rank{r}.jsonl``; give the files of all ranks to Rankscope. One file, standard
library only, Python 3.8 and later, torch 1.13 and later (harmless without torch).

The probe never creates a CUDA context, never synchronises a device, never issues a collective and never raises into
the program: after a failure of its own it says so once on stderr and stays off.
"""

import atexit
import collections
import functools
import gc
import gzip
import hashlib
import json
import os
import pickle
import random
import re
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
import weakref

__all__ = [
    "start",
    "step",
    "phase",
    "snapshot",
    "watch",
    "wrap",
    "hf_callback",
    "lightning_callback",
    "close",
]

FORMAT = "rankscope.probe/1"
VERSION = "1.0.0"

#: Phases that the diagnosis knows; others are written as they are.
PHASES = ("init", "train", "eval", "save", "resume")

_RECENT_STEPS = 200  # kept for the moment of an out-of-memory error
_MAX_TENSORS = 32  # described of one batch
_MAX_DEPTH = 6  # of nested batches
_MAX_SHAPES = 1024  # described shapes remembered
_MAX_OOMS = 8  # written of one process; programs that catch the error may go on for ever
_MAX_LINE = 60000  # bytes; readers look at 64 KiB of a line
_SCAN_SECONDS = 1.0  # for one look at the live objects
_SCAN_AT = (2, 20, 200)  # calls of step() after which the live objects are looked at
_MAX_BLOCKS = 50000000  # of a heap that is looked through; above it only watch() tells
_SLOW_QUERY = 200e-6  # seconds; a driver that takes longer is asked at every tenth step only

_probe = None  # of this process
_failed = False  # the probe turned itself off
_forked = False  # this process is a child of one with a probe; start() is wanted for one of its own
_lock = threading.RLock()


# --------------------------------------------------------------------------------------------------------------------
# What a program calls


def start(directory=None, job=None, every=1, reset_peaks=True, url=None, token=None):
    """Starts the probe of this process. Calling it again does nothing.

    directory    where the files go; default RANKSCOPE_DIR, else the working directory
    job          name of the job in the file name; default RANKSCOPE_JOB, else the scheduler's job id, else "job"
    every        write each Nth step only; the last 200 are written all the same when memory runs out
    reset_peaks  reset torch's peak statistics at each step, so that a peak belongs to its step. With False, peaks are
                 left alone and are those since the program's own last reset
    url, token   a Rankscope server to send to as well; default RANKSCOPE_URL and RANKSCOPE_TOKEN (or
                 RANKSCOPE_TOKEN_FILE)
    """
    global _probe, _failed
    if _probe is not None:
        return
    try:
        if os.environ.get("RANKSCOPE", "").strip().lower() in ("0", "off", "false", "no"):
            _failed = True
            return
        if _is_reimport(sys._getframe(1)) or _is_loader_worker():
            return
        with _lock:
            if _probe is None:
                _failed = False
                _probe = _Probe(directory, job, every, reset_peaks, url, token)
    except Exception as error:
        _fail(error)


def step(batch=None, step=None, epoch=None, phase=None, samples=None, tokens=None, done=False):
    """Notes the batch of this step and what memory did since the last call.

    Call it as the first line of the loop body, with the batch as the loader gave it: the peak of a step is read when
    the next one begins. At the end of the loop body call it with done=True instead.

    step, epoch      the job's own count; default: calls in training
    phase            "train", "eval", ...; default: of the enclosing phase(), else told from the model and grad mode
    samples, tokens  where the batch does not show them
    """
    if _probe is None:
        if _failed or _forked:
            return
        start()
        if _probe is None:
            return
    try:
        _probe.step(batch, step, epoch, phase, samples, tokens, done)
    except Exception as error:
        _fail(error)


def phase(name):
    """A phase of the job: `with probe.phase("eval"): ...`. "eval", "save", "resume" and "init" are told apart."""
    return _Phase(str(name))


def snapshot(steps=3, at=None):
    """Records allocations with their stacks for some steps, then writes them as a memory snapshot.

    Call it on all ranks at the same step; with `at` recording begins at that call of step() (counted from 0), so that
    the line may stand before the loop.
    """
    if _probe is None:
        return
    try:
        _probe.plan_snapshot(int(steps), None if at is None else int(at))
    except Exception as error:
        _fail(error)


def watch(model=None, optimizer=None, loader=None):
    """Names the objects to look at, where the probe does not find them itself (after gc.freeze(), for instance)."""
    if _probe is None:
        return
    try:
        for value in (model, optimizer, loader):
            value = getattr(value, "_rankscope_loader", value)
            if value is not None and getattr(type(value), "__weakrefoffset__", 0):
                _probe.watched.append(weakref.ref(value))
    except Exception as error:
        _fail(error)


def wrap(loader, phase=None):
    """The loader, calling step() for each batch. Everything else of the loader is passed through."""
    return _Wrapped(loader, phase)


def close():
    """Ends the log. Done by itself when the process ends."""
    global _probe
    probe, _probe = _probe, None
    if probe is not None:
        try:
            probe.close("close")
        except Exception as error:
            _fail(error)


def hf_callback():
    """A callback for the Trainer of transformers: `Trainer(..., callbacks=[probe.hf_callback()])`."""
    from transformers import TrainerCallback

    class RankscopeCallback(TrainerCallback):
        """Forwards the Trainer's events to the probe."""

        def __init__(self):
            self.hook = None

        @_quietly
        def on_train_begin(self, args, state, control, **kwargs):
            start()
            model = kwargs.get("model")
            watch(model, kwargs.get("optimizer"), kwargs.get("train_dataloader"))
            # A hook would break the graph of a compiled model.
            if not getattr(args, "torch_compile", False):
                self.hook = _hook_forward(model)

        @_quietly
        def on_step_begin(self, args, state, control, **kwargs):
            if self.hook is None:
                # Compiled, or torch before 2.0, which shows no keyword arguments to hooks: memory without shapes.
                step(epoch=_whole(state.epoch), phase="train")

        @_quietly
        def on_step_end(self, args, state, control, **kwargs):
            _hold()

        @_quietly
        def on_evaluate(self, args, state, control, **kwargs):
            _note("eval")

        @_quietly
        def on_save(self, args, state, control, **kwargs):
            _note("save")

        @_quietly
        def on_train_end(self, args, state, control, **kwargs):
            if self.hook is not None:
                self.hook.remove()
                self.hook = None
            _end_of_training()

    return RankscopeCallback()


def lightning_callback():
    """A callback for Lightning: `Trainer(..., callbacks=[probe.lightning_callback()])`."""
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class RankscopeCallback(Callback):
        """Forwards Lightning's events to the probe."""

        @_quietly
        def on_fit_start(self, trainer, pl_module):
            start()
            watch(pl_module)

        @_quietly
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx, *unused):
            step(batch, epoch=trainer.current_epoch, phase="train")

        @_quietly
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, *unused):
            # Checkpoints and validation come next; what they take is not the step's.
            _hold()

        @_quietly
        def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, *unused):
            step(batch, epoch=trainer.current_epoch, phase="eval")

        @_quietly
        def on_test_batch_start(self, trainer, pl_module, batch, batch_idx, *unused):
            step(batch, epoch=trainer.current_epoch, phase="eval")

        @_quietly
        def on_save_checkpoint(self, trainer, pl_module, *unused):
            _note("save")

        @_quietly
        def on_exception(self, trainer, pl_module, exception):
            if _probe is not None:
                _probe.exception(exception)

        @_quietly
        def on_fit_end(self, trainer, pl_module):
            _end_of_training()

    return RankscopeCallback()


# --------------------------------------------------------------------------------------------------------------------
# Staying out of the way


def _fail(error):
    """Turns the probe off for the rest of the process, with one line on stderr."""
    global _probe, _failed
    probe, _probe = _probe, None
    if _failed:
        return
    _failed = True
    try:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = " at line %d" % where.tb_lineno if where is not None else ""
        _say("off for the rest of this process: %s: %s%s" % (type(error).__name__, error, line))
        if probe is not None:
            probe.abandon()
    except Exception:
        pass


def _say(text):
    try:
        sys.stderr.write("rankscope probe: %s\n" % text)
    except Exception:
        pass


def _quietly(function):
    """For callbacks: what goes wrong turns the probe off and is not seen by the trainer."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            _fail(error)
            return None

    return call


def _hold():
    if _probe is not None:
        _probe.hold()


def _note(name):
    if _probe is not None:
        _probe.note_end(name)


def _end_of_training():
    if _probe is not None:
        _probe.scan("end of training")


def _is_reimport(frame):
    """start() stands at the top of a main module which a spawned child imports again: the child is no rank."""
    return frame.f_globals.get("__name__") == "__mp_main__" and frame.f_code.co_name == "<module>"


def _is_loader_worker():
    data = sys.modules.get("torch.utils.data")
    info = getattr(data, "get_worker_info", None)
    return info is not None and info() is not None


def _after_fork():
    """A forked child shares the file with its parent, and has none of its threads: it must not write."""
    global _probe, _forked, _lock
    _lock = threading.RLock()
    if _probe is not None:
        _probe.forget()
        _probe = None
        _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# --------------------------------------------------------------------------------------------------------------------
# The probe of one process


class _Probe:
    def __init__(self, directory, job, every, reset_peaks, url, token):
        self.directory = os.path.abspath(directory or os.environ.get("RANKSCOPE_DIR") or ".")
        self.job = _safe_name(job or _job_name())
        self.every = max(int(every), 1)
        self.reset_peaks = bool(reset_peaks)
        self.url = url or os.environ.get("RANKSCOPE_URL") or None
        self.token = token or _token()
        self.identity = _identity()
        self.began = _micros()
        self.file = None
        self.path = None
        self.held = []  # records before the rank is known
        self.seq = 0
        self.calls = 0  # of step()
        self.train_steps = 0
        self.written_call = -2
        self.last_step = 0
        self.phases = []
        self.phase_name = "init"
        self.cuda = None  # torch.cuda once this process holds memory on a device
        self.device = None
        self.run_peak = 0
        self.carried = None  # memory read at the end of a step whose successor has not begun
        self.slow_query = False
        self.capturing = None
        self.shapes = {}
        self.tensor = None  # torch.Tensor, once torch is there
        self.recent = collections.deque(maxlen=_RECENT_STEPS)
        self.watched = []
        self.model = None  # weak reference to the largest module
        self.scan_at = collections.deque(_SCAN_AT)
        self.passes = weakref.WeakKeyDictionary()  # by loader, of wrap()
        self.plan = None  # (first call, last call) of a snapshot with history
        self.recording = False
        self.ooms = 0
        self.oom_texts = set()
        self.seen_ooms = 0  # by the observer, whose exception has not been met yet
        self.observes = False
        self.sender = None
        self.lock = threading.RLock()  # loaders and callbacks may live in other threads
        self.open_if_known()
        self.write("start", self.start_record())
        self.excepthook = sys.excepthook
        sys.excepthook = self.on_exception
        atexit.register(self.at_exit)

    # ---- the file

    def open_if_known(self, at_last=False):
        """Opens the file once the rank is known: from the launcher, or from the process group."""
        if self.file is not None:
            return
        _refine(self.identity)
        if self.identity["rank"] is None:
            if not at_last:
                return
            self.identity.update(rank=0, world_size=self.identity["world_size"] or 1, rank_from="default")
        os.makedirs(self.directory, exist_ok=True)
        stem = os.path.join(self.directory, "rankscope_%s_rank%d" % (self.job, self.identity["rank"]))
        # A second life of a rank (a restart, a notebook) gets a file of its own: steps of two lives never mix.
        for life in range(1, 10000):
            path = stem + (".jsonl" if life == 1 else "_%d.jsonl" % life)
            try:
                self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | _CLOEXEC, 0o644)
                break
            except FileExistsError:
                continue
        if self.file is None:
            raise OSError("no free file name beside %s.jsonl" % stem)
        self.path = path
        held, self.held = self.held, []
        for kind, now, record in held:
            if kind == "start":
                record.update(self.identity)
            self.write(kind, record, now)
        if self.url:
            if self.token:
                self.sender = _Sender(self.url, self.token, self.path, self.source(), self.identity["rank"])
                self.sender.start()
            else:
                _say("RANKSCOPE_URL is set but no token is (RANKSCOPE_TOKEN, RANKSCOPE_TOKEN_FILE): nothing is sent")

    def source(self):
        """Names this process: with it and `seq` a record is counted once, however often it is sent."""
        return "%s/%s/%d/%d" % (self.job, self.identity["host"], os.getpid(), self.began)

    def write(self, kind, record, now=None):
        with self.lock:
            now = _micros() if now is None else now
            if self.file is None:
                if len(self.held) < 1000:
                    self.held.append((kind, now, record))
                return
            line = {"type": kind, "seq": self.seq, "t": now}
            line.update(record)
            text = json.dumps(line, separators=(",", ":"), default=str)
            if len(text) > _MAX_LINE and kind == "facts":
                for module in line.get("modules", ()):
                    module.pop("groups", None)
                line["partial"] = True
                text = json.dumps(line, separators=(",", ":"), default=str)
            self.put(text)

    def put(self, text):
        _write_all(self.file, (text + "\n").encode("utf-8", "replace"))
        self.seq += 1

    # ---- records

    def start_record(self):
        torch = sys.modules.get("torch")
        record = {
            "format": FORMAT,
            "probe": VERSION,
            "job": self.job,
            "every": self.every,
            "reset_peaks": self.reset_peaks,
            "pid": os.getpid(),
            "python": "%d.%d.%d" % sys.version_info[:3],
            "torch": getattr(torch, "__version__", None) and str(torch.__version__),
            "cuda": getattr(getattr(torch, "version", None), "cuda", None),
            "driver": _driver_version(),
            "script": _cut(sys.argv[0] if sys.argv else "", 400),
            "arguments": _masked(sys.argv[1:]),
            "launcher": _launcher(),
            "directory": _cut(os.getcwd(), 400),
            "environment": _environment(),
        }
        record.update(self.identity)
        return record

    def step(self, batch, step, epoch, phase, samples, tokens, done):
        with self.lock:
            if self.file is None:
                # The first batch is the last moment to learn the rank: by now the process group stands, or never will.
                self.open_if_known(at_last=True)
            call = self.calls
            self.calls = call + 1
            # What was read belongs to the phase up to now; the new one begins here.
            memory = self.memory()
            if self.carried is not None:
                memory, self.carried = self.carried, None
            if phase is None:
                phase, how = self.current_phase()
            else:
                how = "given"
            if phase not in PHASES:
                phase = json.dumps(_cut(phase, 40))[1:-1]
            self.phase_name = phase
            if phase == "train":
                number = self.train_steps if step is None else int(step)
                self.train_steps += 1
                self.last_step = number
            else:
                number = self.last_step if step is None else int(step)
            described, mask = self.describe(batch)
            if samples is not None:
                described += ',"samples":%d' % samples
            elif mask is not None and mask[2] is not None:
                described += ',"samples":%d' % mask[2]
            if tokens is not None:
                described += ',"tokens":%d' % tokens
            elif mask is not None:
                if mask[1] is not None:
                    described += ',"tokens":%d' % mask[1]
                if mask[0] is not None:
                    described += ',"tokens_unpadded":%d' % mask[0].sum().item()
            rest = '"t":%d,"n":%d,"step":%d,%s"phase":"%s","phase_from":"%s"%s%s%s}' % (
                _micros(),
                call,
                number,
                '"epoch":%d,' % epoch if epoch is not None else "",
                phase,
                how,
                described,
                memory,
                ',"done":true' if done else "",
            )
            # With `every`, the call after a chosen one is written too: it holds the chosen one's peak.
            if self.every == 1 or call % self.every < (1 if done else 2):
                self.put('{"type":"step","seq":%d,%s' % (self.seq, rest))
            else:
                self.recent.append(rest)
            if self.plan is not None:
                self.follow_plan(call)
            if self.scan_at and call >= self.scan_at[0]:
                self.scan_at.popleft()
                self.scan("step")

    def current_phase(self):
        if self.phases:
            return self.phases[-1], "given"
        torch = sys.modules.get("torch")
        if torch is None:
            return "train", "default"
        if not torch.is_grad_enabled():
            return "eval", "grad_mode"
        model = self.model() if self.model is not None else None
        if model is not None:
            return ("train" if model.training else "eval"), "model"
        return "train", "default"

    def describe(self, batch):
        """The batch as a piece of JSON, and (mask on the CPU, tokens, samples)."""
        if batch is None:
            return "", None
        kind = self.tensor
        if kind is None:
            kind = self.tensor = getattr(sys.modules.get("torch"), "Tensor", None)
            if kind is None:
                return "", None
        tensors = []
        _collect(batch, "", tensors, 0, kind)
        if not tensors:
            return "", None
        key = []
        for name, tensor in tensors:
            key.append(name)
            key.append(tensor.shape)
            key.append(tensor.dtype)
        key = tuple(key)
        known = self.shapes.get(key)
        if known is None:
            if len(self.shapes) >= _MAX_SHAPES:
                self.shapes.clear()
            known = self.shapes[key] = _description(tensors)
        text, at, tokens, samples = known
        mask = None
        if at is not None:
            # A sum on the GPU would have to be waited for.
            mask = tensors[at][1]
            if mask.device.type != "cpu":
                mask = None
        return text, (mask, tokens, samples)

    # ---- memory

    def memory(self):
        """Allocator figures since the last call, as a piece of JSON; peaks begin anew."""
        cuda = self.cuda
        if cuda is None:
            cuda = self.find_device()
            if cuda is None:
                return ""
        device = self.device
        stats = cuda.memory_stats_as_nested_dict(device)
        allocated = stats["allocated_bytes"]["all"]
        reserved = stats["reserved_bytes"]["all"]
        peak = allocated["peak"]
        if peak > self.run_peak:
            self.run_peak = peak
        text = (
            ',"mem":{"device":%d,"allocated":%d,"peak":%d,"reserved":%d,"peak_reserved":%d,"active":%d,"split":%d,'
            '"run_peak":%d,"retries":%d,"ooms":%d'
            % (
                device,
                allocated["current"],
                peak,
                reserved["current"],
                reserved["peak"],
                stats["active_bytes"]["all"]["current"],
                stats["inactive_split_bytes"]["all"]["current"],
                self.run_peak,
                stats["num_alloc_retries"],
                stats["num_ooms"],
            )
        )
        if self.reset_peaks:
            cuda.reset_peak_memory_stats(device)
        if not self.slow_query or self.calls % 10 == 0:
            if self.capturing is None or not self.capturing():
                before = time.perf_counter()
                free, total = cuda.mem_get_info(device)
                self.slow_query = time.perf_counter() - before > _SLOW_QUERY
                return text + ',"free":%d,"total":%d}' % (free, total)
        return text + "}"

    def find_device(self):
        """The device on which this process holds memory. Before there is one nothing is asked of the driver: asking
        for free memory would create the very context that the probe looks for."""
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        if cuda is None or not cuda.is_initialized():
            return None
        held = _held_devices(cuda)
        if not held:
            return None
        self.device = max(held, key=lambda index: held[index][1])
        self.cuda = cuda
        self.capturing = getattr(cuda, "is_current_stream_capturing", None)
        self.observe()
        return cuda

    # ---- phases

    def enter(self, name):
        with self.lock:
            self.note_phase(name, "begin")
            self.phases.append(name)
            self.phase_name = name

    def leave(self, name):
        with self.lock:
            if self.phases:
                self.phases.pop()
            self.note_phase(name, "end")
            self.phase_name = self.phases[-1] if self.phases else "train"

    def note_phase(self, name, event):
        self.put_carried()
        self.write("phase", self.with_memory(self.phase_record(name, event), self.memory()))

    def phase_record(self, name, event):
        return {"phase": name, "event": event, "n": self.calls, "step": self.last_step}

    def hold(self):
        """The work of a step is done; what comes before the next one is not its own."""
        with self.lock:
            if self.calls > 0:
                self.carried = self.memory()

    def note_end(self, name):
        """What came since the last reading was this phase."""
        with self.lock:
            self.note_phase(name, "end")

    def put_carried(self):
        if self.carried is not None:
            text, self.carried = self.carried, None
            self.write("phase", self.with_memory(self.phase_record(self.phase_name, "end"), text))

    def with_memory(self, record, text):
        if text:
            record["mem"] = json.loads(text[len(',"mem":') :])
        return record

    # ---- live objects

    def scan(self, why):
        with self.lock:
            facts = _facts(self)
            record = {"n": self.calls, "train_steps": self.train_steps, "why": why}
            record.update(facts)
            self.write("facts", record)
            # Whether set_epoch is called shows only in the second pass.
            lengths = [loader["batches"] for loader in facts["loaders"] if loader.get("batches")]
            if why == "step" and lengths:
                second_pass = max(lengths) + 2
                if second_pass > self.calls and second_pass not in self.scan_at:
                    self.scan_at = collections.deque(sorted(list(self.scan_at) + [second_pass]))

    # ---- snapshots

    def plan_snapshot(self, steps, at):
        with self.lock:
            first = self.calls if at is None else at
            if steps > 0 and first >= self.calls and self.plan is None:
                self.plan = (first, first + steps)
                if at is None:
                    self.follow_plan(self.calls)

    def follow_plan(self, call):
        first, last = self.plan
        if call >= first and not self.recording:
            if self.cuda is None and self.find_device() is None:
                return
            self.recording = _record_history(self.cuda, True)
            if not self.recording:
                self.plan = None
                _say("this torch records no allocation history; no snapshot is written")
        elif call >= last and self.recording:
            path = self.dump("step%d" % self.last_step)
            _record_history(self.cuda, False)
            self.recording, self.plan = False, None
            self.write("snapshot", {"n": self.calls, "step": self.last_step, "file": path and os.path.basename(path)})

    def dump(self, word):
        path = "%s_%s.pickle" % (self.path[: -len(".jsonl")], word)
        try:
            with open(path, "wb") as file:
                pickle.dump(self.cuda.memory._snapshot(), file)
            return path
        except Exception as error:
            _say("no snapshot: %s: %s" % (type(error).__name__, error))
            return None

    # ---- out of memory

    def observe(self):
        """Asks torch to tell when an allocation fails, at that very moment. Only after CUDA is in use: attaching
        would initialise it."""
        if self.observes:
            return
        self.observes = True
        native = getattr(sys.modules.get("torch"), "_C", None)
        attach = getattr(native, "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            return
        me = weakref.ref(self)

        def observer(device, wanted, device_total, device_free):
            probe = me()
            if probe is not None and probe is _probe:
                try:
                    probe.out_of_memory(None, device, wanted, device_total, device_free)
                except Exception as error:
                    _fail(error)

        attach(observer)

    def exception(self, error):
        if _is_out_of_memory(error):
            self.out_of_memory(str(error), None, None, None, None)

    def on_exception(self, kind, error, trace):
        """The process dies of an exception: what torch's observer did not see is read here."""
        try:
            if self is _probe:
                self.exception(error)
        except Exception as own:
            _fail(own)
        self.excepthook(kind, error, trace)

    def out_of_memory(self, text, device, wanted, total, free):
        with self.lock:
            if self.ooms >= _MAX_OOMS or (text is not None and text in self.oom_texts):
                return
            if text is not None:
                self.oom_texts.add(text)
            self.open_if_known(at_last=True)
            record = {"n": self.calls, "step": self.last_step, "phase": self.phase_name}
            if text is not None and self.seen_ooms > 0:
                # The exception of what the observer saw: only its text is new.
                self.seen_ooms = 0
                record.update(message=_cut(text, 4000), same=True)
                self.write("oom", record)
                return
            if text is None:
                self.seen_ooms += 1
            for rest in self.recent:
                self.put('{"type":"step","seq":%d,%s' % (self.seq, rest))
            self.recent.clear()
            self.ooms += 1
            if text is not None:
                record["message"] = _cut(text, 4000)
            for key, value in (("device", device), ("wanted", wanted), ("total", total), ("free", free)):
                if value is not None:
                    record[key] = int(value)
            if self.cuda is not None:
                stats = self.cuda.memory_stats_as_nested_dict(self.device if device is None else device)
                record["stats"] = _flat(stats)
                # Only the first: a program that catches the error and tries again would fill the disk.
                if self.ooms == 1:
                    path = self.dump("oom")
                    record["snapshot"] = path and os.path.basename(path)
            self.write("oom", record)
            os.fsync(self.file)

    # ---- the end

    def at_exit(self):
        if self is _probe:
            close()

    def close(self, why):
        with self.lock:
            if self.file is None and self.calls == 0:
                # Never a rank: the parent that spawned them, or a program that only imports.
                self.let_go()
                return
            self.open_if_known(at_last=True)
            self.put_carried()
            self.write("end", self.with_memory({"n": self.calls, "train_steps": self.train_steps}, self.memory()))
            self.let_go()
        if self.sender is not None:
            self.sender.finish()
        os.close(self.file)
        self.file = None

    def abandon(self):
        self.let_go()
        if self.sender is not None:
            self.sender.stop()
        if self.file is not None:
            os.close(self.file)
            self.file = None

    def forget(self):
        """In a forked child: the file is the parent's."""
        self.let_go()
        if self.file is not None:
            os.close(self.file)
            self.file = None

    def let_go(self):
        if sys.excepthook == self.on_exception:
            sys.excepthook = self.excepthook
        atexit.unregister(self.at_exit)


_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


def _write_all(file, data):
    done = os.write(file, data)
    while done < len(data):
        done += os.write(file, data[done:])


class _Phase:
    """`with` and decorator; nests."""

    def __init__(self, name):
        self.name = name
        self.probe = None

    def __enter__(self):
        self.probe = _probe
        if self.probe is not None:
            try:
                self.probe.enter(self.name)
            except Exception as error:
                _fail(error)
        return self

    def __exit__(self, kind, error, trace):
        if self.probe is not None and self.probe is _probe:
            try:
                if error is not None:
                    self.probe.exception(error)
                self.probe.leave(self.name)
            except Exception as own:
                _fail(own)
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            with _Phase(self.name):
                return function(*args, **kwargs)

        return call


class _Wrapped:
    def __init__(self, loader, phase):
        self._rankscope_loader = loader
        self._rankscope_phase = phase

    def __iter__(self):
        loader = self._rankscope_loader
        try:
            if _probe is not None:
                _probe.passes[loader] = _probe.passes.get(loader, 0) + 1
        except Exception:
            pass  # a loader that cannot be referred to weakly is not counted
        for batch in loader:
            step(batch, phase=self._rankscope_phase)
            yield batch

    def __len__(self):
        return len(self._rankscope_loader)

    def __getattr__(self, name):
        # Copying and unpickling ask for attributes of an object that has none yet.
        if name.startswith("__") or "_rankscope_loader" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._rankscope_loader, name)


def _hook_forward(model):
    """Sees the batch as the model's arguments; None where torch cannot show keyword arguments."""
    if model is None:
        return None

    def before_forward(module, args, kwargs):
        step(kwargs or list(args), phase="train" if module.training else "eval")

    try:
        return model.register_forward_pre_hook(before_forward, with_kwargs=True)
    except TypeError:
        return None


# --------------------------------------------------------------------------------------------------------------------
# Batches


def _collect(value, name, found, depth, tensor):
    """The tensors of a batch with their names, in order."""
    if isinstance(value, tensor):
        found.append((name, value))
        return
    if value is None or depth >= _MAX_DEPTH or isinstance(value, (str, bytes, int, float)):
        return
    if isinstance(value, (list, tuple)):
        # A list of samples may be long; its first elements show what they are.
        for index, item in enumerate(value[:_MAX_TENSORS]):
            if len(found) >= _MAX_TENSORS:
                return
            _collect(item, "%s[%d]" % (name, index), found, depth + 1, tensor)
        return
    items = getattr(value, "items", None)
    if callable(items):
        pairs = items()
    elif hasattr(value, "__dict__"):
        pairs = vars(value).items()
    else:
        return
    prefix = name + "." if name else ""
    for key, item in pairs:
        if len(found) >= _MAX_TENSORS:
            return
        if isinstance(item, tensor):
            found.append((prefix + key if type(key) is str else prefix + str(key), item))
        else:
            _collect(item, prefix + str(key), found, depth + 1, tensor)


def _description(tensors):
    """(JSON, place of the attention mask, tokens with padding, samples) of a batch of this shape."""
    text = ',"batch":%s' % json.dumps(
        [[_cut(name, 80), list(tensor.shape), str(tensor.dtype).replace("torch.", "")] for name, tensor in tensors],
        separators=(",", ":"),
    )
    mask = ids = None
    for at, (name, tensor) in enumerate(tensors):
        last = name.rsplit(".", 1)[-1]
        if len(tensor.shape) == 2:
            if last == "attention_mask" and mask is None:
                mask = at
            elif last in ("input_ids", "tokens", "inputs_embeds") and ids is None:
                ids = at
    shown = ids if ids is not None else mask
    tokens = None
    if shown is not None:
        shape = tensors[shown][1].shape
        tokens = int(shape[0]) * int(shape[1])
    sized = [tensor for _, tensor in tensors if len(tensor.shape) > 0]
    first = tensors[shown][1] if shown is not None else (sized[0] if sized else None)
    return text, mask, tokens, None if first is None else int(first.shape[0])


# --------------------------------------------------------------------------------------------------------------------
# Live objects


def _facts(probe):
    """Loaders, wrappers, modules, optimizers and devices of this process, from the objects that are alive."""
    torch = sys.modules.get("torch")
    facts = {"dist": _group(torch), "devices": _devices(torch), "loaders": [], "wrappers": [], "modules": []}
    facts["optimizers"] = []
    if torch is None:
        return facts
    found, whole = _live(probe)
    if not whole:
        facts["partial"] = True
    facts["loaders"] = [_safely(_loader, loader, probe) for loader in found["loader"][:16]]
    inner = set()
    for module in found["module"]:
        for child in list(getattr(module, "_modules", {}).values()):
            inner.add(id(child))
    roots = [module for module in found["module"] if id(module) not in inner]
    # The parts of a wrapped model may be wrapped as well; the outermost one tells.
    outer = [module for module in found["wrapper"] if id(module) not in inner] or found["wrapper"][:4]
    facts["wrappers"] = [_safely(_wrapper, module) for module in outer[:16]]
    sized = [(_own_bytes(module), module) for module in roots]
    sized = sorted([pair for pair in sized if pair[0] > 0], key=lambda pair: -pair[0])[:8]
    probe.model = _trained(sized, found["optimizer"])
    facts["modules"] = [_safely(_module, module) for _, module in sized]
    known = set()
    for _, module in sized:
        known.update(id(parameter) for parameter in module.parameters())
    facts["optimizers"] = [_safely(_optimizer, optimizer, known) for optimizer in found["optimizer"][:8]]
    return facts


def _trained(sized, optimizers):
    """The module that most of the optimizers' parameters are of: its mode tells training from evaluation, while a
    teacher or an averaged copy always says evaluation."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    managed = {id(parameter) for group in groups for parameter in group["params"]}
    shares = [(sum(1 for parameter in module.parameters() if id(parameter) in managed), module) for _, module in sized]
    most = max(shares, key=lambda pair: pair[0], default=(0, None))
    # Through a wrapper's own flag the mode of the wrapped model would not show.
    return weakref.ref(_unwrapped(most[1])) if most[0] > 0 else None


def _live(probe):
    """Objects of the kinds that matter, told by type alone: nothing of a foreign object is run."""
    found = {"loader": [], "wrapper": [], "module": [], "optimizer": []}
    kinds = {}
    seen = set()
    until = time.monotonic() + _SCAN_SECONDS
    whole = True

    def take(value):
        kind = type(value)
        names = kinds.get(kind)
        if names is None:
            names = kinds[kind] = _kinds(kind)
        if names and id(value) not in seen:
            seen.add(id(value))
            for name in names:
                found[name].append(value)

    for reference in probe.watched:
        value = reference()
        if value is not None:
            take(value)
            for module in list(value.modules()) if "module" in kinds.get(type(value), ()) else ():
                take(module)
    if getattr(sys, "getallocatedblocks", int)() > _MAX_BLOCKS:
        return found, False
    for count, value in enumerate(gc.get_objects()):
        take(value)
        if count & 0xFFFF == 0xFFFF and time.monotonic() > until:
            whole = False
            break
    return found, whole


_WRAPPERS = {
    "DistributedDataParallel": "ddp",
    "FullyShardedDataParallel": "fsdp",
    "FSDPModule": "fsdp2",
    "DeepSpeedEngine": "deepspeed",
    "DataParallel": "data_parallel",
}


def _kinds(kind):
    """What an object of this type is to the probe: by the names of its base classes."""
    names = []
    try:
        bases = kind.__mro__
        for base in bases:
            place = (getattr(base, "__module__", "") or "", base.__name__)
            if place == ("torch.nn.modules.module", "Module"):
                names.append("module")
            elif place == ("torch.utils.data.dataloader", "DataLoader"):
                names.append("loader")
            elif place == ("torch.optim.optimizer", "Optimizer"):
                names.append("optimizer")
            elif base.__name__ in _WRAPPERS and "wrapper" not in names:
                names.append("wrapper")
    except Exception:
        return ()
    return tuple(names)


def _safely(describe, *arguments):
    """One object that cannot be described leaves the others."""
    try:
        return describe(*arguments)
    except Exception as error:
        return {"class": _class_name(arguments[0]), "error": "%s: %s" % (type(error).__name__, _cut(str(error), 200))}


def _loader(loader, probe):
    dataset = loader.dataset
    iterable = any(base.__name__ == "IterableDataset" for base in type(dataset).__mro__)
    record = {
        "class": _class_name(loader),
        "dataset": _class_name(dataset),
        "iterable": iterable,
        "batch_size": _whole(getattr(loader, "batch_size", None)),
        "drop_last": _truth(getattr(loader, "drop_last", None)),
        "workers": _whole(getattr(loader, "num_workers", None)),
        "passes": probe.passes.get(loader),
    }
    if not iterable:
        record["dataset_len"] = _length(dataset)
        record["batches"] = _length(loader)
    record["samplers"] = []
    # A batch sampler holds the sampler that deals; frameworks put shards of their own around both.
    queue = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)]
    seen = set()
    while queue and len(seen) < 6:
        sampler = queue.pop(0)
        if sampler is None or id(sampler) in seen or isinstance(sampler, (list, tuple, range)):
            continue
        seen.add(id(sampler))
        record["samplers"].append(_sampler(sampler))
        queue += [getattr(sampler, "sampler", None), getattr(sampler, "batch_sampler", None)]
    return record


def _sampler(sampler):
    record = {"class": _class_name(sampler), "len": _length(sampler)}
    for key, names in (
        ("num_replicas", ("num_replicas", "num_processes")),
        ("rank", ("rank", "process_index")),
        ("epoch", ("epoch",)),
        ("seed", ("seed",)),
    ):
        for name in names:
            value = _whole(getattr(sampler, name, None))
            if value is not None:
                record[key] = value
                break
    for key in ("shuffle", "drop_last"):
        value = _truth(getattr(sampler, key, None))
        if value is not None:
            record[key] = value
    record["has_set_epoch"] = callable(getattr(sampler, "set_epoch", None))
    return record


def _wrapper(module):
    kind = next(_WRAPPERS[base.__name__] for base in type(module).__mro__ if base.__name__ in _WRAPPERS)
    record = {"kind": kind, "class": _class_name(module)}
    inner = getattr(module, "_modules", {}).get("module")
    if inner is not None:
        record["module"] = _class_name(inner)
    devices = getattr(module, "device_ids", None)
    if isinstance(devices, (list, tuple)):
        record["device_ids"] = [getattr(device, "index", device) for device in devices]
    for key in ("find_unused_parameters", "static_graph", "gradient_as_bucket_view", "broadcast_buffers"):
        value = _truth(getattr(module, key, None))
        if value is not None:
            record[key] = value
    output = _whole(getattr(module, "output_device", None))
    if output is not None:
        record["output_device"] = output
    strategy = getattr(module, "sharding_strategy", None)
    if strategy is not None:
        record["sharding"] = str(getattr(strategy, "name", strategy))
    stage = getattr(getattr(getattr(module, "_config", None), "zero_config", None), "stage", None)
    if stage is not None:
        record["sharding"] = "zero%s" % int(stage)
    return record


def _own_bytes(module):
    try:
        total = 0
        for tensors in (module.parameters(), module.buffers()):
            for tensor in tensors:
                total += _tensor_bytes(tensor)
        return total
    except Exception:
        return 0


def _module(module):
    parameters = [(_plain(name), value) for name, value in module.named_parameters()]
    buffers = [(_plain(name), value) for name, value in module.named_buffers()]
    largest = sorted(buffers, key=lambda pair: -_tensor_bytes(pair[1]))[:16]
    return {
        "class": _class_name(_unwrapped(module)),
        "training": bool(module.training),
        "parameters": {
            "count": len(parameters),
            "bytes": _by_device(value for _, value in parameters),
            "trainable": sum(_tensor_bytes(value) for _, value in parameters if value.requires_grad),
            "digest": _digest(parameters),
        },
        "groups": _groups(parameters),
        "buffers": {
            "count": len(buffers),
            "bytes": _by_device(value for _, value in buffers),
            "digest": _digest(buffers),
            "largest": [
                {
                    "name": _cut(name, 120),
                    "bytes": _tensor_bytes(value),
                    "shape": [int(size) for size in value.shape],
                    "device": str(value.device),
                }
                for name, value in largest
            ],
        },
    }


def _groups(parameters):
    """Parameters by module, as deep as 32 groups allow; ranks are compared by these."""
    groups = {}
    for depth in (4, 3, 2, 1):
        groups = collections.OrderedDict()
        for name, value in parameters:
            groups.setdefault(".".join(name.split(".")[:-1][:depth]), []).append((name, value))
        if len(groups) <= 32:
            break
    return [
        {
            "name": _cut(name, 120),
            "count": len(members),
            "bytes": sum(_tensor_bytes(value) for _, value in members),
            "digest": _digest(members),
        }
        for name, members in list(groups.items())[:32]
    ]


def _optimizer(optimizer, known):
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    tensors = []
    for value in list(optimizer.state.values()):
        if isinstance(value, dict):
            tensors += [item for item in value.values() if hasattr(item, "element_size")]
    return {
        "class": _class_name(optimizer),
        "parameters": len(parameters),
        "parameter_bytes": _by_device(parameters),
        "state_bytes": _by_device(tensors),
        # Parameters that no module has: built before the model was wrapped or made anew.
        "stray": sum(1 for parameter in parameters if known and id(parameter) not in known),
    }


def _digest(named):
    """Equal on ranks that hold tensors of the same names, shapes and types."""
    text = ";".join(
        "%s %s %s %d" % (name, list(value.shape), value.dtype, bool(value.requires_grad)) for name, value in named
    )
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


_PREFIXES = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module")


def _plain(name):
    """Without what wrappers add, so that a wrapped and a bare copy of a model compare as equal."""
    return ".".join(part for part in name.split(".") if part not in _PREFIXES)


def _unwrapped(module):
    for _ in range(4):
        children = getattr(module, "_modules", {})
        if len(children) != 1 or next(iter(children)) not in _PREFIXES:
            break
        module = next(iter(children.values()))
    return module


def _local(tensor):
    """The part of a sharded tensor that this rank holds."""
    return getattr(tensor, "_local_tensor", tensor)


def _tensor_bytes(tensor):
    tensor = _local(tensor)
    return int(tensor.numel()) * int(tensor.element_size())


def _by_device(tensors):
    totals = {}
    for tensor in tensors:
        place = str(_local(tensor).device)
        totals[place] = totals.get(place, 0) + _tensor_bytes(tensor)
    return totals


def _group(torch):
    dist = getattr(torch, "distributed", None)
    try:
        if dist is None or not dist.is_available() or not dist.is_initialized():
            return {"initialized": False}
        return {
            "initialized": True,
            "backend": str(dist.get_backend()),
            "rank": int(dist.get_rank()),
            "world_size": int(dist.get_world_size()),
        }
    except Exception:
        return {"initialized": False}


def _held_devices(cuda):
    """{index: (allocated, reserved)} of the devices on which this process's allocator holds memory."""
    held = {}
    for index in range(cuda.device_count()):
        stats = cuda.memory_stats_as_nested_dict(index)
        if not stats:
            continue
        reserved = stats["reserved_bytes"]["all"]["current"]
        if reserved > 0 or stats["reserved_bytes"]["all"]["peak"] > 0:
            held[index] = (stats["allocated_bytes"]["all"]["current"], reserved)
    return held


def _devices(torch):
    cuda = getattr(torch, "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():
            return []
        records = []
        for index, (allocated, reserved) in sorted(_held_devices(cuda).items()):
            facts = cuda.get_device_properties(index)
            uuid = getattr(facts, "uuid", None)
            records.append(
                {
                    "index": index,
                    "name": str(facts.name),
                    "uuid": uuid and "GPU-%s" % str(uuid).replace("GPU-", ""),
                    "total": int(facts.total_memory),
                    "allocated": allocated,
                    "reserved": reserved,
                    "current": index == cuda.current_device(),
                }
            )
        return records
    except Exception:
        return []


def _record_history(cuda, on):
    """Turns allocation history on or off, whichever way this torch has it."""
    record = getattr(cuda.memory, "_record_memory_history", None)
    if record is None:
        return False
    attempts = ({"enabled": "all", "stacks": "python", "max_entries": 200000}, {"enabled": True})
    if not on:
        attempts = ({"enabled": None}, {"enabled": False})
    for arguments in attempts:
        try:
            record(**arguments)
            return True
        except (TypeError, RuntimeError):
            continue
    return False


# --------------------------------------------------------------------------------------------------------------------
# Who and where


def _identity():
    """Rank and world size as the launcher tells them, and where this is."""
    environment = os.environ
    identity = {
        "rank": None,
        "world_size": None,
        "local_rank": None,
        "rank_from": None,
        "host": socket.gethostname(),
    }
    several = _number(environment.get("SLURM_NTASKS")) or 0
    for rank, size, local, applies in (
        ("RANK", "WORLD_SIZE", "LOCAL_RANK", True),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", True),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", True),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", several > 1),
    ):
        number = _number(environment.get(rank)) if applies else None
        if number is not None:
            identity.update(
                rank=number,
                world_size=_number(environment.get(size)),
                local_rank=_number(environment.get(local)),
                rank_from=rank,
            )
            break
    if identity["local_rank"] is None:
        identity["local_rank"] = _number(environment.get("LOCAL_RANK"))
    master = [environment[name] for name in ("MASTER_ADDR", "MASTER_PORT") if environment.get(name)]
    identity["master"] = ":".join(master) or None
    return identity


def _refine(identity):
    """Where no launcher told it, the process group does; it knows without asking the others."""
    if identity["rank"] is not None and identity["world_size"] is not None:
        return
    group = _group(sys.modules.get("torch"))
    if group["initialized"]:
        if identity["rank"] is None:
            identity.update(rank=group["rank"], rank_from="process_group")
        identity["world_size"] = group["world_size"]


def _job_name():
    environment = os.environ
    for name in ("RANKSCOPE_JOB", "SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "TORCHELASTIC_RUN_ID"):
        value = environment.get(name, "").strip()
        if value and value.lower() != "none":
            return value
    return "job"


def _token():
    token = os.environ.get("RANKSCOPE_TOKEN", "").strip()
    path = os.environ.get("RANKSCOPE_TOKEN_FILE", "").strip()
    if not token and path:
        try:
            with open(path, encoding="utf-8") as file:
                token = file.read().strip()
        except OSError as error:
            _say("the token file cannot be read: %s" % error)
    return token or None


def _launcher():
    """The parent's command line, which is torchrun's, srun's or the shell's."""
    try:
        with open("/proc/%d/cmdline" % os.getppid(), "rb") as file:
            words = file.read(8192).decode("utf-8", "replace").split("\0")
        return _masked([word for word in words if word])
    except OSError:
        return None


def _driver_version():
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8", errors="replace") as file:
            found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", file.readline())
        return found.group(1) if found else None
    except OSError:
        return None


_TOLD = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUDA_LAUNCH_BLOCKING",
    "NCCL_BUFFSIZE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_CUMEM_ENABLE",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "ACCELERATE_USE_FSDP",
    "ACCELERATE_USE_DEEPSPEED",
)


def _environment():
    return {name: _cut(os.environ[name], 200) for name in _TOLD if name in os.environ}


_SECRET = re.compile(
    r"(?i)(?:^|[-_])(?:token|secret|password|passwd|pwd|(?:api|access|secret)[-_]?key|auth|credentials?)$"
)
_LOGIN = re.compile(r"://[^/@\s]+@")


def _masked(words):
    """A command line without what looks like a secret."""
    shown = []
    hide_next = False
    for word in list(words)[:200]:
        name, sign, _ = word.partition("=")
        if hide_next and not word.startswith("-"):
            word = "***"
        elif sign and _SECRET.search(name):
            word = name + "=***"
        hide_next = not sign and word.startswith("-") and bool(_SECRET.search(word))
        shown.append(_cut(_LOGIN.sub("://***@", word), 400))
    return shown


def _safe_name(text):
    return re.sub(r"[^A-Za-z0-9.-]+", "-", str(text)).strip("-.")[:64] or "job"


def _micros():
    return time.time_ns() // 1000


def _cut(text, length):
    text = str(text)
    return text if len(text) <= length else text[: length - 1] + "\u2026"


def _number(text):
    try:
        number = int(str(text))
        return number if number >= 0 else None
    except ValueError:
        return None


def _whole(value):
    """Numbers and nothing else: a sampler's `rank` may be anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    return int(value)


def _truth(value):
    return value if isinstance(value, bool) else None


def _length(value):
    try:
        return len(value)
    except Exception:
        return None


def _class_name(value):
    kind = type(value)
    return _cut("%s.%s" % (kind.__module__, kind.__qualname__), 160)


def _flat(stats, prefix=""):
    flat = {}
    for key, value in stats.items():
        name = prefix + key
        if isinstance(value, dict):
            flat.update(_flat(value, name + "."))
        elif isinstance(value, int):
            flat[name] = value
    return flat


def _is_out_of_memory(error):
    for _ in range(8):
        if error is None:
            return False
        kind = type(error).__name__
        if kind in ("OutOfMemoryError", "AcceleratorError") or isinstance(error, RuntimeError):
            text = str(error)
            if "out of memory" in text or "CUBLAS_STATUS_ALLOC_FAILED" in text:
                return True
        error = error.__cause__ or error.__context__
    return False


# --------------------------------------------------------------------------------------------------------------------
# Sending


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, *unused):
        return None


class _Sender(threading.Thread):
    """Sends what stands in the file, in the background. The file is the spool: nothing is kept in memory, and a server
    that comes back gets everything. What it acknowledged is not sent again; what it got twice it knows by `seq`."""

    LINES = 2000
    BYTES = 512 * 1024
    PAUSE = 1.0  # seconds between batches
    LONGEST = 60.0  # seconds between attempts
    TIMEOUT = 10.0
    AT_END = 2.0  # seconds for the rest when the process ends

    def __init__(self, url, token, path, source, rank):
        super().__init__(name="rankscope-probe", daemon=True)
        self.address = url.rstrip("/") + "/api/v1/samples"
        self.token = token
        self.path = path
        self.source = source
        self.rank = rank
        self.offset = 0
        self.next_seq = 0
        self.lines = self.LINES
        self.failures = 0
        self.gone = False  # the server refused for good
        self.ending = threading.Event()
        self.opener = urllib.request.build_opener(_NoRedirect)

    def run(self):
        try:
            until = None
            while not self.gone:
                ending = self.ending.is_set()
                if ending and until is None:
                    until = time.monotonic() + self.AT_END
                lines, offset = self.read()
                if lines:
                    if self.send(lines, offset):
                        if len(lines) < self.lines and not ending:
                            self.ending.wait(self.PAUSE)
                        continue
                    if ending or self.gone:
                        return
                    # Full jitter, so that a thousand ranks do not come back at the same moment.
                    self.ending.wait(random.uniform(0.5, 1.0) * min(self.LONGEST, self.PAUSE * 2**self.failures))
                elif ending:
                    return
                else:
                    self.ending.wait(self.PAUSE)
                if until is not None and time.monotonic() > until:
                    return
        except Exception as error:
            self.gone = True
            _say("sending stopped (%s: %s)" % (type(error).__name__, error))

    def read(self):
        """Whole lines from where the last batch ended, and where they end."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read(self.BYTES)
        end = data.rfind(b"\n") + 1
        lines = data[:end].splitlines(True)[: self.lines]
        return lines, self.offset + sum(map(len, lines))

    def send(self, lines, offset):
        first, last = self.next_seq, self.next_seq + len(lines) - 1
        head = {"type": "batch", "format": FORMAT, "source": self.source, "rank": self.rank}
        head.update(first=first, last=last)
        body = gzip.compress(json.dumps(head, separators=(",", ":")).encode() + b"\n" + b"".join(lines), 5)
        request = urllib.request.Request(self.address, data=body, method="POST")
        request.add_header("Authorization", "Bearer " + self.token)
        request.add_header("Content-Type", "application/x-ndjson")
        request.add_header("Content-Encoding", "gzip")
        request.add_header("User-Agent", "rankscope-probe/" + VERSION)
        try:
            with self.opener.open(request, timeout=self.TIMEOUT) as answer:
                acknowledged = _acknowledged(answer.read(4096), first, last)
        except urllib.error.HTTPError as error:
            error.close()
            return self.refused(error.code, len(lines))
        except (OSError, ValueError):
            # Includes time-outs and what is no HTTP at all.
            self.failures = min(self.failures + 1, 16)
            return False
        except Exception:
            self.failures = min(self.failures + 1, 16)
            return False
        self.failures = 0
        self.lines = self.LINES
        taken = acknowledged - first + 1
        self.offset += sum(map(len, lines[:taken]))
        self.next_seq += taken
        return taken > 0

    def refused(self, status, count):
        if status == 413 and count > 1:
            self.lines = max(count // 2, 1)
            return True
        if status in (408, 425, 429) or status >= 500:
            self.failures = min(self.failures + 1, 16)
            return False
        self.gone = True
        why = "the token is not accepted" if status in (401, 403) else "the server does not take it"
        _say("sending stopped: %s (HTTP %d); %s has everything" % (why, status, self.path))
        return False

    def finish(self):
        """Gives the rest a moment. A server that was away gets none: the process must end."""
        self.ending.set()
        if self.failures == 0 and not self.gone:
            self.join(self.AT_END)

    def stop(self):
        self.gone = True
        self.ending.set()


def _acknowledged(body, first, last):
    """The last `seq` that the server says it has; all of the batch where it says nothing."""
    try:
        value = json.loads(body.decode("utf-8")).get("acknowledged")
    except (ValueError, AttributeError):
        return last
    if isinstance(value, bool) or not isinstance(value, int):
        return last
    return min(max(value, first - 1), last)
