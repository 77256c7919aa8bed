// What axe finds on a page.

import AxeBuilder from "@axe-core/playwright";
import type { Page } from "@playwright/test";

/** Serious and critical findings, each with where it is. */
export async function serious(page: Page): Promise<string[]> {
  // What is folded is read too.
  await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
  const { violations } = await new AxeBuilder({ page }).withTags(["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]).analyze();
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, help, nodes }) => nodes.map((node) => `${id}: ${help}: ${node.target.join(" ")} ${node.failureSummary ?? ""}`));
}
