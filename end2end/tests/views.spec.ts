// Every view, on files that other people's jobs left behind: light, dark, at phone width, and without JavaScript.

import type { Page } from "@playwright/test";
import { readFileSync } from "node:fs";
import path from "node:path";
import { Agent, memory, node, ranks } from "./live";
import { publicCase, publicFile } from "./evidence";
import { fileField, send, share } from "./report";
import { expect, test } from "./server";

const ways = [
  { name: "light", colorScheme: "light", viewport: { width: 1280, height: 900 }, javaScriptEnabled: true },
  { name: "dark", colorScheme: "dark", viewport: { width: 1280, height: 900 }, javaScriptEnabled: true },
  { name: "phone", colorScheme: "light", viewport: { width: 390, height: 844 }, javaScriptEnabled: true },
  { name: "without JavaScript", colorScheme: "light", viewport: { width: 1280, height: 900 }, javaScriptEnabled: false },
] as const;

const training = publicFile("snapshots", "snap_1gpu_training_22k_events.pickle");
const inference = publicFile("snapshots", "snap_1gpu_inference_5k_events.pickle");
const megatron = publicFile("logs", "megatron_64ranks_tp4_pp16.out");
/** Two public reports, rebuilt as cases. */
const [base, head] = [publicCase("C01"), publicCase("C25")];
/** Another, with the steps of all ranks and their batches. */
const steps = publicCase("C84");
const absent = !training || !inference || !megatron || !base || !head || !steps;

/** Uploads with the plain form, which works with and without a script; gives the run's address. */
async function run(page: Page, files: Parameters<ReturnType<typeof fileField>["setInputFiles"]>[0]): Promise<string> {
  await page.goto("/");
  await fileField(page).setInputFiles(files);
  await send(page).click();
  // Warnings of files make a stop in front of the report.
  const stop = page.getByRole("link", { name: "Open the report" });
  await expect(page.locator("main.report").or(stop).first()).toBeVisible({ timeout: 30_000 });
  if (!(await page.locator("main.report").isVisible())) await stop.click({ timeout: 2_000 }).catch(() => {});
  await page.waitForURL(/\/runs\/[^/]+$/);
  return new URL(page.url()).pathname;
}

/** The page stands as a whole: named, charts drawn and readable, nothing wider than the screen. */
async function expectWhole(page: Page, charts: number): Promise<void> {
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  await expect(page.locator(".figure svg").filter({ visible: true })).toHaveCount(charts);
  const beyond = () => page.evaluate(() => document.scrollingElement!.scrollWidth - document.scrollingElement!.clientWidth);
  expect(await beyond(), page.url()).toBe(0);
}

for (const { name, ...way } of ways) {
  test.describe(name, () => {
    test.use(way);

    test("every view stands on real files", async ({ page, browser, request }) => {
      test.skip(absent, "the collections of public files and cases are not beside this checkout");
      test.slow();

      // A report, its share, each step of the checklist, and two runs side by side.
      const first = await run(page, head!);
      await expectWhole(page, 2);
      const address = await share(page);
      const visitor = await browser.newContext(way);
      const shared = await visitor.newPage();
      expect((await shared.goto(address))?.status()).toBe(200);
      await expectWhole(shared, 2);
      await visitor.close();
      for (const stage of ["environment", "data", "model", "profiling", "verify"]) {
        await page.goto(`${first}/checklist/${stage}`);
        await expectWhole(page, 0);
      }
      const second = await run(page, base!);
      const id = (address: string) => path.basename(address);
      await page.goto(`/compare?base=${id(second)}&head=${id(first)}`);
      await expectWhole(page, 2);

      // 64 ranks of a pipeline.
      await run(page, megatron!);
      await expect(page.getByRole("heading", { level: 1 })).toContainText("pipeline stages hold more by design");
      // Its table is of empty cards: there is nothing to see in what fills them.
      await expectWhole(page, 1);

      // Every chart of steps: over time, rank by step, and the batch beside the peak.
      await run(page, steps!);
      for (const title of ["timeline", "heatmap", "scatter"]) {
        await expect(page.locator(`#${title} .figure svg`).filter({ visible: true }).first()).toBeVisible();
      }
      await expectWhole(page, 4);

      // Snapshots as of two ranks, and their page.
      const snapshots = await run(
        page,
        [training!, inference!].map((file, rank) => ({
          name: `snap_rank${rank}.pickle`,
          mimeType: "application/octet-stream",
          buffer: readFileSync(file),
        })),
      );
      await page.goto(`${snapshots}/snapshots`);
      await expectWhole(page, 2);

      // Live, the documentation, and pages that lead nowhere.
      const agent = new Agent(request, `views-${name.replaceAll(" ", "-")}-${Date.now()}`);
      await agent.send(0, node(8), memory(8, 60_000), ranks(8, 60_000, `slurm:v${Date.now() % 100_000}`));
      await page.goto("/live");
      await expect(page.getByRole("region", { name: `Node ${agent.node}` }).getByRole("listitem")).toHaveCount(8);
      for (const address of ["/live", "/", "/docs", "/docs/reasoning", "/runs/none"]) {
        await page.goto(address);
        await expectWhole(page, 0);
      }
    });
  });
}
