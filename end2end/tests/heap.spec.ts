// What a job leaves behind is a folder of everything: it goes in whole, and gives one run with all ranks.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { oomMessage, table, threeFiles } from "./evidence";
import { snapshot } from "./pickle";
import { said, start, toReport } from "./report";
import { expect, test } from "./server";

const RANKS = 4;

/** A job's folder: a log per rank, all of the same name and size, and what else lies about. */
function makeHeap(): { folder: string; files: number } {
  const folder = path.join(mkdtempSync(path.join(tmpdir(), "rankscope-heap-")), "job-17");
  let files = 0;
  const put = (name: string, content: string | Buffer) => {
    const file = path.join(folder, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, content);
    files += 1;
  };
  for (let rank = 0; rank < RANKS; rank++) {
    const lines = Array.from({ length: 12 }, (_, step) => {
      const peak = rank === 2 ? 31_000 : 20_000 + ((step * 37 + rank * 11) % 90);
      return `[train] step=${step} cur=10240.0MB peak=${peak}.0MB`;
    });
    put(`attempt_0/${rank}/stdout.log`, lines.join("\n") + "\n");
  }
  for (const rank of [0, 1]) put(`memory/snapshot_${rank}.pickle.gz`, gzipSync(snapshot(rank).buffer));
  put("env.txt", "RANK=0\nLOCAL_RANK=0\nWORLD_SIZE=4\nCUDA_VISIBLE_DEVICES=0,1,2,3\n");
  put("notes/todo.md", "# Ask Kim about rank 2\n");
  put("weights.bin", Buffer.from([0, 159, 146, 150, 255]));
  for (const file of [table, threeFiles[2], oomMessage]) {
    copyFileSync(file, path.join(folder, path.basename(file)));
    files += 1;
  }
  // What is hidden is nobody's evidence.
  put(".git/HEAD", "ref: refs/heads/main\n");
  return { folder, files: files - 1 };
}

type Artifact = { name: string; kind: string; ranks: number[] };
const ranksOf = (artifacts: Artifact[]) => [...new Set(artifacts.flatMap(({ ranks }) => ranks))].sort((a, b) => a - b);
const allRanks = Array.from({ length: RANKS }, (_, rank) => rank);

test.describe("a job's folder", () => {
  let heap: ReturnType<typeof makeHeap>;
  test.beforeAll(() => void (heap = makeHeap()));
  test.afterAll(() => rmSync(path.dirname(heap.folder), { recursive: true, force: true }));

  test("dropped on the page it says what the command line says of it", async ({ page }) => {
    const printed = execFileSync(process.env.RANKSCOPE_BIN!, ["diagnose", "--format", "json", heap.folder]);
    const told = JSON.parse(printed.toString()) as { summary: string; artifacts: Artifact[] };
    expect(ranksOf(told.artifacts)).toEqual(allRanks);
    expect(told.artifacts).toHaveLength(heap.files);

    await start(page);
    // As the desktop drops it; a drop that a script makes up carries no folder.
    const area = (await page.locator(".drop").boundingBox())!;
    const browser = await page.context().newCDPSession(page);
    const data = { items: [], files: [heap.folder], dragOperationsMask: 1 };
    for (const type of ["dragEnter", "dragOver", "drop"] as const)
      await browser.send("Input.dispatchDragEvent", { type, x: area.x + area.width / 2, y: area.y + 20, data });
    const chosen = page.getByRole("list", { name: "Chosen files" }).getByRole("listitem");
    await expect(chosen).toHaveCount(heap.files);
    await expect(chosen.filter({ hasText: "stdout.log" })).toHaveCount(RANKS);
    await expect(chosen.filter({ hasText: "job-17/attempt_0/3/stdout.log" })).toHaveCount(1);
    await expect(said(page)).toHaveText("");

    await toReport(page);
    await expect(page.getByRole("heading", { level: 1 })).toContainText(/rank 2/i);
    const run = await (await page.request.get(page.url().replace("/runs/", "/api/v1/runs/"))).json();
    const { summary, artifacts } = run.diagnosis as { summary: string; artifacts: Artifact[] };
    expect(ranksOf(artifacts)).toEqual(allRanks);
    expect(summary).toBe(told.summary);
    const kinds = (all: Artifact[]) => all.map(({ kind }) => kind).sort();
    expect(kinds(artifacts)).toEqual(kinds(told.artifacts));
  });

  for (const javaScriptEnabled of [true, false]) {
    test.describe(javaScriptEnabled ? "with scripts" : "without scripts", () => {
      test.use({ javaScriptEnabled });

      test("chosen as a folder it keeps its paths", async ({ page }) => {
        await page.goto("/");
        if (javaScriptEnabled) await start(page);
        await page.getByLabel("Or a whole folder").setInputFiles(heap.folder);
        await toReport(page);
        const run = await (await page.request.get(page.url().replace("/runs/", "/api/v1/runs/"))).json();
        const { artifacts } = run.diagnosis as { artifacts: Artifact[] };
        expect(ranksOf(artifacts)).toEqual(allRanks);
        expect(artifacts.map(({ name }) => name)).toContain("job-17/attempt_0/3/stdout.log");
      });
    });
  }
});
