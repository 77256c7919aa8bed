// The guided checklist, as a person goes through it: look, decide, say, mend, prove.

import path from "node:path";
import { boundTable, packed, stepLog, uneven } from "./compare";
import { oomMessage, table, threeFiles } from "./evidence";
import { fileField, send, toReport, upload } from "./report";
import { expect, test } from "./server";

const item = (name: string | RegExp) => ({ name });

test("evidence dropped into an item decides it there", async ({ page }) => {
  await upload(page, table);
  await page.getByRole("link", { name: "Go through it step by step" }).click();
  await expect(page).toHaveURL(/\/runs\/[^/]+\/checklist\/(environment|verify)/);
  await page.getByRole("navigation", { name: "Stages", exact: true }).getByRole("link", { name: /Data/ }).click();

  const batches = page.getByRole("region", item("Batches divide evenly, in samples and in tokens"));
  await expect(batches).toContainText("The files say nothing of it yet.");
  await expect(batches.getByRole("button", { name: "Copy" }).first()).toBeVisible();
  const fold = batches.getByText("Add its output here");
  if (await fold.count()) await fold.click();
  await batches.getByLabel("Or paste its output").fill(stepLog("x", uneven).buffer.toString());
  const started = Date.now();
  await batches.getByRole("button", { name: "Add and decide again" }).click();
  await expect(batches).not.toContainText("The files say nothing of it yet.");
  await expect(page).toHaveURL(/checklist\/data#item-batch_divisibility$/);
  expect(Date.now() - started).toBeLessThan(5_000);
  await expect(batches.getByRole("link", { name: /pasted\.txt/ }).first()).toHaveAttribute("href", /^\/runs\/[^/]+#f\d/);
});

test("people say where an item stands, beside what the files say", async ({ page }) => {
  await upload(page, threeFiles);
  await page.goto(`${page.url()}/checklist/environment`);
  const binding = page.getByRole("region", item("Every rank sees its GPUs and is bound to one of its own"));
  await expect(binding).toContainText("fail");
  await binding.getByText("Say where it stands").click();
  await binding.getByLabel("Status").selectOption("mended");
  await binding.getByLabel("Your name").fill("Ada");
  await binding.getByLabel(/^Note/).fill("set_device added in train.py\nwaiting for the next run");
  await binding.getByRole("button", { name: "Save" }).click();

  await expect(page).toHaveURL(/checklist\/environment#item-device_visibility$/);
  await expect(binding).toContainText("Ada: mended, proof to come");
  await expect(binding).toContainText("The files say: fail.");
  await expect(binding).toContainText("waiting for the next run");
  // The name is written once.
  await binding.getByText("Add to it").click();
  await expect(binding.getByLabel("Your name")).toHaveValue("Ada");
});

test("the run after the fix is dropped and proves it", async ({ page }) => {
  await upload(page, threeFiles);
  const report = page.url();
  await page.getByRole("link", { name: "Verify a fix" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Is the fix proven?");
  await expect(page.getByRole("heading", { name: "What a proof needs" })).toBeVisible();
  await page.locator("form.evidence input[type=file]").setInputFiles(boundTable());
  await page.getByRole("button", { name: "Compare", exact: true }).click();

  const proof = page.getByRole("region", { name: "Before and after", exact: true });
  await expect(proof.getByRole("heading", { level: 2 }).first()).toContainText("Fixed: GPU 0 was");
  await expect(proof.getByRole("table").first()).toContainText("no longer stands out");
  await expect(proof.locator("svg.chart-peaks").filter({ visible: true })).toHaveCount(2);
  await page.getByRole("link", { name: "Open the comparison as a page of its own" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText("Fixed: GPU 0 was");
  await page.getByRole("link", { name: "Swap" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText(/Worse|Cannot tell|Not fixed/);

  // Both runs are there, and the report of the first knows nothing it did not know.
  await page.goto(report);
  await expect(page.locator(".verdict-word")).toHaveText(/imbalance/i);
});

test("two phases are told apart, and a short run proves nothing", async ({ page, request }) => {
  const make = async (file: ReturnType<typeof stepLog>) => {
    const answer = await request.post("/api/v1/runs", { multipart: { files: file } });
    expect(answer.status()).toBe(201);
    return (await answer.json()).id as string;
  };
  const base = await make(stepLog("before.log", uneven));
  const head = await make(stepLog("after.log", packed));
  const short = await make(stepLog("short.log", packed, 10));
  await page.goto(`/compare?base=${base}&head=${head}`);
  await expect(page.getByRole("heading", { level: 1 })).toContainText("Fixed: rank 3 was");
  const phases = page.getByRole("region", { name: "By phase" }).first();
  await expect(phases.getByRole("row").filter({ hasText: "training" })).toContainText("fixed");
  await expect(phases.getByRole("row").filter({ hasText: "validation" })).toContainText("even in both");
  await page.goto(`/compare?base=${base}&head=${short}`);
  await expect(page.getByRole("heading", { level: 1 })).toContainText("Cannot tell");
  await expect(page.getByRole("heading", { name: "Would settle it" })).toBeVisible();
  await page.goto("/compare");
  await page.getByLabel("The run before").selectOption(base);
  await page.getByLabel("The run after").selectOption(head);
  await page.getByRole("button", { name: "Compare" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText("Fixed");
});

test("older diagnoses stay readable", async ({ page }) => {
  await upload(page, table);
  const address = page.url();
  await page.locator("#next").locator("input[type=file]").setInputFiles(oomMessage);
  await page.getByRole("button", { name: "Add and diagnose again" }).click();
  await expect(page.locator(".made")).toContainText("Diagnosis 2 of this run");
  await page.getByRole("link", { name: "diagnosis 1" }).click();
  await expect(page).toHaveURL(`${address}?version=1`);
  await expect(page.getByRole("note")).toContainText("This is diagnosis 1 of 2");
  await expect(page.getByRole("region", { name: /^Files/ })).not.toContainText("oom.txt");
  await page.getByRole("link", { name: "Show the newest" }).click();
  await expect(page.getByRole("region", { name: /^Files/ })).toContainText("oom.txt");
});

test.describe("without JavaScript", () => {
  test.use({ javaScriptEnabled: false });

  test("look, say, drop, prove", async ({ page }) => {
    await page.goto("/");
    await fileField(page).setInputFiles(threeFiles);
    await send(page).click();
    await page.waitForURL(/\/runs\/[^/]+$/);
    const report = page.url();
    await page.goto(`${report}/checklist/model`);
    const buffers = page.getByRole("region", item("No big buffer lives on one rank only"));
    await buffers.getByText("Say where it stands").click();
    await buffers.getByLabel("Status").selectOption("does_not_apply");
    await buffers.getByLabel("Your name").fill("Bo");
    await buffers.getByLabel(/^Note/).fill("the model has no buffers");
    await buffers.getByRole("button", { name: "Save" }).click();
    const folded = page.getByRole("region", { name: "Does not apply here" });
    await expect(folded).toContainText("the model has no buffers");

    await page.goto(`${report}/checklist/data`);
    const first = page.locator(".wizard-item").first();
    const fold = first.getByText("Add its output here");
    if (await fold.count()) await fold.click();
    if (await first.locator("form.evidence").count()) {
      await first.getByLabel("Or paste its output").fill(stepLog("x", packed).buffer.toString());
      await first.getByRole("button", { name: "Add and decide again" }).click();
      await expect(page).toHaveURL(/\/checklist\/data#item-/);
    }

    await page.goto(`${report}/checklist/verify`);
    await page.locator("form.evidence input[type=file]").setInputFiles(boundTable());
    await page.getByRole("button", { name: "Compare", exact: true }).click();
    await expect(page.getByRole("region", { name: "Before and after", exact: true })).toContainText(/Fixed|Cannot tell|Partly/);
    await expect(page.locator("svg.chart-peaks").filter({ visible: true })).toHaveCount(2);
  });
});

const shapes = [
  { name: "light", colorScheme: "light", viewport: { width: 1280, height: 900 } },
  { name: "dark", colorScheme: "dark", viewport: { width: 1280, height: 900 } },
  { name: "phone", colorScheme: "light", viewport: { width: 390, height: 844 } },
] as const;

for (const { name, colorScheme, viewport } of shapes) {
  test(`pictures of the wizard: ${name}`, async ({ page, request }, info) => {
    const picture = (what: string) =>
      page.screenshot({ path: path.join(info.project.outputDir, "looks", `${what}-${name}.png`), fullPage: true });
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize(viewport);
    await upload(page, threeFiles);
    const report = page.url();
    await request.post(`${report.replace("/runs/", "/api/v1/runs/")}/checklist/device_visibility`, {
      data: { status: "mended", note: "set_device added in train.py, job restarted", author: "Ada" },
    });
    for (const stage of ["environment", "data", "model", "verify"]) {
      await page.goto(`${report}/checklist/${stage}`);
      await picture(`wizard-${stage}`);
      expect(await page.evaluate(() => document.scrollingElement!.scrollWidth - document.scrollingElement!.clientWidth)).toBe(0);
    }
    await page.locator("form.evidence input[type=file]").setInputFiles(boundTable());
    await page.getByRole("button", { name: "Compare", exact: true }).click();
    await expect(page.getByRole("region", { name: "Before and after", exact: true })).toBeVisible();
    await picture("wizard-proven");
    await page.getByRole("link", { name: "Open the comparison as a page of its own" }).click();
    await picture("compare");
    expect(await page.evaluate(() => document.scrollingElement!.scrollWidth - document.scrollingElement!.clientWidth)).toBe(0);
  });
}

test("from the pages of a run one sends files with the keyboard alone", async ({ page }) => {
  await page.goto("/");
  await fileField(page).setInputFiles(table);
  await toReport(page);
  await page.goto(`${page.url()}/checklist`);
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to content" })).toBeFocused();
});
