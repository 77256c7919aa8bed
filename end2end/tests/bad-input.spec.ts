// Files that are broken, empty or hostile: kept, named with a reason, never run, and no harm to the rest.

import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { table } from "./evidence";
import { fileField, said, send, start, toReport } from "./report";
import { expect, Server, test } from "./server";

const file = (name: string, content: string | Buffer) => ({
  name,
  mimeType: "application/octet-stream",
  buffer: Buffer.from(content),
});

/** A pickle that runs a command when Python loads it: protocol 2, `os.system(command)`. */
function evilPickle(name: string, command: string) {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(Buffer.byteLength(command));
  const parts = [Buffer.from([0x80, 2]), Buffer.from("cos\nsystem\nX"), length, Buffer.from(command), Buffer.from([0x85, 0x52, 0x2e])];
  return file(name, Buffer.concat(parts));
}

test("a broken file is named with its reason and does not sink the others", async ({ page }) => {
  const traces = mkdtempSync(path.join(tmpdir(), "rankscope-evil-"));
  const touched = path.join(traces, "touched");
  await start(page);
  await fileField(page).setInputFiles([
    file("empty.log", ""),
    file("noise.bin", Buffer.from(Array.from({ length: 4096 }, (_, n) => (n * 73 + 11) % 256))),
    evilPickle("rank0_snapshot.pickle", `touch ${touched}`),
    file("old_protocol.pickle", `cos\nsystem\n(S'touch ${touched}'\ntR.`),
    file("cut.gz", gzipSync("rank=0 step=1 ".repeat(1000)).subarray(0, 40)),
    file("nvidia-smi.txt", readFileSync(table)),
  ]);
  await send(page).click();

  // Warned before the report opens: the way on first, then one line per file, those with a warning first.
  const way = page.getByRole("link", { name: "Open the report" });
  await expect(way).toBeFocused();
  const taken = page.locator("ul.taken").getByRole("listitem");
  await expect(taken).toHaveCount(4);
  expect((await way.boundingBox())!.y).toBeLessThan((await taken.first().boundingBox())!.y);
  await page.getByText("and 2 more files without a warning").click();
  await expect(taken).toHaveCount(6);
  for (const name of ["empty.log", "rank0_snapshot.pickle", "cut.gz"]) {
    await expect(taken.filter({ hasText: name }).locator(".warning").first()).toBeVisible();
  }
  await way.click();
  await page.waitForURL(/\/runs\/[^/]+$/);

  await expect(page.getByRole("heading", { level: 1 })).toContainText("GPU 0");
  const files = page.getByRole("region", { name: /^Files/ });
  const line = (name: string) => files.getByRole("listitem").filter({ hasText: name }).first();
  await expect(line("empty.log")).toContainText(/empty|0 B/i);
  await expect(line("rank0_snapshot.pickle").locator(".warning")).toBeVisible();
  await expect(line("nvidia-smi.txt")).toContainText("nvidia-smi table");
  expect(existsSync(touched)).toBe(false);
});

test("a file name is text, whatever it says", async ({ page }) => {
  const name = `<script>window.taken=1</script><img src=x onerror=window.taken=1>.log`;
  await start(page);
  await fileField(page).setInputFiles([file(name, "rank=0 step=1 cur=10.0MB peak=20.0MB\n")]);
  await expect(page.getByRole("list", { name: "Chosen files" })).toContainText("<script>");
  await toReport(page);
  await expect(page.getByRole("region", { name: /^Files/ })).toContainText("<img src=x");
  await expect(page.locator("img[src=x]")).toHaveCount(0);
  expect(await page.evaluate(() => "taken" in window)).toBe(false);
});

test("a file name never becomes a path", async ({ page, request }) => {
  const answer = await request.post("/api/v1/runs", {
    multipart: { files: { name: "../../../../etc/rankscope.log", mimeType: "text/plain", buffer: Buffer.from("rank=0 step=1 cur=1.0MB\n") } },
  });
  expect(answer.status()).toBe(201);
  expect(existsSync("/etc/rankscope.log")).toBe(false);
  const { url } = await answer.json();
  await page.goto(url);
  await expect(page.getByRole("region", { name: /^Files/ })).toContainText("rankscope.log");
});

test("a file over the limit is refused before it travels, and by the server too", async ({ page, request, server }) => {
  const small = await Server.start(["--max-file-bytes", "1MiB", "--max-request-bytes", "2MiB"]);
  const large = file("large.log", Buffer.alloc(3 << 19, "x"));
  const context = page.context();
  const visitor = await context.browser()!.newPage({ baseURL: small.url });
  try {
    await start(visitor);
    await expect(visitor.getByText("Up to 1 MiB a file")).toBeVisible();
    await fileField(visitor).setInputFiles([large]);
    await send(visitor).click();
    await expect(said(visitor)).toContainText(/large\.log/);
    await expect(visitor).toHaveURL(`${small.url}/`);

    const answer = await request.post(`${small.url}/api/v1/runs`, { multipart: { files: large } });
    // Kept out with a reason, or refused as a whole; never an internal error.
    expect([201, 413, 422]).toContain(answer.status());
    expect(await answer.text()).toMatch(/large|limit|MiB/);
  } finally {
    await visitor.close();
    await small.stop();
  }
  expect((await request.get(`${server.url}/healthz`)).ok()).toBe(true);
});

test("addresses that lead nowhere are pages with the right status", async ({ page }) => {
  for (const [address, title] of [
    ["/runs/none", "No such run"],
    ["/r/none", "No report behind this link"],
    ["/nowhere", "No page at this address"],
    ["/runs/..%2f..%2fetc", "No such run"],
  ]) {
    expect((await page.goto(address))?.status(), address).toBe(404);
    await expect(page.getByRole("heading", { level: 1 })).toHaveText(title);
  }
});
