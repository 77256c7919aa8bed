#!/usr/bin/env python3
"""Figures of memory snapshots, computed the slow and plain way: the expectation that the Rust reader is held to.

usage: reference.py FILE.pickle ...      prints one JSON object, name to figures

Live bytes are found by walking forwards (the reader walks backwards). Pickles are loaded without any class: a file that
wants to import something raises.
"""
import json, os, pickle, sys


class NoImports(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


def load(path):
    with open(path, "rb") as f:
        return NoImports(f).load()


ACTIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")


def blocks_of(segment):
    """(address, size, requested or None, state, frames) of each block."""
    addr = segment.get("address", 0)
    for block in segment["blocks"]:
        addr = block.get("address", addr)
        history = block.get("history") or [{}]
        requested = block.get("requested_size", history[0].get("real_size"))
        frames = block.get("frames") or history[0].get("frames") or []
        yield addr, block["size"], requested, block["state"], tuple((f["name"], f["filename"], f["line"]) for f in frames)
        addr += block["size"]


def ends_of_life(events, live_at_end):
    """Positions of the events at which a block's memory becomes free: free_completed, or a free_requested after which
    the block is gone although no free_completed says so."""
    ends, next_at = set(), {}
    for i in reversed(range(len(events))):
        action, addr = events[i]["action"], events[i].get("addr")
        if action == "free_completed":
            ends.add(i)
        elif action == "free_requested":
            after = next_at.get(addr)
            if after == "alloc" or (after is None and addr not in live_at_end):
                ends.add(i)
        if action in ("alloc", "free_requested", "free_completed"):
            next_at[addr] = action
    return ends


def peak_of(events, live_at_end):
    """Largest live requested bytes at any moment of the window, and the least, largest and last after an event."""
    ends = ends_of_life(events, live_at_end)
    seen, now = set(), {}
    for i, e in enumerate(events):
        if (e["action"] == "alloc" or i in ends) and e["addr"] not in seen:
            seen.add(e["addr"])
            if i in ends:
                now[e["addr"]] = e["size"]
    now.update({addr: size for addr, size in live_at_end.items() if addr not in seen})
    total = sum(now.values())
    peak, values = total, []
    for i, e in enumerate(events):
        if e["action"] == "alloc":
            total += e["size"] - now.get(e["addr"], 0)
            now[e["addr"]] = e["size"]
        elif i in ends:
            total -= now.pop(e["addr"], 0)
        peak = max(peak, total)
        values.append(total)
    return peak, (min(values), max(values), values[-1])


def figures(snapshot):
    segments = snapshot if isinstance(snapshot, list) else snapshot["segments"]
    traces = [] if isinstance(snapshot, list) else snapshot.get("device_traces", [])
    devices = sorted({s.get("device", 0) for s in segments} | {i for i, t in enumerate(traces) if t})
    out = []
    for device in devices:
        own = [s for s in segments if s.get("device", 0) == device]
        events = traces[device] if device < len(traces) else []
        blocks = [b for s in own for b in blocks_of(s)]
        active = [b for b in blocks if b[3] in ACTIVE]
        sites = {}
        for _, size, _, _, frames in active:
            sites[frames] = sites.get(frames, 0) + size
        requested = [r for _, _, r, _, _ in active if r is not None]
        private = [s for s in own if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0)]
        total = lambda key: sum(s[key] for s in own)
        peak, live = peak_of(events, {a: r if r is not None else s for a, s, r, _, _ in active}) if events else (None, None)
        out.append({
            "device": device,
            "reserved": total("total_size"),
            "allocated": total("allocated_size"),
            "active": total("active_size"),
            "requested": sum(requested) if requested else None,
            "private_pool_inactive": sum(s["total_size"] - s["active_size"] for s in private),
            "segments": len(own),
            "blocks": len(blocks),
            "events": len(events),
            "peak": peak,
            "live_min_max_last": live,
            "top_sites": sorted(sites.values(), reverse=True)[:50],
            "ooms": [[i, e["size"], e["device_free"]] for i, e in enumerate(events) if e["action"] == "oom"],
        })
    return out


if __name__ == "__main__":
    print(json.dumps({os.path.basename(p): figures(load(p)) for p in sys.argv[1:]}, indent=1))
