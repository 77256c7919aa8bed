// Usable by keyboard alone and by screen readers, on any width.

import type { Page } from "@playwright/test";
import { threeFiles } from "./evidence";
import { fileField, send, start, upload } from "./report";
import { expect, test } from "./server";

/** Presses Tab until the element is focused; fails when the keyboard cannot reach it. */
async function tabTo(page: Page, target: ReturnType<Page["locator"]>): Promise<void> {
  for (let presses = 0; presses < 80; presses += 1) {
    if (await target.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error("the keyboard does not reach it");
}

/** What a screen reader needs of any page; the list of what is missing. */
async function lacking(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const problems: string[] = [];
    const shown = (element: Element) => (element as HTMLElement).checkVisibility();
    const say = (element: Element) => element.outerHTML.slice(0, 120);
    const text = (id: string | null) =>
      (id ?? "").split(/\s+/).map((one) => document.getElementById(one)?.textContent ?? "").join("").trim();

    if (!document.documentElement.lang) problems.push("no language");
    if (!document.title.trim()) problems.push("no title");
    if (document.querySelectorAll("main").length !== 1) problems.push("not one main");
    if (document.querySelectorAll("h1").length !== 1) problems.push("not one h1");

    let level = 0;
    for (const heading of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
      if (!shown(heading)) continue;
      const own = Number(heading.tagName.slice(1));
      if (level > 0 && own > level + 1) problems.push(`heading level skipped: ${say(heading)}`);
      level = own;
    }

    const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
    for (const id of new Set(ids.filter((id, n) => ids.indexOf(id) !== n))) problems.push(`id used twice: ${id}`);

    for (const field of document.querySelectorAll("input:not([type=hidden]), textarea, select")) {
      const labels = (field as HTMLInputElement).labels;
      const named = field.getAttribute("aria-label") || text(field.getAttribute("aria-labelledby")) || labels?.length;
      if (!named) problems.push(`field without a label: ${say(field)}`);
    }
    for (const control of document.querySelectorAll("a[href], button, summary")) {
      if (!shown(control)) continue;
      const named = control.getAttribute("aria-label") || text(control.getAttribute("aria-labelledby")) || control.textContent?.trim();
      if (!named) problems.push(`control without a name: ${say(control)}`);
    }
    for (const picture of document.querySelectorAll("img:not([alt])")) problems.push(`picture without words: ${say(picture)}`);
    for (const drawing of document.querySelectorAll("svg")) {
      if (!shown(drawing)) continue;
      const hidden = drawing.closest("[aria-hidden=true]");
      const named = drawing.getAttribute("aria-label") || text(drawing.getAttribute("aria-labelledby")) || drawing.querySelector("title");
      if (!hidden && !named) problems.push(`drawing neither named nor hidden: ${say(drawing)}`);
    }
    for (const table of document.querySelectorAll("table")) {
      if (!table.querySelector("th")) problems.push(`table without headers: ${say(table)}`);
    }
    for (const element of document.querySelectorAll("[tabindex]")) {
      if (Number(element.getAttribute("tabindex")) > 0) problems.push(`own tab order: ${say(element)}`);
    }
    for (const link of document.querySelectorAll<HTMLAnchorElement>("a[href^='#']")) {
      const target = decodeURIComponent(link.hash.slice(1));
      if (target && !document.getElementById(target)) problems.push(`link to nothing: ${say(link)}`);
    }
    return problems;
  });
}

test("from the address bar to the report without a mouse", async ({ page }) => {
  await start(page);
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to content" })).toBeFocused();

  await tabTo(page, fileField(page));
  const chooser = page.waitForEvent("filechooser");
  await page.keyboard.press("Enter");
  await (await chooser).setFiles(threeFiles);

  await tabTo(page, send(page));
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/runs\/[^/]+$/);

  const create = page.getByRole("button", { name: "Create link" });
  await tabTo(page, create);
  await page.keyboard.press("Enter");
  await expect(page.getByLabel("New link, shown only now")).toHaveValue(/\/r\//);
});

test("focus is always seen", async ({ page }) => {
  await start(page);
  for (const target of [fileField(page), page.getByLabel("Or paste text"), send(page)]) {
    await tabTo(page, target);
    // The ring may be drawn on the element, or on the area around a field that is itself not drawn.
    const seen = await target.evaluate((element) => {
      const rings = (candidate: Element) => {
        const style = getComputedStyle(candidate);
        return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
      };
      const around = [element, element.parentElement, ...(element as HTMLInputElement).labels ?? []];
      return around.some((candidate) => candidate && rings(candidate));
    });
    expect(seen, await target.evaluate((element) => element.outerHTML.slice(0, 100))).toBe(true);
  }
});

test("pages have names, headings, labels and one way through", async ({ page }) => {
  await page.goto("/");
  expect(await lacking(page)).toEqual([]);
  await upload(page, threeFiles);
  expect(await lacking(page)).toEqual([]);
  await page.goto("/runs/none");
  expect(await lacking(page)).toEqual([]);
});

for (const width of [320, 390, 768, 1280, 1920]) {
  test(`nothing sticks out at ${width} px`, async ({ page }) => {
    await page.setViewportSize({ width, height: 800 });
    const overflow = () =>
      page.evaluate(() => document.scrollingElement!.scrollWidth - document.scrollingElement!.clientWidth);
    await page.goto("/");
    expect(await overflow()).toBe(0);
    await upload(page, threeFiles);
    expect(await overflow()).toBe(0);
    await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
    expect(await overflow()).toBe(0);

    // Text in charts stays readable: a phone gets a drawing of its own.
    const smallest = await page.evaluate(() => {
      const sizes = [...document.querySelectorAll(".figure svg text")]
        .filter((text) => (text as unknown as HTMLElement).checkVisibility())
        .map((text) => {
          const svg = (text as SVGTextElement).ownerSVGElement!;
          const scale = svg.getBoundingClientRect().width / (svg.viewBox.baseVal.width || svg.getBoundingClientRect().width);
          return parseFloat(getComputedStyle(text).fontSize) * scale;
        });
      return Math.min(...sizes);
    });
    expect(smallest).toBeGreaterThanOrEqual(10.9);
  });
}
