// Batches as an agent sends them, made by hand; and cards that play a scenario.

import type { APIRequestContext } from "@playwright/test";
import { copyFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect } from "./server";

const MIB = 2 ** 20;

/**
 * A folder with a driver's library that plays a scenario of `data/live`, and the processes of it; and the options that
 * let a server read both.
 */
export function cards(scenario: string): { folder: string; options: string[] } {
  const library = process.env.RANKSCOPE_NVML_STUB;
  if (!library) throw new Error("RANKSCOPE_NVML_STUB must name the built stub; `cargo xtask test` sets it");
  const folder = mkdtempSync(path.join(tmpdir(), "rankscope-cards-"));
  const own = path.join(folder, "libnvidia-ml.so.1");
  copyFileSync(library, own);
  copyFileSync(path.join(__dirname, "..", "data", "live", scenario), path.join(folder, "nvml-stub.conf"));
  return { folder, options: ["--nvml-library", own, "--proc", path.join(folder, "proc")] };
}

type Line = Record<string, unknown>;

/** An agent of one node that sends what it is told to. */
export class Agent {
  private seq = 0;

  constructor(
    private readonly request: APIRequestContext,
    readonly node: string,
    private readonly source = `${node}-${Date.now()}-${Math.random().toString(36).slice(2)}`,
  ) {}

  /** Sends records of the time `seconds` from now, and waits until they are kept. */
  async send(seconds: number, ...records: Line[]): Promise<void> {
    const t = Date.now() * 1000 + Math.round(seconds * 1e6);
    const first = this.seq;
    const lines = records.map((record) => ({ seq: this.seq++, t, ...record }));
    const head = { type: "batch", format: "rankscope.live/1", source: this.source, node: this.node, first, last: this.seq - 1 };
    const answer = await this.request.post("/api/v1/samples", {
      headers: { "content-type": "application/x-ndjson" },
      data: [head, ...lines].map((line) => JSON.stringify(line)).join("\n"),
    });
    expect(answer.status(), await answer.text()).toBe(200);
    expect(await answer.json()).toEqual({ acknowledged: this.seq - 1 });
  }
}

/** A node with `count` cards of 80 GB. */
export const node = (count: number): Line => ({
  type: "node",
  host: "gpu-a",
  driver_version: "550.54.15",
  devices: Array.from({ length: count }, (_, index) => ({
    subject: { device: index },
    name: "NVIDIA H100 80GB HBM3",
    total: 81_559 * MIB,
  })),
});

/** What the cards use while `ranks` are there. */
export const memory = (count: number, own: number, leak = 0): Line => ({
  type: "memory",
  dt_us: [0],
  devices: Array.from({ length: count }, (_, index) => ({
    subject: { device: index },
    used: [(own + 480 + (index === 0 ? leak * (count - 1) : 0)) * MIB],
  })),
});

/** Ten samples a second of all cards for so many seconds; with `spike`, card 0 stands at it for one of them. */
export const fast = (count: number, seconds: number, own: number, spike?: number): Line => ({
  type: "memory",
  dt_us: Array.from({ length: seconds * 10 }, (_, sample) => sample * 100_000),
  devices: Array.from({ length: count }, (_, index) => ({
    subject: { device: index },
    used: Array.from({ length: seconds * 10 }, (_, sample) => (index === 0 && sample === 50 && spike ? spike : own) * MIB),
  })),
});

/**
 * Ranks on their own cards, `first` the lowest of this node; with `leak`, all but it also hold so many MiB on card 0.
 */
export const ranks = (count: number, own: number, job: string, leak = 0, first = 0): Line => {
  const process = (card: number, rank: number, mib: number) => ({
    subject: { device: card },
    pid: 4000 + rank,
    kind: "C",
    name: "python",
    used: mib * MIB,
    rank: { rank: first + rank, local_rank: rank, world_size: first + count, job },
  });
  const all = Array.from({ length: count }, (_, rank) => rank);
  const visits = leak ? all.slice(1).map((rank) => process(0, rank, leak)) : [];
  return { type: "processes", listing: "listed", processes: [...all.map((rank) => process(rank, rank, own)), ...visits] };
};

/** Nobody on any card. */
export const nobody: Line = { type: "processes", listing: "none_found", processes: [] };
