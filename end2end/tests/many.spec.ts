// Jobs of 64 and of 1000 ranks read as well as those of eight.

import type { Page } from "@playwright/test";
import { logByTokens, logOf, publicFile } from "./evidence";
import { open, upload } from "./report";
import { expect, test } from "./server";

/** What the page weighs as it travels. */
async function weight(page: Page): Promise<number> {
  const answer = await page.request.get(page.url());
  return (await answer.body()).length;
}

const drawn = (page: Page, name: RegExp) => page.getByRole("region", { name }).locator("svg").filter({ visible: true }).first();

test("the stages of a pipeline differ by design, and the report says so", async ({ page }) => {
  const log = publicFile("logs", "megatron_64ranks_tp4_pp16.out");
  test.skip(!log, "the collection of public files is not beside this checkout");
  await upload(page, log!);
  await expect(page.getByRole("heading", { level: 1 })).toContainText("the ends of its 16 pipeline stages hold more by design");
  await expect(page.getByRole("region", { name: "Cause" })).toContainText("The job runs in 16 pipeline stages of four ranks");
  await expect(page.getByRole("region", { name: "Cause" })).toContainText(":1198");
  // Megatron prints its figures once.
  await expect(drawn(page, /^Each rank at step 20/)).toBeVisible();
  expect(await weight(page)).toBeLessThan(1_000_000);
});

test("one heavy rank of 1000 is seen at once, and long lists wait to be asked for", async ({ page }) => {
  test.slow();
  await open(page, logOf(1000, 20, 517));
  await expect(page.getByRole("heading", { level: 1 })).toContainText(/rank 517/i);
  for (const name of [/^Memory per rank/, /^Rank by step/, /^Peak per rank/]) await expect(drawn(page, name)).toBeVisible();
  await expect(page.getByRole("region", { name: /^Rank by step/ })).toContainText("rank 517");
  await expect(drawn(page, /^Peak per rank/)).toContainText("8 ranks");
  expect(await weight(page)).toBeLessThan(1_500_000);

  const peaks = page.getByRole("region", { name: /^Peak per rank/ });
  await peaks.getByText("Exact values").click();
  await expect(peaks.locator("tbody tr")).toHaveCount(48);
  await expect(peaks.locator("tbody tr.hot")).toContainText("rank 517");
  await peaks.getByRole("link", { name: "Show everything" }).click();
  await expect(peaks.locator("tbody tr")).toHaveCount(1000, { timeout: 60_000 });

  // By size the heavy one is first; what was asked for before stays.
  await peaks.getByRole("link", { name: "by size" }).click();
  await expect(peaks.getByRole("link", { name: "by size" })).toHaveAttribute("aria-current", "true", { timeout: 60_000 });
  await expect(peaks.locator("tbody tr")).toHaveCount(1000, { timeout: 60_000 });
  await expect(peaks.locator("tbody tr").first()).toContainText("rank 517");
  await expect(peaks.locator("tbody tr").nth(1)).not.toContainText("stands out");

  const map = page.getByRole("region", { name: /^Rank by step/ });
  await map.getByText("Distance of each rank").click();
  await expect(map.locator("tbody tr.hot")).toContainText(/rank 517.*20.*GiB/);
});

test("memory that follows the input is a rising cloud", async ({ page }) => {
  await upload(page, logByTokens());
  const scatter = page.getByRole("region", { name: /^Tokens against memory/ });
  await expect(scatter.locator("svg").filter({ visible: true }).first()).toBeVisible();
  await expect(scatter).toContainText("Memory follows the input");
  // Each drawing can be had as a file.
  for (const kind of ["timeline", "heatmap", "imbalance", "scatter"]) {
    const link = page.locator(`a[href*="/charts/${kind}.png"]`).first();
    const answer = await page.request.get((await link.getAttribute("href"))!);
    expect(answer.headers()["content-type"], kind).toBe("image/png");
  }
});
