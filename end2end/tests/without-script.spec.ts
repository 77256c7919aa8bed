// The same story with JavaScript switched off: plain forms, whole pages.

import { readFileSync } from "node:fs";
import path from "node:path";
import { publicCase, threeFiles } from "./evidence";
import { expectCaseReport, expectWholeReport, fileField, send, share, textField } from "./report";
import { expect, test } from "./server";

test.use({ javaScriptEnabled: false });

test("drop files, get the cause, share it, revoke it", async ({ page, browser }) => {
  await page.goto("/");
  await fileField(page).setInputFiles(threeFiles);
  await page.getByLabel(/^Title/).fill("Night run on four cards");
  await send(page).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await expect(page.locator("header.headline")).toContainText("Night run on four cards");
  await expectWholeReport(page);

  const address = await share(page);
  const visitor = await browser.newContext({ javaScriptEnabled: false });
  const shared = await visitor.newPage();
  expect((await shared.goto(address))?.status()).toBe(200);
  await expectWholeReport(shared);

  await page.getByRole("button", { name: "Revoke" }).click();
  await expect(page.getByRole("region", { name: /^Share/ })).toContainText("revoked");
  await expect(page.getByRole("button", { name: "Revoke" })).toHaveCount(0);
  expect((await shared.goto(address))?.status()).toBe(410);
  await expect(shared.getByRole("heading", { level: 1 })).toHaveText("This link has ended");
  await visitor.close();
});

test("files of a public report lead to a verdict that can be shared and taken back", async ({ page, browser }) => {
  const files = publicCase("C25");
  test.skip(!files, "the collection of public cases is not beside this checkout");
  const names = files!.map((file) => path.basename(file));
  await page.goto("/");
  await fileField(page).setInputFiles(files!);
  await send(page).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await expectCaseReport(page, names);

  const address = await share(page);
  const visitor = await browser.newContext({ javaScriptEnabled: false });
  const seen = await visitor.newPage();
  expect((await seen.goto(address))?.status()).toBe(200);
  await expectCaseReport(seen, names);
  await page.getByRole("button", { name: "Revoke" }).click();
  await expect(page.getByRole("region", { name: /^Share/ })).toContainText("revoked");
  expect((await seen.goto(address))?.status()).toBe(410);
  await visitor.close();
});

test("a link is shown once", async ({ page }) => {
  await page.goto("/");
  await textField(page).fill("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB");
  await send(page).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await share(page);
  await page.goto("/");
  await page.locator("#runs").getByRole("link").first().click();
  await expect(page.getByLabel("New link, shown only now")).toHaveCount(0);
});

test("an empty form is answered with a reason", async ({ page }) => {
  await page.goto("/");
  const answered = page.waitForResponse((response) => response.request().method() === "POST");
  await send(page).click();
  const status = (await answered).status();
  expect(status).toBeGreaterThanOrEqual(400);
  expect(status).toBeLessThan(500);
  await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
  await expect(page.locator("main")).toContainText(/file|text/i);
});

test("every word of evidence is in the page without opening anything", async ({ page }) => {
  await page.goto("/");
  await fileField(page).setInputFiles(threeFiles);
  await send(page).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await page.getByText("Exact values").first().click();
  await expect(page.getByRole("table").first()).toContainText("GPU 0");
});

test("files with warnings lead to the report too", async ({ page }) => {
  await page.goto("/");
  await fileField(page).setInputFiles([{ name: "empty.log", mimeType: "text/plain", buffer: Buffer.from("") }, ...threeFiles.slice(0, 1).map((file) => ({ name: path.basename(file), mimeType: "text/plain", buffer: readFileSync(file) }))]);
  await send(page).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await expect(page.getByRole("heading", { level: 1 })).toContainText("GPU 0");
  await expect(page.getByRole("region", { name: /^Files/ }).locator(".warning")).toBeVisible();
});

test("evidence beyond the first few is folded, opens, and stands open on paper", async ({ page }) => {
  const files = publicCase("C74");
  test.skip(!files, "the collection of public cases is not beside this checkout");
  test.slow();
  await page.goto("/");
  await fileField(page).setInputFiles(files!);
  await send(page).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  const fold = page.locator("main .cause .more-ev").first();
  const inside = fold.locator("a.ev");
  await expect(inside.first()).toBeHidden();
  const open = fold.locator("xpath=..").locator("> a.ev");
  expect(await open.count()).toBe(4);
  await expect(fold.locator("summary")).toHaveText(`and ${await inside.count()} more`);
  await fold.locator("summary").click();
  await expect(inside.first()).toBeVisible();
  await fold.locator("summary").click();
  await page.emulateMedia({ media: "print" });
  await expect(inside.first()).toBeVisible();
  await page.emulateMedia({ media: "screen" });

  // A reference opens its place also where that is folded.
  await fold.locator("summary").click();
  const last = inside.last();
  const target = (await last.getAttribute("href"))!;
  await last.click();
  await expect(page.locator(`[id="${target.slice(1)}"]`)).toBeInViewport();
});

test("two different runs stand ready to be compared, and the address of all runs leads to them", async ({ page }) => {
  for (const title of ["Before", "After"]) {
    await page.goto("/");
    await textField(page).fill("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB");
    await page.getByLabel(/^Title/).fill(title);
    await send(page).click();
    await page.waitForURL(/\/runs\/[^/]+$/);
  }
  await page.goto("/compare");
  const chosen = async (label: string) => page.getByLabel(label).locator("option:checked").textContent();
  expect(await chosen("The run before")).not.toBe(await chosen("The run after"));
  expect(await page.getByLabel("The run before").inputValue()).not.toBe(await page.getByLabel("The run after").inputValue());

  const answer = await page.goto("/runs?query=Before");
  expect(answer?.status()).toBe(200);
  await expect(page).toHaveURL(/\/\?query=Before#runs$/);
  await expect(page.locator("#runs").getByRole("link").filter({ hasText: "Before" }).first()).toBeVisible();
});
