// The main job, as a person does it: drop files, get the cause, share the report, take the link back.

import path from "node:path";
import { publicCase, threeFiles } from "./evidence";
import { alive, expectCaseReport, expectWholeReport, fileField, said, send, share, start, upload } from "./report";
import { expect, test } from "./server";

test("drop files, get the cause, share it, revoke it", async ({ page, browser, server }) => {
  await start(page);
  await fileField(page).setInputFiles(threeFiles);
  const chosen = page.getByRole("list", { name: "Chosen files" });
  await expect(chosen.getByRole("listitem")).toHaveText([/nvidia-smi\.txt/, /train\.log/, /train\.py/]);

  // Held back, so that what is shown while the files travel can be seen.
  let go = () => {};
  const held = new Promise<void>((resolve) => (go = resolve));
  await page.route("**/api/v1/runs", async (route) => {
    await held;
    await route.continue();
  });
  await send(page).click();
  await expect(page.getByRole("progressbar")).toBeVisible();
  await expect(said(page)).toContainText("Sending");
  go();

  await page.waitForURL(/\/runs\/[^/]+$/);
  await expectWholeReport(page);

  const address = await share(page);
  const visitor = await browser.newContext();
  const shared = await visitor.newPage();
  expect((await shared.goto(address))?.status()).toBe(200);
  await expectWholeReport(shared);
  await expect(shared.getByText("Shared report, read-only")).toBeVisible();
  expect(await visitor.cookies()).toEqual([]);
  // Nothing there writes, and nothing leads to the list of runs.
  await expect(shared.getByRole("button", { name: /create link|revoke|find the cause|diagnose again/i })).toHaveCount(0);
  await expect(shared.locator(`a[href="/"], a[href^="/runs"], a[href^="${server.url}/runs"]`)).toHaveCount(0);

  await page.getByRole("button", { name: "Revoke" }).click();
  await expect(page.getByRole("status").filter({ hasText: "revoked" })).toBeVisible();
  expect((await shared.goto(address))?.status()).toBe(410);
  await expect(shared.getByRole("heading", { level: 1 })).toHaveText("This link has ended");
  await expect(shared.locator("svg.chart, .figure svg")).toHaveCount(0);
  await visitor.close();

  await page.goto("/");
  await expect(page.locator("#runs").getByRole("link").first()).toContainText(/imbalance/i);
});

test("a link shows title, verdict and picture where it is pasted", async ({ page, request }) => {
  await upload(page, threeFiles);
  const summary = (await page.getByRole("heading", { level: 1 }).innerText()).trim();
  const address = await share(page);

  const answer = await request.get(address);
  const html = await answer.text();
  const tag = (property: string) => html.match(new RegExp(`<meta[^>]*property="${property}"[^>]*>`))?.[0] ?? "";
  expect(tag("og:title")).toContain("content=");
  expect(tag("og:description")).toContain(summary.slice(0, 20));
  const picture = tag("og:image").match(/content="([^"]+)"/)?.[1];
  expect(picture).toMatch(/^http:\/\/127\.0\.0\.1:\d+\//);

  const image = await request.get(picture!);
  expect(image.headers()["content-type"]).toBe("image/png");
  const bytes = await image.body();
  expect(bytes.subarray(1, 4).toString()).toBe("PNG");
  // Width and height stand in the first chunk of a PNG.
  expect([bytes.readUInt32BE(16), bytes.readUInt32BE(20)]).toEqual([1200, 630]);
});

test("more evidence gives a new diagnosis on the same page", async ({ page }) => {
  await upload(page, threeFiles[0]);
  const address = page.url();
  const files = page.getByRole("region", { name: /^Files/ });
  await expect(files).not.toContainText("train.py");

  await alive(page);
  await page.getByLabel(/drop the new files here/i).setInputFiles(threeFiles[2]);
  await page.getByRole("button", { name: "Add and diagnose again" }).click();
  await expect(files).toContainText("train.py");
  expect(page.url()).toBe(address);
});

test("files chosen before the page has come to life are sent too", async ({ page }) => {
  let go = () => {};
  const held = new Promise<void>((resolve) => (go = resolve));
  await page.route("**/*.wasm", async (route) => {
    await held;
    await route.continue();
  });
  await page.goto("/", { waitUntil: "commit" });
  await fileField(page).setInputFiles(threeFiles[0]);
  go();
  await alive(page);
  await expect(page.getByRole("list", { name: "Chosen files" })).toContainText("nvidia-smi.txt");
});

for (const id of ["C25", "C01"]) {
  test(`files of a public report lead to a verdict that can be shared and taken back (${id})`, async ({ page, browser }) => {
    const files = publicCase(id);
    test.skip(!files, "the collection of public cases is not beside this checkout");
    const names = files!.map((file) => path.basename(file));
    await upload(page, files!);
    await expectCaseReport(page, names);

    const address = await share(page);
    const visitor = await browser.newContext();
    const seen = await visitor.newPage();
    expect((await seen.goto(address))?.status()).toBe(200);
    await expectCaseReport(seen, names);
    await page.getByRole("button", { name: "Revoke" }).click();
    await expect(page.getByRole("status").filter({ hasText: "revoked" })).toBeVisible();
    expect((await seen.goto(address))?.status()).toBe(410);
    await visitor.close();
  });
}
