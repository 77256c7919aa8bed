#!/usr/bin/env python3
"""Writes the snapshots in this folder, and expected.json beside them. Everything in them is made up.

usage: make.py        (Python 3.8 or newer; the result is the same every time)
"""
import io, json, os, pickle, struct, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reference

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
BASE = 0x7F32_0000_0000
TIME = 1_700_000_000_000_000
EXPECTED = {}


def frame(name, filename, line):
    return {"name": name, "filename": filename, "line": line}


# Shared by identity, as torch does: the file then refers to each frame by its memo entry.
TORCH = [frame("c10::cuda::CUDACachingAllocator::malloc", "??", 0), frame("linear", "torch/nn/functional.py", 120)]
MAIN = frame("<module>", "train.py", 90)
FORWARD = TORCH + [frame("forward", "model.py", 41), MAIN]
EVALUATE = TORCH + [frame("evaluate", "train.py", 57), MAIN]
OPTIMIZER = TORCH + [frame("step", "torch/optim/adamw.py", 300), MAIN]


def block(address, size, state="active_allocated", requested=None, frames=None):
    b = {"address": address, "size": size, "requested_size": size if requested is None else requested, "state": state, "frames": []}
    if frames:  # a stack stands last, an empty one first
        del b["frames"]
        b["frames"] = frames
    return b


def segment(address, blocks, device=0, pool=(0, 0), expandable=False, **more):
    size = lambda *states: sum(b["size"] for b in blocks if b["state"] in states)
    s = {
        "device": device, "address": address, "total_size": sum(b["size"] for b in blocks),
        "allocated_size": size("active_allocated"), "active_size": size("active_allocated", "active_pending_free"),
        "requested_size": sum(b["requested_size"] for b in blocks if b["state"] != "inactive"), "stream": 0,
        "segment_type": "large", "segment_pool_id": pool, "is_expandable": expandable, "frames": [], "blocks": blocks,
    }
    s.update(more)
    return s


class Trace(list):
    def add(self, action, addr, size, frames=None, **more):
        event = {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": TIME + 10 * len(self)}
        event.update(more)
        if frames is not None:
            event["frames"] = frames
        self.append(event)

    def free(self, addr, size, frames):
        self.add("free_requested", addr, size, frames)
        self.add("free_completed", addr, size, frames)


def snapshot(segments, traces, **more):
    s = {"segments": segments, "device_traces": [list(t) for t in traces],
         "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
                                "expandable_segments": False, "roundup_power2_divisions": {"1": 0, "2": 0}},
         "external_annotations": [{"name": "ProfilerStep#1", "stage": "START", "device": 0, "time_us": TIME}]}
    s.update(more)
    return s


def step(base=BASE):
    """A weight that stays, an activation that goes, an evaluation output that is kept: segments and their trace."""
    t = Trace()
    t.add("segment_alloc", base, 20 * MIB, FORWARD)
    t.add("alloc", base, 8 * MIB, FORWARD)
    t.add("alloc", base + 8 * MIB, 10 * MIB - 100, FORWARD)
    t.add("segment_alloc", base + 32 * MIB, 64 * MIB, EVALUATE)
    t.add("alloc", base + 32 * MIB, 64 * MIB - 7, EVALUATE)
    t.free(base + 8 * MIB, 10 * MIB - 100, FORWARD)
    t.add("alloc", base + 8 * MIB, 2 * MIB, OPTIMIZER)
    segments = [
        segment(base, [block(base, 8 * MIB, frames=FORWARD), block(base + 8 * MIB, 2 * MIB, frames=OPTIMIZER),
                       block(base + 10 * MIB, 10 * MIB, "inactive", requested=10 * MIB - 100)]),
        segment(base + 32 * MIB, [block(base + 32 * MIB, 64 * MIB, requested=64 * MIB - 7, frames=EVALUATE)]),
    ]
    return segments, t


def write(name, data, expect=None):
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(data)
    if expect is not None:
        EXPECTED[name] = reference.figures(expect)


def dump(name, value, protocol=4):
    data = io.BytesIO()
    pickle.Pickler(data, protocol).dump(value)
    write(name, data.getvalue(), value)
    return data.getvalue()


def torch_cpp(value):
    """Protocol 2 as torch's C++ writer makes it: the memo is filled after the finished object, and only for what is used
    again; one MARK for all items; every text with a 4-byte length."""
    uses, out, memo = {}, io.BytesIO(), {}

    def count(v):
        if isinstance(v, (str, list, tuple, dict)):
            key = ("s", v) if isinstance(v, str) else id(v)
            uses[key] = uses.get(key, 0) + 1
            if uses[key] == 1 and not isinstance(v, str):
                for member in ([x for kv in v.items() for x in kv] if isinstance(v, dict) else v):
                    count(member)

    def put(v):
        key = ("s", v) if isinstance(v, str) else id(v)
        if key in memo:
            n = memo[key]
            out.write(b"h" + bytes([n]) if n < 256 else b"j" + struct.pack("<I", n))
            return
        if v is True or v is False:
            out.write(b"\x88" if v else b"\x89")
        elif isinstance(v, int):
            if 0 <= v < 256: out.write(b"K" + bytes([v]))
            elif 0 <= v < 65536: out.write(b"M" + struct.pack("<H", v))
            elif -2**31 <= v < 2**31: out.write(b"J" + struct.pack("<i", v))
            else: out.write(b"\x8a\x08" + struct.pack("<q", v))
        elif isinstance(v, float): out.write(b"G" + struct.pack(">d", v))
        elif isinstance(v, str): out.write(b"X" + struct.pack("<I", len(v.encode())) + v.encode())
        elif isinstance(v, dict):
            out.write(b"}(")
            for k, x in v.items(): put(k); put(x)
            out.write(b"u")
        elif isinstance(v, list):
            out.write(b"](")
            for x in v: put(x)
            out.write(b"e")
        elif isinstance(v, tuple):
            for x in v: put(x)
            out.write(b"\x86")
        else:
            raise TypeError(type(v))
        if uses.get(key, 0) > 1:
            memo[key] = n = len(memo)
            out.write(b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n))

    count(value)
    out.write(b"\x80\x02")
    put(value)
    out.write(b".")
    return out.getvalue()


class Call:
    """Pickles as a call: what a hostile file does."""
    def __reduce__(self):
        return (os.system, ("touch rankscope-was-here",))


def main():
    segments, trace = step()
    whole = snapshot(segments, [trace])
    for protocol in (2, 3, 4, 5):
        data = dump(f"protocol{protocol}.pickle", whole, protocol)
    write("trailing_nuls.pickle", data + b"\0\0\0", whole)
    write("torch_cpp_writer.pickle", torch_cpp(whole), whole)
    dump("traces_first.pickle", {"external_annotations": [], "device_traces": [list(trace)], "segments": segments})

    # Breaks off in the third event from the end, and inside the segments.
    cut = data.rindex(b"\x8c\x0efree_completed") if data.count(b"free_completed") == 1 else data.rindex(b"free_completed")
    write("cut_in_events.pickle", data[:cut])
    write("cut_in_segments.pickle", data[:data.index(b"inactive")])

    # torch 1.13: a bare list; history instead of requested_size, no block addresses.
    old = [{"device": 0, "address": BASE, "total_size": 20 * MIB, "allocated_size": 12 * MIB, "active_size": 14 * MIB,
            "stream": 0, "segment_type": "large", "blocks": [
                {"size": 12 * MIB, "state": "active_allocated",
                 "history": [{"addr": BASE, "real_size": 12 * MIB - 5, "frames": FORWARD}, {"addr": BASE, "real_size": 3}]},
                {"size": 2 * MIB, "state": "active_pending_free", "history": [{"addr": BASE + 12 * MIB, "real_size": 2 * MIB}]},
                {"size": 6 * MIB, "state": "inactive"}]}]
    dump("torch113_list.pickle", old, 3)

    # enabled="state": one entry only, and it has no stack.
    one = Trace()
    one.add("snapshot", 0, 74 * MIB)
    dump("one_event.pickle", snapshot(segments, [one]))

    # record_stream: the memory comes back long after the program let go of it; one block still waits.
    t = Trace()
    t.add("alloc", BASE, 4 * MIB, FORWARD)
    t.add("free_requested", BASE, 4 * MIB, FORWARD)
    t.add("alloc", BASE + 4 * MIB, 4 * MIB, FORWARD)
    t.add("free_completed", BASE, 4 * MIB, FORWARD)
    t.add("free_requested", BASE + 4 * MIB, 4 * MIB, FORWARD)
    dump("record_stream.pickle", snapshot([segment(BASE, [block(BASE, 4 * MIB, "inactive"),
         block(BASE + 4 * MIB, 4 * MIB, "active_pending_free", frames=FORWARD)])], [t]))

    # Expandable segments: grown, partly given back, so two mapped runs remain; two devices; a private pool.
    t = Trace()
    t.add("segment_map", BASE, 20 * MIB, FORWARD)
    t.add("alloc", BASE, 20 * MIB, FORWARD)
    t.add("segment_map", BASE + 20 * MIB, 20 * MIB, FORWARD)
    t.add("alloc", BASE + 20 * MIB, 14 * MIB, FORWARD)
    t.free(BASE, 20 * MIB, FORWARD)
    t.add("alloc", BASE, 2 * MIB, FORWARD)
    t.add("segment_unmap", BASE + 4 * MIB, 14 * MIB, FORWARD)
    dump("expandable_two_devices.pickle", snapshot([
        segment(BASE, [block(BASE, 2 * MIB, frames=FORWARD), block(BASE + 2 * MIB, 2 * MIB, "inactive")], expandable=True),
        segment(BASE + 18 * MIB, [block(BASE + 18 * MIB, 2 * MIB, "inactive"), block(BASE + 20 * MIB, 14 * MIB, frames=FORWARD),
                                  block(BASE + 34 * MIB, 6 * MIB, "inactive")], expandable=True),
        segment(BASE, [block(BASE, 2 * MIB, frames=EVALUATE), block(BASE + 2 * MIB, 18 * MIB, "inactive")], device=3, pool=(0, 7)),
    ], [t, [], [], []]))

    # Out of memory twice, a snapshot in between, an annotation, and an action from the future. Newest keys.
    segments, t = step()
    t.add("oom", 0, 512 * MIB, FORWARD, device_free=3 * MIB)
    t.add("snapshot", 0, 74 * MIB)
    t.add("annotate", BASE, 8 * MIB, user_metadata="weights", pool_id=(0, 0))
    t.add("defragmented", BASE, 1)
    t.add("oom", 0, 256 * MIB, FORWARD, device_free=2 * MIB)
    for e in t:
        if e["action"] == "oom":
            del e["addr"]
    dump("oom.pickle", snapshot(segments, [t], host_segments=[{"size": 1}], host_traces=[]))

    # Addresses from 2^63: nine bytes each.
    segments, t = step(1 << 63)
    dump("nine_byte_numbers.pickle", snapshot(segments, [t]))

    # Pairs as lists, as files have that went through JSON.
    segments, t = step()
    for s, pool in zip(segments, ([0, 0], [0, 2])):
        s["segment_pool_id"] = pool
    dump("pairs_as_lists.pickle", snapshot(segments, [t]))

    # A full ring buffer: the weight's allocation has been overwritten.
    segments, t = step()
    dump("ring_buffer.pickle", snapshot(segments, [t[2:]]))

    # skip_actions: no free_completed anywhere.
    segments, t = step()
    dump("without_free_completed.pickle", snapshot(segments, [[e for e in t if e["action"] != "free_completed"]]))

    # Segments that disagree with their blocks, blocks outside their segment, an allocation that went nowhere.
    segments, t = step()
    segments[0]["allocated_size"] += 512
    segments[1]["address"] += MIB
    t.add("alloc", BASE + 900 * MIB, 5 * MIB, FORWARD)
    dump("contradictions.pickle", snapshot(segments, [t]))

    dump("nothing_on_cuda.pickle", snapshot([], [[]]))

    # Stacks deeper than what is kept; texts beyond ASCII.
    deep = [frame(f"level_{i}", "recursion.py", i) for i in range(120)] + [frame("haupt_größe", "träin.py", 7)]
    dump("deep_stack.pickle", snapshot([segment(BASE, [block(BASE, 2 * MIB, frames=deep)])], [[]]))

    # Other pickles, and hostile ones.
    for name, value in (("other_dict", {"epoch": 3, "name": "run", "loss": [0.5, 0.25]}), ("other_list", [{"name": "a", "size": 3}]),
                        ("other_segments", {"text": "hello", "segments": [{"id": 0, "start": 0.0, "text": "hello"}]}),
                        ("other_no_segments", {"segments": 5, "text": ""}), ("other_text", "segments"), ("other_empty_list", [])):
        write(f"{name}.pickle", pickle.dumps(value, 4))
    write("hostile_global_reduce.pickle", pickle.dumps(Call(), 2))
    write("hostile_stack_global.pickle", pickle.dumps({"segments": [], "device_traces": [], "x": Call()}, 4))
    write("hostile_inst.pickle", b"\x80\x02(S'echo'\nios\nsystem\n.".replace(b"S'echo'\n", b""))
    write("saved_model.pickle", b"\x80\x02}q\x00X\x06\x00\x00\x00weightq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00storagetQR.")

    with open(os.path.join(HERE, "expected.json"), "w") as f:
        json.dump(EXPECTED, f, indent=1, sort_keys=True)
        f.write("\n")


main()
