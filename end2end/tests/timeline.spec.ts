// The timeline under the pointer: every rank at one instant, and a window of it at full resolution.

import type { Page } from "@playwright/test";
import { open } from "./report";
import { expect, test } from "./server";

/** Eight ranks over many steps; at one step, and only there, rank 5 holds twice as much. */
const SPIKE = 3_333;
function spiky(): { name: string; mimeType: string; buffer: Buffer } {
  const lines: string[] = [];
  for (let step = 0; step < 6_000; step++) {
    for (let rank = 0; rank < 8; rank++) {
      const allocated = 20_000 + ((rank * 7919 + step * 104_729) % 97) + (rank === 5 && step === SPIKE ? 20_000 : 0);
      lines.push(`rank=${rank} step=${step} allocated=${allocated}MiB reserved=${allocated + 900}MiB`);
    }
  }
  return { name: "job.log", mimeType: "text/plain", buffer: Buffer.from(lines.join("\n") + "\n") };
}

const card = (page: Page) => page.getByRole("region", { name: /^Memory per rank/ });
const drawing = (page: Page) => card(page).locator("svg").filter({ visible: true }).first();

/** The page position of an x value, from what the drawing says of itself. */
async function at(page: Page, x: number): Promise<{ x: number; y: number }> {
  return drawing(page).evaluate((svg, x) => {
    const number = (name: string) => Number(svg.getAttribute(name));
    const [left, right, min, max] = ["data-plot-left", "data-plot-right", "data-x-min", "data-x-max"].map(number);
    const box = svg.getBoundingClientRect();
    const scale = box.width / Number(svg.getAttribute("viewBox")!.split(" ")[2]);
    const within = left + ((x - min) / (max - min)) * (right - left);
    return { x: box.left + within * scale, y: box.top + ((number("data-plot-top") + number("data-plot-bottom")) / 2) * scale };
  }, x);
}

test("every rank is read at one instant, and a window is drawn and read at full resolution", async ({ page }) => {
  test.slow();
  await open(page, spiky());
  await expect(card(page).getByRole("group", { name: "Zoom" })).toBeVisible();
  await drawing(page).scrollIntoViewIfNeeded();
  const tip = card(page).locator(".lens-tip");

  const middle = await at(page, 1_000);
  await page.mouse.move(middle.x, middle.y);
  await expect(tip).toBeVisible();
  await expect(tip.getByRole("listitem")).toHaveCount(8);
  for (let rank = 0; rank < 8; rank++) await expect(tip).toContainText(`rank ${rank}`);
  await expect(tip).toContainText(/step (9\d\d|10\d\d)/);

  // The spike of one step is in the picture of the whole run, although that has fewer points than the run has steps.
  const highest = () => drawing(page).getAttribute("data-y-max");
  expect(Number(await highest())).toBeGreaterThan(38 * 2 ** 30);

  const [from, to] = [await at(page, SPIKE - 60), await at(page, SPIKE + 60)];
  const picture = page.waitForResponse((response) => response.url().includes("/charts/timeline.svg"));
  const asked = page.waitForResponse((response) => /\/series\?.*from=/.test(response.url()));
  await page.mouse.move(from.x, from.y);
  await page.mouse.down();
  await page.mouse.move(to.x, to.y, { steps: 4 });
  await page.mouse.up();
  const drawn = await picture;
  expect(drawn.status()).toBe(200);
  expect(new URL(drawn.url()).searchParams.get("from")).toMatch(/^32\d\d|33\d\d$/);
  await expect(card(page).getByRole("status")).toContainText(/step 32\d\d|step 33\d\d/);

  // Values of that window, step for step: the spike is read at its step and not beside it.
  const spike = await at(page, SPIKE);
  await page.mouse.move(spike.x, spike.y);
  await asked;
  await expect(tip).toContainText(`step ${SPIKE}`);
  const rank5 = tip.getByRole("listitem").filter({ hasText: "rank 5" });
  await expect(rank5).toContainText("39.");
  const beside = await at(page, SPIKE + 3);
  await page.mouse.move(beside.x, beside.y);
  await expect(tip).toContainText(`step ${SPIKE + 3}`);
  await expect(rank5).toContainText("19.");

  await card(page).getByRole("button", { name: "Whole run" }).click();
  const again = await at(page, 1_000);
  await page.mouse.move(again.x, again.y);
  await expect(tip).toContainText(/step (9\d\d|10\d\d)/);
});
