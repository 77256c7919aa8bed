// Nothing serious is found by axe on the pages that people use: light and dark, at a desk and on a telephone.

import { writeFile } from "node:fs/promises";
import { serious } from "./axe";
import { boundTable } from "./compare";
import { logByTokens, logOf, publicCase, table, threeFiles } from "./evidence";
import { Agent, memory, node, ranks } from "./live";
import { snapshot } from "./pickle";
import { open, upload } from "./report";
import { expect, test } from "./server";

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
    // Not mended, and what another job is.
    const same = await request.post("/api/v1/runs", { multipart: { files: boundTable("nvidia-smi.txt") } });
    await page.goto(`/compare?base=${(await same.json()).id}&head=${report.split("/").pop()}`);
    expect(await serious(page), "compare, worse").toEqual([]);
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

test("axe finds nothing serious: telephone, shares and documentation", async ({ page, request }) => {
  test.setTimeout(360_000);
  await page.setViewportSize({ width: 390, height: 844 });
  await upload(page, threeFiles);
  const report = page.url();
  const api = report.replace("/runs/", "/api/v1/runs/");
  const look = async (address: string, what: string) => {
    await page.goto(address);
    expect(await serious(page), what).toEqual([]);
  };
  await look(report, "report");
  await look(`${report}/checklist/model`, "stage");
  await look(`${report}/checklist/verify`, "verify");
  // A second diagnosis, with links to the first, and the pair of a comparison.
  expect((await request.post(`${api}/files`, { multipart: { files: boundTable("later.txt") } })).ok()).toBe(true);
  await look(report, "report, diagnosed anew");
  await look(`${report}?version=1`, "report, the diagnosis before");
  const bound = (await (await request.post("/api/v1/runs", { multipart: { files: boundTable() } })).json()).id as string;
  await look(`/compare?base=${report.split("/").pop()}&head=${bound}`, "compare");
  await look(`/compare?base=${bound}&head=${report.split("/").pop()}`, "compare, worse");
  // A public report with many places behind each claim.
  const many = publicCase("C74");
  if (many) {
    await upload(page, many);
    expect(await serious(page), "many places").toEqual([]);
  }
  const share = async (data: object) => (await (await request.post(`${api}/shares`, { data })).json()).url as string;
  await look(await share({}), "share");
  await look(await share({ masked: true }), "masked share");
  await look("/live", "live without nodes");
  for (const name of ["", "/reading-a-report", "/stage-data", "/api"]) {
    await look(`/docs${name}`, `docs${name}`);
  }
  await open(page, logOf(1000, 3, 517));
  expect(await serious(page), "1 000 ranks").toEqual([]);
  await upload(page, [0, 1].map(snapshot));
  await look(`${page.url()}/snapshots`, "snapshots");
});

test("axe finds nothing serious: a job that is watched, and a report as a file", async ({ page, request }, info) => {
  test.setTimeout(180_000);
  const job = `slurm:axe${Date.now() % 100_000}`;
  const agent = new Agent(request, `axe-${Date.now()}`);
  for (let second = 0; second < 4; second += 1) {
    await agent.send(second, node(8), memory(8, 60_000), ranks(8, 60_000, job));
  }
  await page.goto("/live");
  await page.getByRole("region", { name: `Node ${agent.node}` }).getByRole("link").first().click();
  await expect(page.locator("main.report")).toBeVisible();
  expect(await serious(page), "live job").toEqual([]);
  await upload(page, table);
  const file = info.outputPath("report.html");
  await writeFile(file, await (await request.get(`${page.url().replace("/runs/", "/api/v1/runs/")}/report.html`)).body());
  await page.context().setOffline(true);
  await page.goto(`file://${file}`);
  await expect(page.locator("main.report")).toBeVisible();
  expect(await serious(page), "report as a file").toEqual([]);
});
