// Memory snapshots side by side: on public files, with and without JavaScript.

import { readFileSync } from "node:fs";
import { publicFile } from "./evidence";
import { snapshot } from "./pickle";
import { upload } from "./report";
import { expect, test } from "./server";

const training = publicFile("snapshots", "snap_1gpu_training_22k_events.pickle");
const inference = publicFile("snapshots", "snap_1gpu_inference_5k_events.pickle");
const absent = !training || !inference;

/** Two public snapshots as if they were of two ranks. */
const pair = () =>
  [training!, inference!].map((file, rank) => ({
    name: `snap_rank${rank}.pickle`,
    mimeType: "application/octet-stream",
    buffer: readFileSync(file),
  }));

test("what only one rank holds stands on top, and its line is named", async ({ page }) => {
  await upload(page, [0, 1, 2, 3].map(snapshot));
  await page.getByRole("link", { name: "Compare the ranks by line of code" }).click();
  await page.waitForURL(/\/snapshots$/);
  const sites = page.getByRole("region", { name: /^Ranks side by side/ });
  const rows = sites.locator("tbody tr");
  await expect(rows.first()).toContainText("ema.py:12 update");
  await expect(rows.first()).toContainText("on this rank only");
  await expect(rows.first()).toContainText("+900 MiB");
  await expect(page.locator(".band-key .hot")).toContainText("ema.py:12 update");
  await expect(page.locator("svg.chart-segments").filter({ visible: true })).toBeVisible();
  // Each drawing can be had as a file, with the names of the lines in it.
  const links = page.locator('a[href*="/snapshots/charts/"]');
  await expect(links).toHaveCount(4);
  for (const link of await links.all()) {
    const address = (await link.getAttribute("href"))!;
    const answer = await page.request.get(address);
    expect(answer.headers()["content-type"], address).toBe(address.includes(".png") ? "image/png" : "image/svg+xml");
    if (address.includes("over-time.svg")) expect(await answer.text()).toContain("ema.py:12 update");
  }

  // The page holds all lines, so words and columns need no answer of the server.
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  await sites.getByRole("searchbox").fill("attend");
  await expect(rows.filter({ visible: true })).toHaveCount(1);
  await sites.getByRole("searchbox").fill("");
  await sites.getByRole("link", { name: "line of code", exact: true }).click();
  await expect(sites.locator("th[aria-sort=ascending]")).toContainText("line of code");
  await expect(rows.first()).toContainText("ema.py");
  await sites.getByRole("link", { name: "rank 0", exact: true }).click();
  await expect(rows.first()).toContainText("900 MiB");
  expect(asked).toEqual([]);
  // The whole stack is one click away, the user's own frames marked.
  await rows.filter({ hasText: "ema.py" }).locator("summary").click();
  await expect(rows.filter({ hasText: "ema.py" }).locator(".frames .own").first()).toContainText("update");
});

test("ranks are compared by line of code, searched and sorted at once", async ({ page }) => {
  test.skip(absent, "the collection of public files is not beside this checkout");
  test.slow();
  await upload(page, pair());
  await expect(page.getByRole("region", { name: /^Files/ })).toContainText("a binary file");
  await page.getByRole("link", { name: "Compare the ranks by line of code" }).click();
  await page.waitForURL(/\/snapshots$/);
  await expect(page.locator("svg.chart-bands").filter({ visible: true })).toBeVisible();
  await expect(page.getByRole("region", { name: /^At the peak/ }).locator("details").first()).toBeVisible();

  const sites = page.getByRole("region", { name: /^Ranks side by side/ });
  const rows = sites.locator("tbody tr");
  const all = await rows.count();
  expect(all).toBeGreaterThan(3);
  const name = (await rows.first().locator("code").first().textContent())!.trim().split(" ").pop()!;
  await sites.getByRole("searchbox").fill(name);
  await sites.getByRole("searchbox").press("Enter");
  await expect(rows.first()).toContainText(name);
});

test("another rank, another moment, another order: links and forms alone", async ({ browser, server }) => {
  test.skip(absent, "the collection of public files is not beside this checkout");
  const context = await browser.newContext({ javaScriptEnabled: false, baseURL: server.url });
  const page = await context.newPage();
  const made = await page.request.post("/api/v1/runs", { multipart: { files: pair()[0] } });
  const { id } = await made.json();
  await page.request.post(`/api/v1/runs/${id}/files`, { multipart: { files: pair()[1] } });
  await page.goto(`/runs/${id}/snapshots`);
  await page.getByRole("navigation", { name: "Rank" }).getByRole("link", { name: /rank 1/ }).click();
  await expect(page.getByRole("heading", { name: /^rank 1/ })).toBeVisible();
  await page.getByRole("link", { name: "at the end" }).click();
  await expect(page.getByRole("link", { name: "at the end" })).toHaveAttribute("aria-current", "true");
  await page.getByRole("link", { name: "line of code", exact: true }).click();
  await expect(page).toHaveURL(/sort=name/);
  await page.getByRole("searchbox").fill("no such function");
  await page.getByRole("button", { name: "Search" }).click();
  await expect(page.getByText("No line has these words")).toBeVisible();
  expect(page.url()).toContain("rank=1");
  await context.close();
});
