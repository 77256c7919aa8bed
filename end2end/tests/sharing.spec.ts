// A link with a password and masked names; a run that is renamed and deleted.

import { threeFiles } from "./evidence";
import { upload } from "./report";
import { expect, test } from "./server";

for (const javaScriptEnabled of [true, false]) {
  test.describe(javaScriptEnabled ? "with JavaScript" : "without JavaScript", () => {
    test("a visitor gives the password and sees no names", async ({ page, browser, server }) => {
      await upload(page, threeFiles);
      const report = page.url();
      const owner = await browser.newContext({ javaScriptEnabled, baseURL: server.url });
      const own = await owner.newPage();
      await own.goto(report);
      const box = own.getByRole("region", { name: /^Share/ });
      await box.getByText("Password, masking, files").click();
      await box.getByLabel(/^Password/).fill("correct horse");
      await box.getByLabel(/^Mask host names/).check();
      await box.getByRole("button", { name: "Create link" }).click();
      const address = await own.getByLabel("New link, shown only now").inputValue();

      const visitor = await browser.newContext({ javaScriptEnabled, baseURL: server.url });
      const seen = await visitor.newPage();
      expect((await seen.goto(address))?.status()).toBe(401);
      await expect(seen.getByRole("heading", { level: 1 })).toHaveText("This report asks for a password");
      await seen.getByLabel("Password").fill("wrong horse");
      await seen.getByRole("button", { name: "Open the report" }).click();
      await expect(seen.getByRole("alert")).toContainText("not the password");
      await seen.getByLabel("Password").fill("correct horse");
      await seen.getByRole("button", { name: "Open the report" }).click();
      await expect(seen.locator("main.report")).toBeVisible();
      await expect(seen.locator(".read-only")).toContainText("names masked");
      await own.reload();
      await expect(own.getByRole("region", { name: /^Share/ })).toContainText("last opened");
      await visitor.close();
      await owner.close();
    });
  });
}

test("a run gets another title and, after a question, its end", async ({ page }) => {
  await upload(page, threeFiles);
  const card = page.getByRole("region", { name: "This run" });
  await card.getByLabel("Title").fill("Night run");
  await card.getByRole("button", { name: "Rename" }).click();
  await expect(page.locator("header.headline")).toContainText("Night run");
  await page.getByRole("link", { name: "Delete this run" }).click();
  await expect(page.getByRole("main")).toContainText("cannot be undone");
  await page.getByRole("link", { name: "Keep it" }).click();
  await expect(page.locator("main.report")).toBeVisible();
  const report = page.url();
  await page.getByRole("link", { name: "Delete this run" }).click();
  await page.getByRole("button", { name: "Delete the run" }).click();
  await page.waitForURL(/\/#runs$/);
  expect((await page.goto(report))?.status()).toBe(404);
});
