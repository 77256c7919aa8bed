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
