// The server under test, and the promises that every page keeps whatever it is asked for.

import { test as base, expect, type BrowserContext, type Page } from "@playwright/test";
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

/** A running `rankscope serve` with an empty store of its own. */
export class Server {
  private stderr = "";

  private constructor(
    private readonly process: ChildProcess,
    readonly data: string,
    readonly url: string,
  ) {}

  static async start(options: string[] = [], listen = "127.0.0.1:0"): Promise<Server> {
    const program = process.env.RANKSCOPE_BIN;
    if (!program) throw new Error("RANKSCOPE_BIN must name the built server; `cargo xtask test` sets it");
    const data = mkdtempSync(path.join(tmpdir(), "rankscope-end2end-"));
    // Cards of the machine that runs the tests are left alone.
    const cards = options.includes("--nvml-library") ? [] : ["--no-sampler"];
    const child = spawn(program, ["serve", "--listen", listen, "--data", data, ...cards, ...options], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let stderr = "";
    const url = await new Promise<string>((resolve, reject) => {
      const giveUp = setTimeout(() => reject(new Error(`the server does not start\n${stderr}`)), 30_000);
      let stdout = "";
      child.stdout!.on("data", (bytes) => {
        stdout += bytes;
        const line = stdout.match(/Rankscope serves (http:\/\/127\.0\.0\.1:\d+)/);
        if (line) {
          clearTimeout(giveUp);
          resolve(line[1]);
        }
      });
      child.stderr!.on("data", (bytes) => (stderr += bytes));
      child.on("error", reject);
      child.on("exit", (code) => reject(new Error(`the server ended with ${code}\n${stderr}`)));
    });
    const server = new Server(child, data, url);
    server.stderr = stderr;
    child.stderr!.on("data", (bytes) => (server.stderr += bytes));
    return server;
  }

  /** Asks the server to end; it must do so in order and never have panicked. */
  async stop(): Promise<void> {
    const code = await new Promise<number | null>((resolve) => {
      if (this.process.exitCode !== null) return resolve(this.process.exitCode);
      this.process.once("exit", resolve);
      this.process.kill("SIGTERM");
    });
    rmSync(this.data, { recursive: true, force: true });
    expect(this.stderr).not.toContain("panicked");
    expect(code, this.stderr).toBe(0);
  }
}

/** Complaints of a page: script errors, refused resources, requests to anyone but the server under test. */
function watch(context: BrowserContext, origin: string): string[] {
  const complaints: string[] = [];
  const listen = (page: Page) => {
    page.on("pageerror", (error) => complaints.push(`script error: ${error.message}`));
    page.on("console", (message) => {
      // A page with status 404 or 410 is a page; the tests say where they expect one.
      const isStatus = message.text().startsWith("Failed to load resource: the server responded with a status of");
      if (message.type() === "error" && !isStatus) complaints.push(`console: ${message.text()}`);
    });
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.protocol.startsWith("http") && url.origin !== origin) complaints.push(`asks ${request.url()}`);
    });
  };
  context.pages().forEach(listen);
  context.on("page", listen);
  return complaints;
}

export const test = base.extend<{ quiet: void }, { server: Server }>({
  server: [
    async ({}, use) => {
      const server = await Server.start();
      await use(server);
      await server.stop();
    },
    { scope: "worker" },
  ],
  baseURL: async ({ server }, use) => use(server.url),
  quiet: [
    async ({ context, server }, use) => {
      const complaints = watch(context, server.url);
      await use();
      expect(complaints).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };
