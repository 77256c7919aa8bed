// Nothing serious is found by axe on the pages that people use, light and dark.

import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";
import { boundTable } from "./compare";
import { logByTokens, logOf, threeFiles } from "./evidence";
import { snapshot } from "./pickle";
import { open, upload } from "./report";
import { expect, test } from "./server";

/** Serious and critical findings, each with where it is. */
async function serious(page: Page): Promise<string[]> {
  // What is folded is read too.
  await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
  const { violations } = await new AxeBuilder({ page }).withTags(["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]).analyze();
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, help, nodes }) => nodes.map((node) => `${id}: ${help}: ${node.target.join(" ")} ${node.failureSummary ?? ""}`));
}

for (const colorScheme of ["light", "dark"] as const) {
  test(`axe finds nothing serious: ${colorScheme}`, async ({ page, request }) => {
    // The whole of every page with everything unfolded: a minute and a half on two threads of one core.
    test.setTimeout(360_000);
    await page.emulateMedia({ colorScheme });
    await page.goto("/");
    expect(await serious(page), "home").toEqual([]);
    await upload(page, threeFiles);
    const report = page.url();
    expect(await serious(page), "report").toEqual([]);
    const after = await request.post("/api/v1/runs", { multipart: { files: boundTable() } });
    const head = (await after.json()).id as string;
    const api = report.replace("/runs/", "/api/v1/runs/");
    await request.post(`${api}/checklist/device_visibility`, { data: { status: "mended", note: "done", author: "Ada" } });
    for (const stage of ["environment", "data", "model", "profiling", "verify"]) {
      await page.goto(`${report}/checklist/${stage}`);
      expect(await serious(page), stage).toEqual([]);
    }
    expect((await request.post(`${api}/after`, { data: { run: head } })).status()).toBe(204);
    await page.goto(`${report}/checklist/verify`);
    expect(await serious(page), "verify, proven").toEqual([]);
    await page.goto(`/compare?base=${report.split("/").pop()}&head=${head}`);
    expect(await serious(page), "compare").toEqual([]);
    await page.goto("/compare");
    expect(await serious(page), "choice").toEqual([]);
    await page.goto(`${report}/delete`);
    expect(await serious(page), "delete").toEqual([]);
    const locked = await request.post(`${api}/shares`, { data: { password: "correct horse" } });
    await page.goto((await locked.json()).url);
    expect(await serious(page), "locked share").toEqual([]);
    await upload(page, [0, 1].map(snapshot));
    expect(await serious(page), "report of snapshots").toEqual([]);
    await page.goto(`${page.url()}/snapshots`);
    expect(await serious(page), "snapshots").toEqual([]);
    await upload(page, logByTokens());
    expect(await serious(page), "scatter and heatmap").toEqual([]);
    await open(page, logOf(300, 6, 17));
    expect(await serious(page), "300 ranks").toEqual([]);
  });
}
