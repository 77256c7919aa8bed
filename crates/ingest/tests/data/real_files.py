"""Works out `real-files.expected`: of every real public file its kind, its ranks or GPUs, and one figure.

Uses Python's own modules (csv, json, pickle without globals, re, xml) and none of Rankscope's readers, so that a reader is
held to what stands in the file. Run it where the real files are, from the workspace's root:

    python3 crates/ingest/tests/data/real_files.py ../shared/data > crates/ingest/tests/data/real-files.expected

A line is: file, kind, ranks, GPUs, figure, value, how; tabs between, `-` for none.
"""

import base64
import csv
import gzip
import io
import json
import pickle
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HEAD = """# Of every file under ../shared/data: kind, ranks, GPUs, one figure of it. Made by real_files.py beside this file, which
# uses Python's own modules and no reader of Rankscope. Tabs between; `-` is none.
# used_mib: MiB used on all GPUs of the first reading (MIG slices not counted). used_bytes: the same in bytes.
# processes: rows of processes in all readings. cards: GPUs named, by UUID. affinity: CPUs of the first GPU.
# reserved: bytes in all segments. events: events of all devices. peak_mib: sum of the largest peak of each subject.
# with_capacity: out-of-memory messages that tell the capacity. says: a warning has these words."""


class NoGlobals(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


def text_of(path):
    return path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")


def numbers(found):
    return ",".join(str(n) for n in sorted(found)) or "-"


def plain_table(path):
    text = text_of(path)
    # The row with a bus id names the GPU; the row below has `used / total`.
    gpus, used, mig = [], [], False
    for line in text.split("\n"):
        mig = mig or "MIG devices:" in line
        named = re.match(r"\|\s+(\d+)\s.*\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.", line)
        if named and not mig:
            gpus.append(int(named.group(1)))
        memory = re.search(r"\|\s+(\d+)MiB /\s*(\d+)MiB", line)
        if memory and not mig and len(used) < len(gpus):
            used.append(int(memory.group(1)))
    return "nvidia_smi", "-", numbers(gpus), "used_mib", sum(used), "re: `N MiB / M MiB` behind each bus id"


def query_text(path):
    gpus, used, part = 0, 0, ""
    indent = None
    for line in text_of(path).split("\n"):
        if re.match(r"GPU [0-9A-Fa-f]{8}:", line):
            gpus += 1
        title = re.match(r"(\s+)([^:]+?)\s*$", line)
        if title:
            part = title.group(2)
        value = re.match(r"\s+Used\s+: (\d+) MiB", line)
        # The first `Used` of a GPU's own section; those of MIG devices stand deeper.
        if value and part == "FB Memory Usage" and re.match(r" {8}Used", line):
            used += int(value.group(1))
    return "nvidia_smi_query", "-", numbers(range(gpus)), "used_mib", used, "re: `Used` under `FB Memory Usage`"


def query_xml(path):
    root = ElementTree.fromstring(text_of(path).strip())
    gpus = root.findall("gpu")
    used = [g.findtext("fb_memory_usage/used") for g in gpus]
    used = [int(u.split()[0]) for u in used if u and u.split()[0].isdigit()]
    if not used:
        return "nvidia_smi_query", "-", numbers(range(len(gpus))), "used_mib", "-", "xml.etree: no fb_memory_usage"
    return (
        "nvidia_smi_query",
        "-",
        numbers(range(len(gpus))),
        "used_mib",
        sum(used),
        "xml.etree: gpu/fb_memory_usage/used",
    )


def query_csv(path):
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text_of(path))) if row]
    head, rows = rows[0], rows[1:]
    if head[0][:1].isdigit():
        return "nvidia_smi_csv", "-", "-", "says", "no header", "head: which of its two sizes is which, it does not say"
    if "pid" in head:
        # All of these are of one GPU, or of none: the file then holds its header only.
        gpus = {0} if rows else set()
        return "nvidia_smi_csv", "-", numbers(gpus), "processes", len(rows), "csv: rows behind the header"
    at = next(i for i, name in enumerate(head) if name.startswith("memory.used"))
    index = head.index("index") if "index" in head else None
    gpus = {int(row[index]) for row in rows} if index is not None else {0}
    first = rows[: len(gpus)]
    used = sum(int(row[at].split()[0]) for row in first)
    return "nvidia_smi_csv", "-", numbers(gpus), "used_mib", used, "csv: column memory.used of the first round"


def monitor(path, by_process):
    gpus, processes = set(), 0
    has_fb = False
    for line in text_of(path).split("\n"):
        if line.startswith("#"):
            has_fb = has_fb or " fb " in line
        elif line.split()[:1] and line.split()[0].isdigit():
            cells = line.split()
            gpus.add(int(cells[0]))
            processes += cells[1].isdigit()
    if by_process:
        return "nvidia_smi_monitor", "-", numbers(gpus), "processes", processes, "re: rows with a PID"
    return "nvidia_smi_monitor", "-", numbers(gpus), "says", "shows no memory", "grep: the header has no fb column"


def listing(path):
    gpus = re.findall(r"^GPU (\d+): .*UUID: GPU-", text_of(path), re.M)
    # In most of these files zeros stand for the UUIDs, which then name nothing.
    named = {u for u in re.findall(r"UUID: (?:GPU|MIG)-([0-9a-f-]+)", text_of(path)) if re.search("[1-9a-f]", u)}
    return "nvidia_smi_list", "-", numbers(map(int, gpus)), "cards", len(named), "grep: UUIDs that are not zeros"


def topology(path):
    rows = re.findall(r"^\s*(?:\x1b\[\dm)?GPU(\d+)\s+(.*)", text_of(path), re.M)
    rows = [(int(n), cells.split()) for n, cells in rows if "X" in cells.split()]
    if not rows:
        line = text_of(path).lstrip().splitlines()[0]
        quote = f"line 1: nvidia-smi failed (`{line.rstrip('.')}`); that nvidia-smi does not have this option: upload the output of plain `nvidia-smi`"
        return "text", "-", "-", "says", quote, "cat: an error of nvidia-smi, which has no `topo -m` on Windows"
    gpus = {n for n, _ in rows}
    return "gpu_topology", "-", numbers(gpus), "affinity", rows[0][1][len(gpus)].replace("N/A", "-"), "re: the cell behind the matrix"


def prometheus(path):
    # Of a GPU in MIG mode the instances have figures and the GPU itself none.
    gpus, used, instances = set(), {}, 0
    for line in text_of(path).split("\n"):
        of_gpu = re.match(r'\w+\{gpu="(\d+)"', line)
        if of_gpu:
            gpus.add(int(of_gpu.group(1)))
        value = re.match(r'DCGM_FI_DEV_FB_USED\{gpu="(\d+)"(.*)\} (\d+)', line)
        if value:
            instance = re.search(r'GPU_I_ID="(\d+)"', value.group(2))
            used[(int(value.group(1)), instance and instance.group(1))] = int(value.group(3))
    return "prometheus", "-", numbers(gpus), "fb_used_mib", sum(used.values()), "re: DCGM_FI_DEV_FB_USED, instances too"


def rocm(path):
    text = text_of(path)
    if path.suffix == ".json":
        cards = {k: v for k, v in json.loads(text).items() if k.startswith("card")}
        used = sum(int(v["vram Total Used Memory (B)"]) for v in cards.values())
        return "rocm_smi", "-", numbers(int(k[4:]) for k in cards), "used_bytes", used, "json: vram Total Used Memory"
    gpus = re.findall(r"^(\d+)\s+\[0x", text, re.M)
    return "rocm_smi", "-", numbers(map(int, gpus)), "says", "shows no memory", "grep: VRAM is given in percent only"


def snapshot_figures(data):
    root = NoGlobals(io.BytesIO(data)).load()
    segments = root["segments"] if isinstance(root, dict) else root
    reserved = sum(s["total_size"] for s in segments)
    traces = root.get("device_traces", []) if isinstance(root, dict) else []
    devices = {s["device"] for s in segments} | {d for d, t in enumerate(traces) if t}
    return reserved, devices


def snapshot(path):
    reserved, devices = snapshot_figures(path.read_bytes())
    return "torch_snapshot", "-", numbers(devices), "reserved", reserved, "pickle without globals: sum of total_size"


def trace(path):
    root = json.loads(gzip.decompress(path.read_bytes()))
    rank = root.get("distributedInfo", {}).get("rank")
    devices, events, host = set(), 0, 0
    for event in root["traceEvents"]:
        if event.get("name") == "[memory]":
            if int(event["args"]["Device Id"]) >= 0 and int(event["args"]["Device Type"]) != 0:
                devices.add(int(event["args"]["Device Id"]))
                events += 1
            else:
                host += 1
    return "profiler_trace", "-" if rank is None else rank, numbers(devices), "events", events, "json: [memory] events of a GPU"


def timeline(path):
    if path.suffix == ".html":
        page = path.read_text()
        data = base64.b64decode(re.search(r'"base64": "([^"]+)"', page).group(1))
        reserved, devices = snapshot_figures(data)
        return "archive", "-", numbers(devices), "reserved", reserved, "base64 and pickle without globals: sum of total_size"
    rows = json.loads(gzip.decompress(path.read_bytes()))
    live, peak = 0, 0
    live = sum(n for t, _, n, _ in rows if t == -1)
    peak = live
    # Both rows of a version change have one time; the sum between them never stood.
    pending = None
    for at, action, change, _ in rows:
        if at == -1:
            continue
        live += change
        if action == 3 and pending is None:
            pending = at
            continue
        pending = None
        peak = max(peak, live)
    return "memory_timeline", "-", "-", "peak", peak, "json: largest running sum"


UNITS = {"KB": 1024, "MB": 1024**2, "GB": 1024**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "B": 1}


def summary(path):
    text = text_of(path)
    gpus = {int(n) for n in re.findall(r"device ID (\d+)", text)}
    rows = re.findall(r"Allocated memory\s*\|\s*\d+ \w+\s*\|\s*(\d+) (\w+)\s*\|", text)
    peak = sum(int(n) * UNITS[unit] for n, unit in rows) // 1024**2
    if not rows:
        gpus = set()
        return "text", "-", numbers(gpus), "says", "end before", "cat: it is cut before `allocated_bytes`"
    return "memory_stats", "-", numbers(gpus), "peak_mib", peak, "re: peak of `Allocated memory`"


def log(path):
    text = text_of(path)
    if "returnn" in path.name:
        gpus = {int(n) for n in re.findall(r"mem_usage:cuda:(\d)", text)}
        peaks = {}
        for gpu, peak in re.findall(r"mem_usage:cuda:(\d) ([\d.]+)GB", text):
            peaks[gpu] = max(peaks.get(gpu, 0), float(peak))
        return "step_log", "-", numbers(gpus), "peak_mib", int(sum(p * 1024 for p in peaks.values())), "re: mem_usage:cuda:N"
    if "64ranks" in path.name:
        found = re.findall(r"\[Rank (\d+)\] \(after 20 iterations\).*?max allocated: ([\d.]+)", text)
        peak = sum(float(p) for _, p in found)
        # Somewhere in the middle it prints a table of nvidia-smi.
        gpus = re.findall(r"^\|\s+(\d)\s+Tesla", text, re.M)
        return "step_log", numbers({int(r) for r, _ in found}), numbers({int(g) for g in gpus}), "peak_mib", int(peak), "re: max allocated of `[Rank N]`"
    return "job_log", "-", "-", "says", "name no rank", "grep: `MA … Max_MA …` stands without a rank"


def messages(path):
    rows = [json.loads(line) for line in text_of(path).strip().split("\n")]
    failures = [row for row in rows if "not a failure" not in row["note"]]
    texts = [row["text"] for row in failures]
    gpus = r"GPU[: ]?(\d+)\b|ordinal (\d+)|GPU_(\d+)_bfc|\[(\d+)\] include/alloc.h"
    gpus = {int("".join(found)) for text in texts for found in re.findall(gpus, text)}
    ranks = {int(r) for text in texts for r in re.findall(r"^(?:> )?(?:\[\] )?\[rank=?(\d+)\]", text)}
    # vLLM writes free and capacity as `(19.77/22.05 GiB)`.
    with_capacity = sum("total capac" in text or "Free memory on device" in text for text in texts)
    return "oom_message", numbers(ranks), numbers(gpus), "with_capacity", with_capacity, "json: entries that tell it"


def work_out(path):
    name, family = path.name, path.parent.name
    if family == "nvidia_smi_xml":
        # One file holds a table, then the same as a report, which is longer.
        return query_xml(path) if "ixsmi" not in name else ("nvidia_smi_query", *plain_table(path)[1:])
    if family != "nvidia_smi":
        kinds = {
            "amd": rocm,
            "dcgm": prometheus,
            "logs": log,
            "memory_summary": summary,
            "memory_timeline": timeline,
            "oom": messages,
            "snapshots": snapshot,
            "traces": trace,
        }
        return kinds[family](path)
    if name.endswith("_L.txt"):
        return listing(path)
    if name.endswith("_topo.txt"):
        return topology(path)
    if name.endswith(".csv"):
        return query_csv(path)
    if "dmon" in name or "pmon" in name:
        return monitor(path, "pmon" in name)
    if name.endswith("_q.txt") or "smi-query" in name:
        return query_text(path)
    return plain_table(path)


def main():
    folder = Path(sys.argv[1])
    print(HEAD)
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "INDEX.md"):
        cells = (path.relative_to(folder).as_posix(), *work_out(path))
        print("\t".join(str(cell) for cell in cells))


main()
