// The probe: the file that the server hands out, and logs of real jobs that lead to the right item.

import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";
import { upload } from "./report";
import { expect, test } from "./server";

// Four processes each over gloo, written by end2end/probe/jobs.py; where they come from is said beside them.
const archives = path.join(__dirname, "..", "..", "crates", "ingest", "tests", "data", "probe", "jobs");

const jobs = [
  { name: "correct", stage: "data", item: "distributed_sampler", status: "pass", says: "Each of 4 ranks draws a shard of its own" },
  { name: "no_sampler", stage: "data", item: "distributed_sampler", status: "fail", says: "No loader of ranks 0 to 3 has a distributed sampler" },
  { name: "no_set_epoch", stage: "data", item: "distributed_sampler", status: "fail", says: "set_epoch is never called" },
  { name: "variable_lengths", stage: "data", item: "batch_divisibility", status: "suspect", says: "Batches differ between ranks" },
  { name: "rank0_eval", stage: "model", item: "rank_only_work", status: "suspect", says: "Only one of four ranks evaluated: rank 0." },
];

for (const job of jobs) {
  test(`the logs of all ranks of ${job.name} lead to ${job.item}`, async ({ page }, info) => {
    const folder = info.outputPath("logs");
    execFileSync("mkdir", ["-p", folder]);
    execFileSync("tar", ["-xzf", path.join(archives, `${job.name}.tar.gz`), "-C", folder]);
    const logs = readdirSync(folder).sort().map((name) => path.join(folder, name));
    expect(logs).toHaveLength(4);

    await upload(page, logs);
    const report = page.url();
    for (const log of logs) await expect(page.locator("#files, .files").first()).toContainText(path.basename(log));
    await page.goto(`${report}/checklist/${job.stage}`);
    const item = page.locator(`#item-${job.item}`);
    await expect(item.locator(".status, .badge").first()).toContainText(job.status);
    await expect(item).toContainText(job.says);
    // The sentence is not only said: it leads to the line of a log.
    const finding = item.getByRole("listitem").filter({ hasText: job.says }).first();
    await finding.getByRole("link", { name: /\.jsonl/ }).first().click();
    await expect(page).toHaveURL(new RegExp(`${new URL(report).pathname}#f\\d`));
  });
}

test("the file that the server hands out is the probe, and its page says how", async ({ page, request, server }) => {
  const file = await request.get("/rankscope_probe.py");
  expect(file.status()).toBe(200);
  expect(file.headers()["content-type"]).toContain("text/x-python");
  expect(await file.text()).toContain("def start(");

  await page.goto("/docs/probe");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("The probe");
  const lines = page.locator(".code").filter({ hasText: "probe.step(batch)" }).first();
  await lines.getByRole("button", { name: "Copy" }).click();
  await expect(lines.getByRole("button")).toHaveText(/Copied|Select and copy/);
  expect(server.url).toMatch(/^http/);
});

test("an undecided item offers the probe's lines and leads to its page", async ({ page }) => {
  await upload(page, { name: "pasted.txt", mimeType: "text/plain", buffer: Buffer.from("rank=0 step=1 peak=100.0MB\nrank=1 step=1 peak=100.0MB\n") });
  await page.goto(`${page.url()}/checklist/data`);
  const item = page.locator("#item-distributed_sampler");
  for (const fold of await item.getByText("Another way").all()) await fold.click();
  await expect(item.locator("code").filter({ hasText: "import rankscope_probe as probe" }).first()).toBeVisible();
  await item.getByRole("link", { name: "What the probe is" }).first().click();
  await expect(page).toHaveURL(/\/docs\/probe$/);
});
