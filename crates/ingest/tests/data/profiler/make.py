#!/usr/bin/env python3
"""Writes the small profiler files of this folder and `expected.json`, their figures worked out the plain way.

Everything is made up. The shapes follow what kineto and torch.profiler write: key order, float times with three decimals,
`baseTimeNanoseconds` at the end, `[memory]` events with and without totals, memory events of the host in between.
"""
import json, os, random

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
BASE = 1_751_410_836_000_000_000
EXPECTED = {}


def write(name, value, **figures):
    with open(os.path.join(HERE, name), "w") as f:
        f.write(value if isinstance(value, str) else json.dumps(value))
    EXPECTED[name] = figures


def memory(ts, device, size, allocated, reserved, kind=1):
    args = {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": size, "Addr": 0xFFFF800000001000,
            "Device Id": device, "Device Type": kind, "Ev Idx": 3}
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 7, "tid": 7, "ts": ts, "args": args}


def operator(ts):
    return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": ts, "dur": 1.5,
            "args": {"External id": 5, "Input Dims": [[8, 512], []], "Bytes": "no", "Call stack": "träin.py(3): \"x\""}}


def trace(rank, world, events, base=True):
    document = {"schemaVersion": 1,
                "deviceProperties": [{"id": d, "name": "Made-up GPU", "totalGlobalMem": 64 << 30, "numSms": 7} for d in range(2)]}
    if rank is not None:
        document["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world,
                                       "pg_config": [{"pg_name": "0", "ranks": list(range(world))}]}
    document.update(record_shapes=1, profile_memory=1, traceEvents=events, traceName="x.json", displayTimeUnit="ms")
    if base:
        document["baseTimeNanoseconds"] = BASE
    return document


def main():
    random.seed(5)
    events, rows, allocated, reserved = [], [], 100 * MIB, 512 * MIB
    live = []
    for i in range(120):
        ts = 1000.125 + 10 * i
        events.append(operator(ts - 1))
        if live and random.random() < 0.45:
            size = -live.pop(random.randrange(len(live)))
        else:
            size = random.choice([512, 4096, MIB, 8 * MIB])
            live.append(size)
        allocated += size
        reserved = max(reserved, (allocated // (64 * MIB) + 2) * 64 * MIB)
        rows.append((ts, allocated, reserved))
        events.append(memory(ts, 1, size, allocated, reserved))
        if i % 20 == 0:
            events.append(memory(ts, -1, 64, 9 << 40, 0, kind=0))
    peak = max(row[1] for row in rows)
    at = next(row[0] for row in rows if row[1] == peak)
    figures = dict(rank=3, world_size=8, device=1, events=120, peak=peak, peak_us=(BASE + round(at * 1000)) // 1000,
                   peak_reserved=max(row[2] for row in rows), lowest=min(row[1] for row in rows))
    # Written by threads: not in the order of time.
    shuffled = events[:]
    random.shuffle(shuffled)
    write("trace_rank3_of_8.pt.trace.json", trace(3, 8, shuffled), **figures)
    # The bare list of events, without any head.
    write("events_only.json", events, device=1, events=120, peak=peak, peak_reserved=figures["peak_reserved"])

    old, total, sums = [], 0, []
    for i, size in enumerate([-4096, 512, 2 * MIB, -512, -8192, 4 * MIB]):
        old.append({"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1_623_142_623_460_121 + i,
                    "args": {"Device Type": 1, "Device Id": 0, "Bytes": size}})
        total += size
        sums.append(total)
    low = min(0, min(sums))
    write("trace_torch19.json", trace(None, 1, old, base=False), device=0, events=6, peak=max(sums) - low,
          peak_us=1_623_142_623_460_121 + sums.index(max(sums)))

    # export_memory_timeline, both forms of one story.
    raw = [[-1, 1, 300 * MIB, 0], [-1, 1, 20 * MIB, 7]]
    now = [0] * 8
    now[0], now[7] = 300 * MIB, 20 * MIB
    t0 = 1_700_000_000_000_000_000
    best, times, sizes = (sum(now), 0, None), [], []
    for i in range(120):
        t = t0 + i * 250_000
        kind = i % 4
        if kind == 3:
            raw += [[t, 3, -MIB, 7], [t, 3, MIB, 0]]
            now[7] -= MIB if i < 60 else 0
            if i >= 60:
                raw[-2:] = [[t, 3, -MIB, 4], [t, 3, MIB, 0]]
                now[4] -= MIB
            now[0] += MIB
        elif kind == 2 and i % 8 == 2:
            raw.append([t, 4, -2 * MIB, 4])
            now[4] -= 2 * MIB
        else:
            size = (i % 7 + 2) * MIB
            raw.append([t, 2, size, 4])
            now[4] += size
        times.append(t // 1000)
        sizes.append([0] + now)
        if sum(now) > best[0]:
            best = (sum(now), t // 1000, list(now))
    figures = dict(peak=best[0], peak_us=best[1], at_peak=best[2])
    write("memory_rank5.raw.json", raw, rank=5, samples=121, **figures)
    write("memory_rank5.json", json.dumps([times, sizes]), rank=5, samples=120, **figures)
    with open(os.path.join(HERE, "expected.json"), "w") as f:
        json.dump(EXPECTED, f, indent=1, sort_keys=True)
        f.write("\n")


main()
