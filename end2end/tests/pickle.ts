// Memory snapshots of a job that never ran, as torch writes them: a pickle of dicts, lists, texts and numbers.

type Value = number | string | Value[] | { [key: string]: Value };

/** Protocol 2, no memo: what `pickle` would write for plain data without repetition. */
function pickled(value: Value): Buffer {
  const parts: Buffer[] = [Buffer.from([0x80, 2])];
  const code = (text: string) => parts.push(Buffer.from(text, "latin1"));
  const write = (value: Value): void => {
    if (typeof value === "number") {
      if (Number.isInteger(value) && Math.abs(value) < 2 ** 31) {
        const bytes = Buffer.alloc(5);
        bytes.write("J", "latin1");
        bytes.writeInt32LE(value, 1);
        parts.push(bytes);
      } else {
        const bytes = Buffer.alloc(10);
        bytes.writeUInt8(0x8a, 0); // LONG1 of eight bytes
        bytes.writeUInt8(8, 1);
        bytes.writeBigInt64LE(BigInt(value), 2);
        parts.push(bytes);
      }
    } else if (typeof value === "string") {
      const text = Buffer.from(value, "utf8");
      const head = Buffer.alloc(5);
      head.write("X", "latin1");
      head.writeUInt32LE(text.length, 1);
      parts.push(head, text);
    } else if (Array.isArray(value)) {
      code("](");
      value.forEach(write);
      code("e");
    } else {
      code("}(");
      for (const [key, member] of Object.entries(value)) {
        write(key);
        write(member);
      }
      code("u");
    }
  };
  write(value);
  code(".");
  return Buffer.concat(parts);
}

const MIB = 2 ** 20;
const frame = (name: string, filename: string, line: number) => ({ name, filename, line });
const torch = "/opt/venv/lib/python3.12/site-packages/torch/nn/functional.py";
const main = [frame("train_epoch", "/job/train.py", 88), frame("main", "/job/train.py", 131), frame("<module>", "/job/train.py", 140)];

/** Lines of the job that allocate, with what they ask for in MiB. */
const kept = [
  { mib: 900, frames: [frame("to", torch, 1160), frame("build", "/job/model.py", 21), ...main.slice(1)] },
  { mib: 900, frames: [frame("zeros_like", torch, 401), frame("__init__", "/job/optim.py", 14), ...main.slice(1)] },
];
const passing = [
  { mib: 320, frames: [frame("linear", torch, 2114), frame("forward", "/job/model.py", 57), ...main] },
  { mib: 480, frames: [frame("scaled_dot_product_attention", torch, 5310), frame("attend", "/job/model.py", 73), ...main] },
  { mib: 160, frames: [frame("layer_norm", torch, 2515), frame("forward", "/job/model.py", 61), ...main] },
  { mib: 220, frames: [frame("cross_entropy", torch, 3029), frame("loss", "/job/train.py", 95), ...main] },
];
const ema = { mib: 900, frames: [frame("clone", torch, 77), frame("update", "/job/ema.py", 12), ...main] };

/** The snapshot of a rank; the first one also keeps averaged weights. */
export function snapshot(rank: number): { name: string; mimeType: string; buffer: Buffer } {
  let time = 1_700_000_000_000_000;
  let next = 0x7f00_0000_0000;
  const events: Value[] = [];
  const blocks: Value[] = [];
  const event = (action: string, addr: number, size: number, frames: Value) =>
    events.push({ action, addr, size, stream: 0, time_us: (time += 700), frames });
  const live = (addr: number, size: number, frames: Value) =>
    blocks.push({ address: addr, size, requested_size: size, state: "active_allocated", frames });
  const take = (mib: number, frames: Value): [number, number] => {
    const [addr, size] = [next, mib * MIB];
    // Far apart, so that segments never lie over each other.
    next += 2 ** 32;
    event("alloc", addr, size, frames);
    return [addr, size];
  };
  for (const { mib, frames } of kept) {
    const [addr, size] = take(mib, frames);
    live(addr, size, frames);
  }
  for (let step = 0; step < 24; step++) {
    if (step === 6 && rank === 0) {
      const [addr, size] = take(ema.mib, ema.frames);
      live(addr, size, ema.frames);
    }
    const taken = passing.map(({ mib, frames }) => ({ frames, place: take(mib + ((step * 37 + rank * 11) % 40), frames) }));
    for (const { frames, place } of taken.reverse()) {
      event("free_requested", place[0], place[1], frames);
      event("free_completed", place[0], place[1], frames);
    }
  }
  // Each block in use lies in a segment of its own, with a free piece behind it.
  const segments: Value[] = (blocks as { address: number; size: number }[]).map((block, n) => {
    const gap = (96 + 32 * n) * MIB;
    const { address, size } = block;
    return {
      device: 0,
      address,
      total_size: size + gap,
      stream: 0,
      segment_type: "large",
      allocated_size: size,
      active_size: size,
      requested_size: size,
      blocks: [block as unknown as Value, { address: address + size, size: gap, requested_size: 0, state: "inactive", frames: [] }],
    };
  });
  // What the passing blocks left behind is cached whole.
  const cached = 1400 * MIB;
  segments.push({
    device: 0,
    address: 2 ** 46,
    total_size: cached,
    stream: 0,
    segment_type: "large",
    allocated_size: 0,
    active_size: 0,
    requested_size: 0,
    blocks: [{ address: 2 ** 46, size: cached, requested_size: 0, state: "inactive", frames: [] }],
  });
  return {
    name: `snapshot_rank${rank}.pickle`,
    mimeType: "application/octet-stream",
    buffer: pickled({ segments, device_traces: [events] }),
  };
}
