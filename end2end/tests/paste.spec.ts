// Text from the clipboard is evidence as much as a file.

import { readFileSync } from "node:fs";
import { oomMessage, table } from "./evidence";
import { fileField, said, send, start, textField, toReport } from "./report";
import { expect, test } from "./server";

test("a pasted nvidia-smi table gets a report", async ({ page }) => {
  await start(page);
  // As terminals give it: a prompt before it, and line ends of another system.
  const text = `user@node7:~$ nvidia-smi\r\n${readFileSync(table, "utf8").replaceAll("\n", "\r\n")}`;
  await textField(page).fill(text);
  await toReport(page);
  await expect(page.getByRole("heading", { level: 1 })).toContainText("GPU 0");
  await expect(page.getByRole("region", { name: /^Files/ })).toContainText("nvidia-smi table");
});

test("a pasted out-of-memory message is understood", async ({ page }) => {
  await start(page);
  await textField(page).fill(readFileSync(oomMessage, "utf8"));
  await toReport(page);
  await expect(page.getByRole("region", { name: /^Files/ })).toContainText("out-of-memory message");
});

test("text and files travel together", async ({ page }) => {
  await start(page);
  await textField(page).fill(readFileSync(oomMessage, "utf8"));
  await fileField(page).setInputFiles(table);
  await toReport(page);
  const files = page.getByRole("region", { name: /^Files/ });
  await expect(files).toContainText("out-of-memory message");
  await expect(files).toContainText("nvidia-smi table");
});

test("nothing at all is said before anything is sent", async ({ page }) => {
  await start(page);
  let asked = 0;
  await page.route("**/api/**", (route) => {
    asked += 1;
    return route.continue();
  });
  await send(page).click();
  await expect(said(page)).toContainText(/choose a file or paste/i);
  expect(asked).toBe(0);
  await expect(page).toHaveURL(/\/$/);
});
