// Ways through the guided checklist that several tests take.

import { readFileSync } from "node:fs";
import { table } from "./evidence";

/** The table of the same job with every process bound to its own card: no rows of other ranks on GPU 0. */
export function boundTable(name = "nvidia-smi-after.txt") {
  const strays = /^\|\s+0\s+N\/A\s+N\/A\s+2141[123] /;
  const lines = readFileSync(table, "utf8").split("\n").filter((line) => !strays.test(line));
  return { name, mimeType: "text/plain", buffer: Buffer.from(lines.join("\n").replace("14823MiB", "12210MiB")) };
}

/** Steps of four ranks: batches of these lengths (by step, by rank), peaks that follow them, and validation lines. */
export function stepLog(name: string, lengths: number[][], steps = 40) {
  const lines: string[] = [];
  for (let step = 0; step < steps; step += 1) {
    lengths[step % lengths.length].forEach((start, rank) => {
      // No epoch is in the same order as the one before.
      const length = start + Math.floor((start * ((step * step) % 23)) / 400);
      const peak = (10_000 + 10 * length).toFixed(1);
      lines.push(`[train] rank=${rank} step=${step} shape=(8, ${length}) cur=8000.0MB peak=${peak}MB`);
    });
    if (step % 10 === 9) {
      for (let rank = 0; rank < 4; rank += 1) lines.push(`[eval] rank=${rank} step=${step} cur=6000.0MB peak=90${rank}0.0MB`);
    }
  }
  return { name, mimeType: "text/plain", buffer: Buffer.from(`${lines.join("\n")}\n`) };
}

/** Rank 3 draws the long samples. */
export const uneven = [[512, 480, 500, 1834], [490, 512, 505, 1640], [600, 520, 540, 1720], [450, 470, 512, 1500]];

/** The same, packed by tokens. */
export const packed = [[812, 805, 810, 820], [790, 800, 795, 801], [830, 822, 826, 835], [700, 705, 702, 708]];
