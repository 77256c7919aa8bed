// What the tests upload: our own small files, and the larger collection beside the checkout where there is one.

import { existsSync, readdirSync } from "node:fs";
import path from "node:path";

const own = (name: string) => path.join(__dirname, "..", "data", name);

/** One job: its table, its log and its script. */
export const threeFiles = ["nvidia-smi.txt", "train.log", "train.py"].map(own);

/** An out-of-memory message of the same job. */
export const oomMessage = own("oom.txt");

/** The table alone. */
export const table = own("nvidia-smi.txt");

/** All files of a case that was rebuilt from a public report; `undefined` where the collection is absent. */
export function publicCase(id: string): string[] | undefined {
  const folder = path.join(__dirname, "..", "..", "..", "shared", "cases", id, "full");
  if (!existsSync(folder)) return undefined;
  return readdirSync(folder).sort().map((name) => path.join(folder, name));
}

/** A file of the collection of public files; `undefined` where it is absent. */
export function publicFile(...parts: string[]): string | undefined {
  const file = path.join(__dirname, "..", "..", "..", "shared", "data", ...parts);
  return existsSync(file) ? file : undefined;
}

/** A step log of many ranks, made up and always the same; one rank is 6 GiB above the others. */
export function logOf(ranks: number, steps: number, heavy: number): { name: string; mimeType: string; buffer: Buffer } {
  const lines: string[] = [];
  for (let step = 0; step < steps; step++) {
    for (let rank = 0; rank < ranks; rank++) {
      const noise = (rank * 7919 + step * 104_729) % 97;
      const allocated = 20_000 + noise + (rank === heavy ? 6_144 : 0);
      lines.push(`rank=${rank} step=${step} allocated=${allocated}MiB reserved=${allocated + 900}MiB peak=${allocated + 300}MiB`);
    }
  }
  return { name: "job.log", mimeType: "text/plain", buffer: Buffer.from(lines.join("\n") + "\n") };
}

/** A step log in which memory follows the length of the batch, and rank 3 draws the long ones. */
export function logByTokens(): { name: string; mimeType: string; buffer: Buffer } {
  const lines: string[] = [];
  for (let step = 0; step < 60; step++) {
    for (let rank = 0; rank < 4; rank++) {
      const length = 128 + ((rank * 7919 + step * 104_729) % 257) + (rank === 3 ? (step * 37) % 600 : 0);
      const peak = 6_000 + length * 22;
      lines.push(`rank=${rank} step=${step} batch=8x${length} tokens=${8 * length} allocated=${peak - 200}MiB reserved=${peak + 900}MiB peak=${peak}MiB`);
    }
  }
  return { name: "job.log", mimeType: "text/plain", buffer: Buffer.from(lines.join("\n") + "\n") };
}
