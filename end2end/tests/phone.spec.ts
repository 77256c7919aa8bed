// What a phone shows must be there to be read: nothing covered, nothing cut, and what is wider than the screen scrolls
// inside its own box.

import type { Locator } from "@playwright/test";
import { readFileSync } from "node:fs";
import { table, threeFiles } from "./evidence";
import { snapshot } from "./pickle";
import { fileField, send, start, upload } from "./report";
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

test("after files with warnings the way to the report is in sight", async ({ page }) => {
  await start(page);
  const file = (name: string, content: Buffer) => ({ name, mimeType: "text/plain", buffer: content });
  const empty = Array.from({ length: 40 }, (_, n) => file(`rank${n}.log`, Buffer.alloc(0)));
  await fileField(page).setInputFiles([...empty, file("nvidia-smi.txt", readFileSync(table))]);
  await send(page).click();
  const way = page.getByRole("link", { name: "Open the report" });
  await expect(way).toBeInViewport({ ratio: 1 });
  await expect(page.getByText("and 37 more files, 36 with a warning")).toBeVisible();
  // The whole answer is no longer than the screen.
  const frame = await box(page.locator("main .upload"));
  expect(frame.height).toBeLessThan(844);
  await way.click();
  await page.waitForURL(/\/runs\/[^/]+$/);
});

test("the ways to other pages stay beside what a report offers", async ({ page }) => {
  await upload(page, threeFiles);
  const bar = page.getByRole("banner");
  for (const name of ["Checklist", "Share"]) await expect(bar.getByRole("link", { name })).toBeInViewport({ ratio: 1 });
  const ways = page.getByRole("navigation", { name: "Main" }).getByRole("link");
  await expect(ways).toHaveText(["Runs", "Live", "Compare", "Docs"]);
  for (const way of await ways.all()) {
    await expect(way).toBeInViewport({ ratio: 1 });
    expect((await box(way)).height).toBeGreaterThanOrEqual(36);
  }
  await ways.filter({ hasText: "Compare" }).click();
  await expect(page).toHaveURL(/\/compare$/);
});

test("whatever scrolls sideways shows it, has a name and can be reached by the keyboard", async ({ page }) => {
  // Shadows lie behind the content: at the end of the way they are covered, and nothing else covers them.
  const mute = () =>
    page.evaluate(() => {
      const scrolls = (element: Element) =>
        element.scrollWidth > element.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
      const all = [...document.querySelectorAll("main *")].filter((element) => !element.matches("textarea, input, select") && scrolls(element));
      const says = (element: Element) =>
        (element as HTMLElement).tabIndex === 0 &&
        element.getAttribute("role") === "region" &&
        Boolean(element.getAttribute("aria-label")) &&
        getComputedStyle(element).backgroundAttachment.includes("local");
      return { found: all.length, mute: all.filter((element) => !says(element)).map((element) => element.outerHTML.slice(0, 160)) };
    });
  await upload(page, threeFiles);
  await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
  const report = await mute();
  expect(report.mute).toEqual([]);
  expect(report.found).toBeGreaterThan(2);
  await upload(page, [0, 1, 2, 3].map(snapshot));
  await page.goto(`${page.url()}/snapshots`);
  const snapshots = await mute();
  expect(snapshots.mute).toEqual([]);
  expect(snapshots.found).toBeGreaterThan(0);

  // At the right edge of the table the paper is darker while there is more, and paper at the end.
  const table = page.getByRole("region", { name: "Lines of code by rank" });
  const edge = async () => {
    const frame = await box(table);
    const clip = { x: frame.x + frame.width - 3, y: frame.y + 4, width: 2, height: 2 };
    const picture = await page.screenshot({ clip });
    return page.evaluate(async (bytes) => {
      const image = await createImageBitmap(new Blob([new Uint8Array(bytes)], { type: "image/png" }));
      const canvas = new OffscreenCanvas(1, 1).getContext("2d")!;
      canvas.drawImage(image, 0, 0);
      return canvas.getImageData(0, 0, 1, 1).data[0];
    }, [...picture]);
  };
  await table.scrollIntoViewIfNeeded();
  expect(await edge()).toBeLessThan(235);
  await table.evaluate((element) => (element.scrollLeft = element.scrollWidth));
  expect(await edge()).toBeGreaterThan(250);
});
