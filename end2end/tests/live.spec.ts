// A job runs: its nodes are seen, what is wrong with it is found by itself, and the report follows it to its end.

import { rmSync } from "node:fs";
import { serious } from "./axe";
import { Agent, cards, fast, memory, nobody, node, ranks } from "./live";
import { Server, expect, test } from "./server";

test("nodes appear, the finding comes by itself, and the report follows the job", async ({ page, request }) => {
  const name = `gpu-${Date.now()}`;
  const job = `slurm:${Date.now() % 100_000}`;
  const agent = new Agent(request, name);
  await page.goto("/live");
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Live");
  await expect(page.locator("[data-link]")).toHaveText(/figures move/);

  // Eight healthy ranks: the node appears without a reload, within a second or so.
  await agent.send(-20, node(8), memory(8, 60_000), ranks(8, 60_000, job));
  const card = page.getByRole("region", { name: `Node ${name}` });
  await expect(card).toBeVisible({ timeout: 2_000 });
  await expect(card.getByRole("listitem")).toHaveCount(8);
  await expect(card.getByRole("listitem").nth(3)).toContainText("rank 3");
  await expect(card.locator(".gpu.hot")).toHaveCount(0);
  await agent.send(-19, memory(8, 61_000));
  await expect(card.getByRole("listitem").nth(3)).toContainText("60.0 GiB", { timeout: 2_000 });

  // The job became a run.
  const run = card.getByRole("link", { name: /Slurm job/ });
  await expect(run).toBeVisible();

  // Seven contexts on GPU 0.
  await agent.send(-15, memory(8, 60_000, 530), ranks(8, 60_000, job, 530));
  await expect(card.getByRole("listitem").first()).toContainText("ranks 1 to 7 from other GPUs");
  await expect(card.getByRole("listitem").first()).toContainText("3.6 GiB");

  await run.click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await expect(page.getByText("The job is running")).toBeVisible();
  await expect(page.getByText(/Seven processes at home on GPUs? 1/).first()).toBeVisible({ timeout: 15_000 });

  // The item opens with the finding attached.
  const checklist = page.locator("#checklist");
  await checklist.getByText("GPU visibility and binding").click();
  await expect(checklist.getByText(/Seven processes at home/)).toBeVisible();
  await checklist.getByRole("link", { name: "Go through it step by step" }).click();
  await page.waitForURL(/\/checklist\/environment/);
  await expect(page.getByText(/Seven processes at home/).first()).toBeVisible();
  await page.goBack();

  // The end is told, and the report stays. A slow machine has let the agent be silent for too long by now.
  await expect(page.getByText(/The job is running|No word from/).first()).toBeVisible();
  await agent.send(-10, nobody);
  await agent.send(25, nobody);
  await expect(page.locator(".live-said")).toHaveText(/has ended/, { timeout: 15_000 });
  await page.reload();
  await expect(page.getByText("The job is running")).toHaveCount(0);
  await expect(page.getByText(/Seven processes/).first()).toBeVisible();
});

test("a server reads its own cards, and finds contexts that open on one of them", async ({ browser }) => {
  test.slow();
  // From the driver's library on, everything is real; the library plays a job whose ranks 1 to 7 open contexts on GPU 0.
  const { folder, options } = cards("contexts.scenario");
  const server = await Server.start(options);
  const context = await browser.newContext({ baseURL: server.url });
  try {
    const page = await context.newPage();
    await page.goto("/live");
    const card = page.getByRole("region", { name: /^Node / });
    await expect(card.getByRole("listitem")).toHaveCount(8, { timeout: 20_000 });
    await expect(card.getByRole("listitem").nth(3)).toContainText("rank 3");
    await expect(card.getByRole("listitem").first()).toContainText("ranks 1 to 7 from other GPUs", { timeout: 40_000 });
    await card.getByRole("link", { name: /job/i }).click();
    await page.waitForURL(/\/runs\/[^/]+$/);
    await expect(page.getByText("The job is running")).toBeVisible();
    await expect(page.getByRole("heading", { level: 1 })).toContainText("seven other GPUs", { timeout: 30_000 });
    await expect(page.locator(".notices")).toContainText("Seven processes at home on GPUs 1 to 7");

    const checklist = page.locator("#checklist");
    await checklist.getByText("GPU visibility and binding").click();
    await expect(checklist.getByText(/Seven processes at home/)).toBeVisible();
  } finally {
    await context.close();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

test("a finding that comes while the report is open is a quiet notice", async ({ page, request }) => {
  const name = `notice-${Date.now()}`;
  const job = `slurm:9${Date.now() % 100_000}`;
  const agent = new Agent(request, name);
  await agent.send(-20, node(8), memory(8, 60_000), ranks(8, 60_000, job));
  await page.goto("/live");
  const card = page.getByRole("region", { name: `Node ${name}` });
  await card.getByRole("link", { name: /Slurm job/ }).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await expect(page.locator(".live-said")).toHaveText(/Renewed/);
  await expect(page.getByRole("heading", { level: 1 })).not.toContainText("GPU 0");

  await page.getByRole("button", { name: "Pause" }).click();
  await agent.send(-15, memory(8, 60_000, 530), ranks(8, 60_000, job, 530));
  await expect(page.locator(".notices")).toContainText(/New finding at \d\d:\d\d:\d\d: .*Seven processes/, { timeout: 15_000 });
  await expect(page.getByRole("heading", { level: 1 })).not.toContainText("GPU 0");
  await page.getByRole("button", { name: "Resume" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText("GPU 0", { timeout: 10_000 });
});

test("a card that is lost and a node that falls silent are told, and the run stays open", async ({ page, request }) => {
  test.slow();
  const name = `lost-${Date.now()}`;
  const agent = new Agent(request, name);
  await agent.send(-2, node(4), memory(4, 60_000), ranks(4, 60_000, `slurm:7${Date.now() % 100_000}`));
  await page.goto("/live");
  const card = page.getByRole("region", { name: `Node ${name}` });
  await agent.send(0, {
    type: "state",
    subject: { device: 2 },
    state: "lost",
    detail: "The GPU fell off the bus: restart it or the machine.",
  });
  await expect(card.locator('[data-gpu="2"]')).toContainText(/since \d\d:\d\d:\d\d/, { timeout: 10_000 });

  await card.getByRole("link", { name: /Slurm job/ }).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await expect(page.getByText(/fell off the bus/).first()).toBeVisible({ timeout: 15_000 });
  // Nothing more is sent.
  const said = page.getByText(new RegExp(`No word from ${name} since`)).first();
  await expect(said).toBeVisible({ timeout: 30_000 });
  await page.reload();
  await expect(said).toBeVisible();
  // It speaks again.
  await agent.send(0, memory(4, 60_000));
  await expect(page.getByText("The job is running").first()).toBeVisible({ timeout: 15_000 });
  await expect(said).toHaveCount(0);
});

test("the timeline of a live run is read at the full rate, and its end is followed", async ({ page, request }) => {
  test.slow();
  const name = `rate-${Date.now()}`;
  const job = `slurm:8${Date.now() % 100_000}`;
  const agent = new Agent(request, name);
  // Two minutes at ten samples a second; one of them stands out for a tenth of a second.
  await agent.send(-130, node(2), ranks(2, 20_000, job));
  for (let second = -130; second < -10; second += 10) {
    // More at the end: the report keeps the moments at which something changes, and its timeline ends with the last.
    const own = second === -20 ? 24_000 : 20_480;
    await agent.send(second, fast(2, 10, own, second === -70 ? 31_000 : undefined), ranks(2, 20_000, job));
  }
  const last = (Date.now() - 25_000) * 1000;
  await page.goto("/live");
  await page.getByRole("region", { name: `Node ${name}` }).getByRole("link", { name: /Slurm job/ }).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  const timeline = page.locator("#timeline");
  const edge = async (which: string) =>
    Number(await timeline.locator(".drawing svg").filter({ visible: true }).getAttribute(`data-x-${which}`));

  // The page may have come before the last of them was diagnosed, which takes its time on a busy machine.
  await expect.poll(() => edge("max"), { timeout: 60_000 }).toBeGreaterThan(last);

  // Zoomed in, the crosshair reads every sample.
  const asked = page.waitForResponse((answer) => answer.url().includes("/series?") && answer.url().includes("from="));
  const shown = page.waitForResponse((answer) => answer.url().includes("/charts/timeline.svg?from="));
  await timeline.getByRole("button", { name: "Zoom in" }).click();
  await shown;
  await timeline.getByRole("group", { name: /Timeline/ }).press("ArrowRight");
  const columns = (await (await asked).json()).columns as { x: number[]; y: number[] }[];
  expect(columns[0].x.length).toBeGreaterThan(300);
  expect(Math.max(...columns.flatMap(({ y }) => y))).toBe(31_000 * 2 ** 20);
  await timeline.getByRole("button", { name: "Whole run" }).click();

  // The end moves along as samples come, stands still while the page is paused, and goes on.
  const follow = timeline.getByRole("button", { name: "Last 5 min" });
  await follow.click();
  await expect(follow).toHaveAttribute("aria-pressed", "true");
  await expect.poll(() => edge("max")).toBeGreaterThan(0);
  const before = await edge("max");
  await agent.send(-9, fast(2, 5, 20_480), ranks(2, 20_000, job));
  await expect.poll(() => edge("max"), { timeout: 10_000 }).toBeGreaterThan(before);
  await page.getByRole("button", { name: "Pause" }).click();
  const paused = await edge("max");
  await agent.send(-3, fast(2, 2, 20_480), ranks(2, 20_000, job));
  await page.waitForTimeout(4_500);
  expect(await edge("max")).toBe(paused);
  await page.getByRole("button", { name: "Resume" }).click();
  await expect.poll(() => edge("max"), { timeout: 10_000 }).toBeGreaterThan(paused);
  await timeline.getByRole("button", { name: "Whole run" }).click();
  await expect(follow).toHaveAttribute("aria-pressed", "false");
});

test("the first timeline of a run comes to life in a page that was opened before it", async ({ page, request }) => {
  const name = `early-${Date.now()}`;
  const job = `slurm:7${Date.now() % 100_000}`;
  const agent = new Agent(request, name);
  await agent.send(-60, node(2), memory(2, 20_000), ranks(2, 20_000, job));
  await page.goto("/live");
  await page.getByRole("region", { name: `Node ${name}` }).getByRole("link", { name: /Slurm job/ }).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  const timeline = page.locator("#timeline");
  await expect(timeline).toBeAttached();
  for (let second = -50; second <= -10; second += 10) {
    await agent.send(second, memory(2, 30_000 + second * 200), ranks(2, 30_000 + second * 200, job));
  }
  await expect(timeline.getByRole("button", { name: "Zoom in" })).toBeVisible({ timeout: 40_000 });
  await expect(timeline.getByRole("heading")).toContainText("Memory per");
  await timeline.getByRole("button", { name: "Zoom in" }).click();
  await expect(timeline.getByRole("button", { name: "Whole run" })).toBeEnabled();
});

test("a job on two nodes is read rank by rank", async ({ page, request }) => {
  test.slow();
  const name = `two-${Date.now()}`;
  const job = `slurm:9${Date.now() % 100_000}`;
  const nodes = [new Agent(request, `${name}-a`), new Agent(request, `${name}-b`)];
  // Both have a GPU 0 and a process 4000. The second node holds more, and once far more for a tenth of a second.
  for (const [n, agent] of nodes.entries()) {
    await agent.send(-130, node(2), ranks(2, 20_000 + n * 10_000, job, 0, n * 2));
    for (let second = -130; second < -10; second += 10) {
      const own = 20_480 + n * 10_000;
      const spike = n === 1 && second === -70 ? 45_000 : undefined;
      await agent.send(second, fast(2, 10, own, spike), ranks(2, own - 480, job, 0, n * 2));
    }
  }
  await page.goto("/live");
  await page.getByRole("region", { name: `Node ${name}-b` }).getByRole("link", { name: /Slurm job/ }).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  // What was diagnosed before the second node came is replaced.
  await expect(async () => {
    await page.reload();
    await expect(page.getByRole("heading", { level: 1 })).toContainText(`Rank 2 (GPU 0 of ${name}-b) is`, { timeout: 1_000 });
  }).toPass({ timeout: 60_000 });
  // The renewed parts came by themselves; the heading of the timeline, which may be zoomed, comes with the page.
  await page.reload();
  await expect(page.locator("#timeline")).toContainText("Memory per rank");
  await expect(page.getByText("4 ranks, 4 GPUs")).toBeVisible();

  const at = (seconds: number) => (Date.now() + seconds * 1000) * 1000;
  const run = page.url().split("/").pop();
  const series = await request.get(`/api/v1/runs/${run}/series?points=2000&from=${at(-90)}&to=${at(-30)}`);
  const columns = (await series.json()).columns as { subject: { rank: number }; x: number[]; y: number[] }[];
  expect(columns.map(({ subject }) => subject.rank)).toEqual([0, 1, 2, 3]);
  const highest = columns.map(({ y }) => Math.max(...y) / 2 ** 20);
  expect(highest).toEqual([20_480, 20_480, 45_000, 30_480]);
  for (const { x } of columns) expect(x.length).toBeGreaterThan(300);
});

test("a lost connection shows and heals", async ({ browser }) => {
  test.slow();
  // A server of its own, which goes away and comes back at the same address.
  const first = await Server.start();
  const context = await browser.newContext({ baseURL: first.url });
  const page = await context.newPage();
  await page.goto("/live");
  await expect(page.locator("[data-link]")).toHaveText(/figures move/);
  await first.stop();
  await expect(page.locator("[data-link]")).toHaveText(/Connection lost/);
  const second = await Server.start([], new URL(first.url).host);
  await expect(page.locator("[data-link]")).toHaveText(/figures move/, { timeout: 30_000 });
  const agent = new Agent(context.request, "back");
  await agent.send(0, node(1), memory(1, 1_000));
  await expect(page.getByRole("region", { name: "Node back" })).toBeVisible();
  await context.close();
  await second.stop();
});

test("a tab in the background costs nothing, and goes on where it was", async ({ browser }) => {
  const server = await Server.start();
  const context = await browser.newContext({ baseURL: server.url });
  try {
    const page = await context.newPage();
    const watchers = async () => {
      const text = await (await context.request.get("/metrics")).text();
      return Number(/^rankscope_live_watchers (\d+)$/m.exec(text)?.[1]);
    };
    const turn = (hidden: boolean) =>
      page.evaluate((hidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
    await page.goto("/live");
    await expect(page.locator("[data-link]")).toHaveText(/figures move/);
    expect(await watchers()).toBe(1);
    await turn(true);
    await expect(page.locator("[data-link]")).toHaveText(/Paused/);
    await expect.poll(watchers, { timeout: 15_000 }).toBe(0);
    const requests: string[] = [];
    page.on("request", (request) => requests.push(request.url()));
    const agent = new Agent(context.request, "meanwhile");
    await agent.send(0, node(1), memory(1, 1_000));
    await page.waitForTimeout(1_500);
    expect(requests).toEqual([]);
    await expect(page.getByRole("region", { name: "Node meanwhile" })).toHaveCount(0);
    await turn(false);
    await expect(page.getByRole("region", { name: "Node meanwhile" })).toBeVisible();
  } finally {
    await context.close();
    await server.stop();
  }
});

test("without a script the page is right as of now", async ({ browser, server, request }) => {
  const agent = new Agent(request, `quiet-${Date.now()}`);
  await agent.send(0, node(2), memory(2, 1_000));
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(`${server.url}/live`);
  await expect(page.getByRole("region", { name: `Node ${agent.node}` })).toContainText("GPU 1");
  await expect(page.getByRole("link", { name: "Refresh" })).toBeVisible();
  await context.close();
});

test("of many nodes only those that stand out can be shown, also as they come", async ({ page, request }) => {
  const [calm, hot] = [`calm-${Date.now()}`, `hot-${Date.now()}`];
  const job = `slurm:${Date.now() % 100_000}`;
  const [first, second] = [new Agent(request, calm), new Agent(request, hot)];
  await first.send(-20, node(8), memory(8, 60_000));
  await second.send(-20, node(8), memory(8, 60_000), ranks(8, 60_000, job));
  await page.goto("/live");
  const of = (name: string) => page.getByRole("region", { name: `Node ${name}` });
  await expect(of(calm)).toBeVisible();
  const only = page.getByRole("checkbox", { name: "Only what stands out" });
  await only.check();
  await expect(of(calm)).toBeHidden();
  await second.send(-15, memory(8, 60_000, 2_400), ranks(8, 60_000, job, 2_400));
  await expect(of(hot)).toBeVisible();
  await only.uncheck();
  await expect(of(calm)).toBeVisible();
});

test("64 nodes with 8 GPUs each stay readable and in step", async ({ page, request }) => {
  test.slow();
  const agents = Array.from({ length: 64 }, (_, index) => new Agent(request, `many-${String(index).padStart(2, "0")}`));
  for (const agent of agents) await agent.send(-2, node(8), memory(8, 60_000), ranks(8, 60_000, "slurm:many"));
  await page.goto("/live");
  await expect(page.locator('[data-node^="many-"]')).toHaveCount(64);
  await expect(page.locator("[data-link]")).toHaveText(/figures move/);
  for (const agent of agents) await agent.send(-1, memory(8, 62_000));
  await expect(page.locator('[data-node="many-63"] [data-used]').first()).toHaveText("61.0 GiB", { timeout: 3_000 });
  // No card is wider than the page, at a desk and on a telephone.
  const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);
  expect(await fits()).toBe(true);
  await page.setViewportSize({ width: 390, height: 844 });
  expect(await fits()).toBe(true);
});

test("axe finds nothing serious on the nodes and on the report of a job that runs", async ({ page, request }) => {
  test.slow();
  const name = `axe-${Date.now()}`;
  const agent = new Agent(request, name);
  await agent.send(-20, node(8), memory(8, 60_000, 530), ranks(8, 60_000, `slurm:${name}`, 530));
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto("/live");
    await expect(page.locator(`[data-node="${name}"]`)).toBeVisible();
    expect(await serious(page), `live, ${width}`).toEqual([]);
  }
  await page.locator(`[data-node="${name}"]`).getByRole("link", { name: /Slurm job/ }).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  await expect(page.getByText(/Seven processes at home/).first()).toBeVisible({ timeout: 15_000 });
  expect(await serious(page), "report of a job").toEqual([]);
});
