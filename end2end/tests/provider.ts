// A provider of sign-ins in a process of its own, and what people do on its pages.

import { expect, type Locator, type Page } from "@playwright/test";
import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

const CLIENT = "rankscope";
const SECRET = "the secret of the browser tests";

const givenPorts = new Set<number>();

/**
 * A port that nobody listens on: the provider must know the address of the server before it starts. Below those that a
 * system gives away by itself, so that no listener or connection of another test takes it in between.
 */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 100; tries++) {
    const port = randomInt(10_000, 16_000);
    if (givenPorts.has(port)) continue;
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once("error", () => resolve(false));
      server.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!isFree) continue;
    givenPorts.add(port);
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
  throw new Error("no port between 10000 and 16000 is free");
}

/** A running `oidc-provider` that knows these servers. */
export class Provider {
  private constructor(
    private readonly process: ChildProcess,
    private readonly folder: string,
    readonly issuer: string,
  ) {}

  static async start(servers: string[]): Promise<Provider> {
    const redirects = servers.map((server) => `${server}/login/oidc/callback`);
    const program = path.join(__dirname, "../provider/provider.mjs");
    const child = spawn(process.execPath, [program, CLIENT, SECRET, ...redirects], { stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    const issuer = await new Promise<string>((resolve, reject) => {
      const giveUp = setTimeout(() => reject(new Error(`the provider does not start\n${said}`)), 30_000);
      const listen = (bytes: Buffer) => {
        said += bytes;
        const line = said.match(/^provider (\S+)$/m);
        if (!line) return;
        clearTimeout(giveUp);
        resolve(line[1]);
      };
      child.stdout!.on("data", listen);
      child.stderr!.on("data", listen);
      child.on("exit", (code) => reject(new Error(`the provider ended with ${code}\n${said}`)));
    });
    const folder = mkdtempSync(path.join(tmpdir(), "rankscope-provider-"));
    writeFileSync(path.join(folder, "secret"), `${SECRET}\n`, { mode: 0o600 });
    return new Provider(child, folder, issuer);
  }

  /** How a server is started that asks it. */
  options(server: string): string[] {
    const secret = path.join(this.folder, "secret");
    const told = ["--oidc-issuer", this.issuer, "--oidc-client-id", CLIENT, "--oidc-client-secret-file", secret];
    return [...told, "--oidc-label", "Our Id", "--public-url", server];
  }

  async stop(): Promise<void> {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const ended = new Promise((resolve) => this.process.once("exit", resolve));
      this.process.kill("SIGKILL");
      await ended;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** The way to the provider, from the page of the sign-in. */
export async function press(page: Page, server: string, next = ""): Promise<void> {
  await page.goto(`${server}/login${next && `?next=${encodeURIComponent(next)}`}`);
  await page.getByRole("link", { name: "Sign in with Our Id" }).click();
}

/** Says who comes, and agrees. */
export async function signInAtProvider(page: Page, issuer: string, name: string): Promise<void> {
  await (await agreement(page, issuer, name)).click();
}

/** Does the same, and stops before the browser comes back: to where it would be sent. */
export async function wayBack(page: Page, issuer: string, name: string): Promise<string> {
  await agreement(page, issuer, name);
  const form = await page.locator("form").getAttribute("action");
  const { request } = page.context();
  const agreed = await request.post(form!, { form: { prompt: "consent" }, maxRedirects: 0 });
  const sent = await request.get(agreed.headers().location, { maxRedirects: 0 });
  const back = sent.headers().location;
  expect(back).toContain("/login/oidc/callback?code=");
  return back;
}

async function agreement(page: Page, issuer: string, name: string): Promise<Locator> {
  expect(new URL(page.url()).origin).toBe(issuer);
  await page.getByPlaceholder("Enter any login").fill(name);
  await page.getByPlaceholder("and password").fill("anything");
  await page.getByRole("button", { name: "Sign-in" }).click();
  const agree = page.getByRole("button", { name: "Continue" });
  await expect(agree).toBeVisible();
  return agree;
}
