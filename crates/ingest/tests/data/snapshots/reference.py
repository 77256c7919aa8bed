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


def frames_of(thing):
    return tuple((f["name"], f["filename"], f["line"]) for f in thing.get("frames") or [])


def rounded(requested):
    return -(-max(requested, 1) // 512) * 512


def course(events, active, reserved):
    """All quantities walked forwards, the first moment of the peak, what was live then by stack, and what never dies.

    `active` are the blocks at the end (as from blocks_of); of other blocks the rounded size is a lower bound."""
    at_end = {a: (r if r is not None else s, s, state, frames) for a, s, r, state, frames in active}
    ends = ends_of_life(events, at_end)
    has_requests = any(e["action"] == "free_requested" for e in events)
    last_alloc = {e["addr"]: i for i, e in enumerate(events) if e["action"] == "alloc"}
    stays = {i for a, i in last_alloc.items() if a in at_end}

    # Do frees carry the stack of the allocation?
    same = other = 0
    born = {}
    for i, e in enumerate(events):
        if e["action"] == "alloc":
            born[e["addr"]] = frames_of(e)
        elif i in ends and e["addr"] in born:
            if born.pop(e["addr"]) == frames_of(e):
                same += 1
            else:
                other += 1
    repeats = same > 0 and other <= same // 100

    # The start: [requested, size, counts as allocated, stack] by address.
    live, seen = {}, set()
    for i, e in enumerate(events):
        if e["action"] not in ("alloc", "free_requested", "free_completed") or e["addr"] in seen:
            continue
        seen.add(e["addr"])
        if e["action"] != "alloc":
            pending = e["action"] == "free_completed" and has_requests
            in_end = e["addr"] in at_end and i not in ends and e["addr"] not in last_alloc
            requested, size, stack = (e["size"], rounded(e["size"]), frames_of(e) if repeats else ())
            if in_end:  # requested to be freed, but not yet free at the end
                requested, size, _, stack = at_end[e["addr"]]
            live[e["addr"]] = [requested, size, not pending, stack]
    for a, (requested, size, state, stack) in at_end.items():
        if a not in seen:
            live[a] = [requested, size, state == "active_allocated", stack]
    now_reserved = reserved
    for e in events:
        now_reserved -= e["size"] if e["action"] in ("segment_alloc", "segment_map") else 0
        now_reserved += e["size"] if e["action"] in ("segment_free", "segment_unmap") else 0

    def totals():
        return [sum(b[0] for b in live.values()), sum(b[1] for b in live.values() if b[2]), sum(b[1] for b in live.values())]

    requested, allocated, held = totals()
    peak = (requested, None, held, now_reserved, {a: list(b) for a, b in live.items()} )
    extremes = None
    for i, e in enumerate(events):
        action, addr = e["action"], e.get("addr")
        if action == "alloc":
            end = at_end[addr] if i in stays else None
            block = [end[0], end[1], True, frames_of(e) or end[3]] if end else [e["size"], rounded(e["size"]), True, frames_of(e)]
            live[addr] = block
            requested, allocated, held = requested + block[0], allocated + block[1], held + block[1]
        elif action in ("free_requested", "free_completed") and addr in live:
            block = live[addr]
            if block[2] and (action == "free_requested" or i in ends):
                block[2] = False
                allocated -= block[1]
            if i in ends:
                del live[addr]
                requested, held = requested - block[0], held - block[1]
        elif action in ("segment_alloc", "segment_map"):
            now_reserved += e["size"]
        elif action in ("segment_free", "segment_unmap"):
            now_reserved -= e["size"]
        if requested > peak[0]:
            peak = (requested, i, held, now_reserved, None)
        values = (requested, allocated, held, now_reserved, max(0, now_reserved - held))
        extremes = [(min(v, low), max(v, high)) for v, (low, high) in zip(values, extremes or [(v, v) for v in values])]

    # Once more up to the peak, for what was live there.
    at_peak = peak[4]
    if at_peak is None:
        at_peak = live_at(events, at_end, ends, stays, peak[1], repeats)
    sites = {}
    for block in at_peak.values():
        sites[block[3]] = sites.get(block[3], 0) + block[0]
    never = [at_end[a][0] for a, i in last_alloc.items() if a in at_end]
    late = [at_end[a][0] for a, i in last_alloc.items() if a in at_end and i >= len(events) // 2]
    return {
        "peak_event": peak[1],
        "peak_active": peak[2],
        "peak_reserved": peak[3],
        "peak_sites": sorted(sites.values(), reverse=True)[:20],
        "never_freed": [sum(never), len(never), sum(late)],
        "curve": dict(zip(("requested", "allocated", "active", "reserved", "unused"), extremes)),
    }


def live_at(events, at_end, ends, stays, at, repeats):
    """Blocks live right after event `at`, from the lifetimes of allocations: [requested, size, _, stack] by address."""
    found = {}
    last = {}  # address to (index, action) of its last event up to `at`
    for i, e in enumerate(events[: at + 1]):
        if e["action"] == "alloc" or i in ends:
            last[e["addr"]] = (i, e)
    following = {}
    for i in range(len(events) - 1, at, -1):
        if events[i]["action"] == "alloc" or i in ends:
            following[events[i]["addr"]] = (i, events[i])
    for addr in set(last) | set(following) | set(at_end):
        if addr in last:
            i, e = last[addr]
            if e["action"] == "alloc":
                end = at_end[addr] if i in stays else None
                found[addr] = [end[0] if end else e["size"], None, None, frames_of(e) or (end[3] if end else ())]
        elif addr in following:
            e = following[addr][1]
            if e["action"] != "alloc":
                found[addr] = [e["size"], None, None, frames_of(e) if repeats else ()]
        else:
            found[addr] = [at_end[addr][0], None, None, at_end[addr][3]]
    return found


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
            "course": course(events, active, total("total_size")) if events else None,
            "ooms": [[i, e["size"], e["device_free"]] for i, e in enumerate(events) if e["action"] == "oom"],
        })
    return out


if __name__ == "__main__":
    print(json.dumps({os.path.basename(p): figures(load(p)) for p in sys.argv[1:]}, indent=1))
