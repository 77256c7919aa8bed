// What a phone shows must be there to be read: nothing covered, nothing cut, and what is wider than the screen scrolls
// inside its own box.

import type { Locator } from "@playwright/test";
import { threeFiles } from "./evidence";
import { snapshot } from "./pickle";
import { upload } from "./report";
import { expect, test } from "./server";

test.use({ viewport: { width: 390, height: 844 }, hasTouch: true });

const box = async (locator: Locator) => (await locator.boundingBox())!;
const reach = (locator: Locator) => locator.evaluate((element) => element.scrollWidth - element.clientWidth);

test("no copy button covers what it copies", async ({ page }) => {
  await upload(page, threeFiles);
  for (const address of [page.url(), `${page.url()}/checklist/environment`]) {
    await page.goto(address);
    const buttons = page.locator(".code > button.copy").filter({ visible: true });
    await expect(buttons.first()).toBeVisible();
    const covered = await buttons.evaluateAll((all) =>
      all.flatMap((button) => {
        const own = button.getBoundingClientRect();
        const text = document.createRange();
        text.selectNodeContents(button.parentElement!.querySelector("code")!);
        const hits = [...text.getClientRects()].filter(
          (line) => line.width > 0 && line.left < own.right && line.right > own.left && line.top < own.bottom && line.bottom > own.top,
        );
        // A line that scrolls sideways below the box's edge is not seen there.
        return hits.length > 0 ? [button.parentElement!.textContent] : [];
      }),
    );
    expect(covered, address).toEqual([]);
  }
});

test("rows of a quoted table keep their line and scroll inside their box", async ({ page }) => {
  await upload(page, threeFiles);
  const lines = page.getByRole("region", { name: "Lines quoted of nvidia-smi.txt" });
  expect(await reach(lines)).toBeGreaterThan(0);
  const row = lines.locator("code").first();
  const text = (await row.textContent())!;
  const height = await row.evaluate((code) => code.getBoundingClientRect().height / Number.parseFloat(getComputedStyle(code).lineHeight));
  expect(Math.round(height)).toBe(text.trim().split("\n").length);
  // Where the line stands stays in sight.
  const place = lines.locator(".place").first();
  const before = await box(place);
  await lines.evaluate((element) => (element.scrollLeft = element.scrollWidth));
  expect(Math.abs((await box(place)).x - before.x)).toBeLessThan(16);
  expect(await page.evaluate(() => document.scrollingElement!.scrollWidth - document.scrollingElement!.clientWidth)).toBe(0);
});

test("the ranks of the snapshots scroll by beside the line of code", async ({ page }) => {
  await upload(page, [0, 1, 2, 3].map(snapshot));
  await page.goto(`${page.url()}/snapshots`);
  const table = page.getByRole("region", { name: "Lines of code by rank" });
  await table.scrollIntoViewIfNeeded();
  expect(await reach(table)).toBeGreaterThan(0);
  const name = table.getByRole("rowheader").first();
  const before = await box(name);
  await table.evaluate((element) => (element.scrollLeft = element.scrollWidth));
  const last = table.getByRole("columnheader").last();
  const [edge, frame] = [await box(last), await box(table)];
  expect(edge.x + edge.width).toBeLessThanOrEqual(frame.x + frame.width + 1);
  expect(edge.x).toBeGreaterThanOrEqual((await box(name)).x + before.width - 1);
  expect(Math.abs((await box(name)).x - before.x)).toBeLessThan(1);
  await expect(name).toContainText("ema.py:12 update");

  // Each number of the key is in the drawing, once.
  const key = page.locator(".band-key li:not(.rest)");
  const numbers = page.locator("svg.chart-bands").filter({ visible: true }).locator("text");
  const drawn = await numbers.allTextContents();
  for (let n = 1; n <= (await key.count()); n++) expect(drawn.filter((text) => text.trim() === String(n)).length, String(n)).toBeGreaterThan(0);
});
