// Pictures for people to look at, in test-results/looks: light, dark and at phone width.

import path from "node:path";
import { logByTokens, logOf, threeFiles } from "./evidence";
import { snapshot } from "./pickle";
import { open, share, start, upload } from "./report";
import { expect, test } from "./server";

const shapes = [
  { name: "light", colorScheme: "light", viewport: { width: 1280, height: 900 } },
  { name: "dark", colorScheme: "dark", viewport: { width: 1280, height: 900 } },
  { name: "phone-light", colorScheme: "light", viewport: { width: 390, height: 844 } },
  { name: "phone-dark", colorScheme: "dark", viewport: { width: 390, height: 844 } },
] as const;

for (const { name, colorScheme, viewport } of shapes) {
  test(`pictures: ${name}`, async ({ page }, info) => {
    test.slow();
    const picture = (what: string) =>
      page.screenshot({ path: path.join(info.project.outputDir, "looks", `${what}-${name}.png`), fullPage: true });
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize(viewport);
    await start(page);
    await picture("start");
    await upload(page, threeFiles);
    await picture("report");
    const address = await share(page);
    await page.goto(address);
    await picture("shared");
    await upload(page, [0, 1, 2, 3].map(snapshot));
    await page.goto(`${page.url()}/snapshots`);
    await picture("snapshots");
    await upload(page, logByTokens());
    await picture("tokens");
    await open(page, logOf(1000, 20, 517));
    await picture("thousand");

    // Dark is dark, light is light, and words stand out from what is behind them.
    const [ink, paper] = await page.evaluate(() => {
      const luminance = (colour: string) => {
        const canvas = new OffscreenCanvas(1, 1).getContext("2d")!;
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)].map((byte) => {
          const part = byte / 255;
          return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const body = getComputedStyle(document.body);
      const ground = [document.body, document.documentElement]
        .map((element) => getComputedStyle(element).backgroundColor)
        .find((colour) => colour !== "rgba(0, 0, 0, 0)");
      return [luminance(body.color), luminance(ground ?? "white")];
    });
    if (colorScheme === "dark") expect(paper).toBeLessThan(0.1);
    else expect(paper).toBeGreaterThan(0.8);
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    expect(contrast).toBeGreaterThan(7);
  });
}

// The pictures of the README. With RANKSCOPE_README_PICTURES=1 they replace those in docs/images.
test("pictures for the README", async ({ page, browser, server }, info) => {
  test.slow();
  const folder = process.env.RANKSCOPE_README_PICTURES
    ? path.join(__dirname, "..", "..", "docs", "images")
    : path.join(info.project.outputDir, "readme");
  const clip = (height: number) => ({ x: 0, y: 0, width: 1280, height });
  const picture = (what: string, height: number) =>
    page.screenshot({ path: path.join(folder, `${what}.png`), fullPage: true, clip: clip(height) });
  await page.setViewportSize({ width: 1280, height: 900 });
  await upload(page, threeFiles);
  await picture("report", 1500);
  await page.goto(`${page.url()}/checklist`);
  await picture("checklist", 1100);
  await upload(page, [0, 1, 2, 3].map(snapshot));
  await page.goto(`${page.url()}/snapshots`);
  await picture("snapshots", 1500);
  await open(page, logOf(1000, 20, 517));
  await page.screenshot({ path: path.join(folder, "thousand.png"), fullPage: true, clip: clip(1700) });

  // Without JavaScript everything is there too.
  const plain = await browser.newContext({ javaScriptEnabled: false, baseURL: server.url, viewport: { width: 390, height: 844 } });
  const phone = await plain.newPage();
  await phone.goto(page.url());
  await expect(phone.locator("svg.chart-heatmap").filter({ visible: true })).toBeVisible();
  await phone.screenshot({ path: path.join(info.project.outputDir, "looks", "thousand-phone-no-js.png"), fullPage: true });
  await plain.close();
});
