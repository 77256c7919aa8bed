// Ways through the pages that several tests take.

import type { Locator, Page } from "@playwright/test";
import { expect } from "./server";

export const fileField = (page: Page) => page.getByLabel(/drop files/i);
export const textField = (page: Page) => page.getByLabel("Or paste text");
export const send = (page: Page) => page.getByRole("button", { name: "Find the cause" });

/** What the upload form says of itself, for everyone and for screen readers. */
export const said = (page: Page) => page.locator(".upload").getByRole("status").first();

/** The form has come to life: it is scripted from here on. */
export async function alive(page: Page): Promise<void> {
  await expect(page.locator(".upload.live")).toBeVisible();
}

/** The start page, come to life. */
export async function start(page: Page): Promise<void> {
  await page.goto("/");
  await alive(page);
}

/** Sends what the form holds and lands on the report, past the stop that warnings make. */
export async function toReport(page: Page): Promise<void> {
  await send(page).click();
  const stop = page.getByRole("link", { name: "Open the report" });
  const report = page.locator("main.report");
  await expect(report.or(stop).first()).toBeVisible();
  // The link is also there for the moment before the page moves on by itself.
  if (!(await report.isVisible())) await stop.click({ timeout: 2_000 }).catch(() => {});
  await page.waitForURL(/\/runs\/[^/]+$/);
  await expect(report).toBeVisible();
}

/** Uploads from the start page and lands on the report. */
export async function upload(page: Page, files: Parameters<Locator["setInputFiles"]>[0]): Promise<void> {
  await start(page);
  await fileField(page).setInputFiles(files);
  await toReport(page);
}

/** Sends one big file as a program does, which waits as long as it takes, and opens the report. */
export async function open(page: Page, file: { name: string; mimeType: string; buffer: Buffer }): Promise<void> {
  const made = await page.request.post("/api/v1/runs", { multipart: { files: file }, timeout: 120_000 });
  expect(made.status(), await made.text()).toBe(201);
  await page.goto((await made.json()).url);
  await expect(page.locator("main.report")).toBeVisible();
}

/** The report of the three files: verdict, cause, the three charts, and a line for each file. */
export async function expectWholeReport(page: Page): Promise<void> {
  await expect(page.getByRole("heading", { level: 1 })).toContainText("GPU 0");
  await expect(page.locator(".verdict-word")).toHaveText(/imbalance/i);

  const cause = page.getByRole("region", { name: "Cause" });
  await expect(cause.getByRole("heading", { level: 2 })).toHaveText("Ranks are never bound to their own GPU");
  await expect(cause).toContainText("set_device");
  // A claim leads to the line that it rests on.
  await expect(cause.getByRole("link", { name: /nvidia-smi\.txt:\d+/ }).first()).toBeVisible();

  await expectCharts(page);

  const files = page.getByRole("region", { name: /^Files/ });
  const line = (name: string) => files.getByRole("listitem").filter({ hasText: name }).first();
  await expect(line("nvidia-smi.txt")).toContainText("nvidia-smi table");
  await expect(line("nvidia-smi.txt")).toContainText("GPUs 0 to 3");
  await expect(line("train.log")).toContainText("step log");
  await expect(line("train.log")).toContainText("ranks 0 to 3");
  await expect(line("train.py")).toContainText("Python script");
  // A quoted line of a script stands between its neighbours, each of which is shown once.
  await expect(line("train.py").locator("[id$=-L14] .beside").first()).toContainText("def main():");
  await expect(line("train.py").getByText("local_rank = int(")).toHaveCount(1);
}

/** The report of a public case of one full card: verdict, cause, the charts of its table, and a line for each file. */
export async function expectCaseReport(page: Page, names: string[]): Promise<void> {
  await expect(page.locator(".verdict-word")).toHaveText(/imbalance/i);
  await expect(page.getByRole("region", { name: "Cause" }).getByRole("heading", { level: 2 })).toBeVisible();
  for (const name of [/^Peak per/, /^What fills each card/]) {
    const chart = page.getByRole("region", { name });
    await expect(chart.locator("svg").filter({ visible: true }).first()).toBeVisible();
  }
  const files = page.getByRole("region", { name: /^Files/ });
  for (const name of names) await expect(files).toContainText(name);
}

/** The three charts are drawn in the page itself, at the width that fits. */
export async function expectCharts(page: Page): Promise<void> {
  for (const name of [/^Memory per/, /^Peak per/, /^What fills each card/]) {
    const chart = page.getByRole("region", { name });
    await expect(chart.locator("svg").filter({ visible: true }).first()).toBeVisible();
  }
}

/** Asks for a link and gives back its address. */
export async function share(page: Page): Promise<string> {
  const box = page.getByRole("region", { name: /^Share/ });
  await box.getByRole("button", { name: "Create link" }).click();
  const link = page.getByLabel("New link, shown only now");
  await expect(link).toHaveValue(/^http:\/\/127\.0\.0\.1:\d+\/r\/[\w-]{20,}$/);
  return link.inputValue();
}
