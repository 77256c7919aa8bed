// Signing in through a real provider, in a browser that holds to the content security policy and to the rules of cookies
// between sites.

import { type Browser, type BrowserContext, expect, type Page, test } from "@playwright/test";
import { execFileSync } from "node:child_process";
import { freePort, press, Provider, signInAtProvider, wayBack } from "./provider";
import { Server } from "./server";

const PASSWORD = "correct horse battery";

test.describe.configure({ mode: "serial" });

let provider: Provider;
/** Where an administrator lets people in. */
let asking: Server;
/** Where people of one domain get an account by coming. */
let open: Server;
/** Goes away in the last test. */
let failing: Provider;
let alone: Server;

test.beforeAll(async () => {
  const [a, b, c] = await Promise.all([freePort(), freePort(), freePort()]);
  const at = (port: number) => `http://127.0.0.1:${port}`;
  provider = await Provider.start([at(a), at(b)]);
  failing = await Provider.start([at(c)]);
  const start = (by: Provider, port: number, more: string[] = []) =>
    Server.start([...by.options(at(port)), ...more], `127.0.0.1:${port}`);
  asking = await start(provider, a);
  open = await start(provider, b, ["--oidc-new-users", "viewer", "--oidc-email-domain", "example.org"]);
  alone = await start(failing, c);
  for (const server of [asking, open, alone]) {
    const words = ["user", "add", "root", "--admin", "--password-stdin", "--data", server.data];
    execFileSync(process.env.RANKSCOPE_BIN!, words, { input: PASSWORD });
    // A running server looks for its first administrator once a second.
    await expect.poll(() => fetch(`${server.url}/login`).then((page) => page.status)).toBe(200);
  }
});

test.afterAll(async () => {
  await Promise.all([asking, open, alone].map((server) => server?.stop()));
  await Promise.all([provider, failing].map((one) => one?.stop()));
});

let complaints: string[] = [];
test.beforeEach(() => {
  complaints = [];
});
test.afterEach(() => expect(complaints).toEqual([]));

/** A browser whose complaints about the server's pages fail the test. */
async function visitor(browser: Browser, server: Server, options = {}): Promise<{ page: Page; context: BrowserContext }> {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("console", (message) => {
    const isStatus = message.text().startsWith("Failed to load resource: the server responded with a status of");
    const isOurs = message.location().url.startsWith(server.url) || message.text().includes("Content Security Policy");
    if (message.type() === "error" && !isStatus && isOurs) complaints.push(message.text());
  });
  return { page, context };
}

async function withPassword(page: Page, server: Server): Promise<void> {
  await page.goto(`${server.url}/login`);
  await page.getByLabel("Name").fill("root");
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(`${server.url}/`);
}

test("who is new waits, is let in by an administrator, and signs out", async ({ browser }) => {
  const { page, context } = await visitor(browser, asking);
  await press(page, asking.url, "/live");
  await signInAtProvider(page, provider.issuer, "ada@example.org");
  await expect(page.getByRole("alert")).toContainText("ada@example.org at Our Id, and that opens no account here yet");
  expect(await context.cookies(asking.url).then((all) => all.filter((one) => one.name === "rankscope_session"))).toEqual([]);

  const root = await visitor(browser, asking);
  await withPassword(root.page, asking);
  await root.page.goto(`${asking.url}/settings/users`);
  await root.page.getByRole("button", { name: "Add this user" }).click();
  await expect(root.page.getByText("opens this account")).toBeVisible();
  await root.page.goto(`${asking.url}/settings/audit`);
  await expect(root.page.getByRole("table")).toContainText("with Our Id: ada@example.org has no account");
  await root.context.close();

  // Known at the provider, who is not asked there again.
  await press(page, asking.url, "/settings");
  await page.waitForURL(`${asking.url}/settings`);
  await expect(page.getByRole("banner")).toContainText("ada@example.org");
  const marks = (await context.cookies(asking.url)).filter((one) => one.name.startsWith("rankscope_"));
  expect(marks.map((one) => [one.name, one.httpOnly, one.sameSite])).toEqual([["rankscope_session", true, "Lax"]]);

  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(`${asking.url}/login`);
  await page.goto(`${asking.url}/settings`);
  await page.waitForURL(/\/login\?next=/);
  await context.close();
});

test("without JavaScript", async ({ browser }) => {
  const { page, context } = await visitor(browser, open, { javaScriptEnabled: false });
  await press(page, open.url, "/docs/team");
  await signInAtProvider(page, provider.issuer, "bo@example.org");
  await page.waitForURL(`${open.url}/docs/team`);
  await page.goto(open.url);
  await expect(page.getByRole("banner")).toContainText("bo@example.org");
  await context.close();
});

test("a link that ends somebody else's sign-in signs nobody in, nor does the same one twice", async ({ browser }) => {
  const mallory = await visitor(browser, open);
  await press(mallory.page, open.url);
  const back = await wayBack(mallory.page, provider.issuer, "mallory@example.org");

  const ada = await visitor(browser, open);
  await ada.page.goto(back);
  await expect(ada.page.getByRole("alert")).toContainText("not begun in this browser");
  const changed = back.replace(/state=[^&]+/, "state=another");
  await mallory.page.goto(changed);
  await expect(mallory.page.getByRole("alert")).toContainText("not begun in this browser");
  expect(await ada.context.cookies(open.url)).toEqual([]);
  await mallory.page.goto(back);
  await mallory.page.waitForURL(`${open.url}/`);
  await mallory.page.goto(back);
  await expect(mallory.page.getByRole("alert")).toContainText("was ended already");
  await ada.context.close();
  await mallory.context.close();
});

test("who may not come in reads why", async ({ browser }) => {
  const { page, context } = await visitor(browser, open);
  await press(page, open.url);
  await page.getByRole("link", { name: /cancel/i }).click();
  await expect(page.getByRole("alert")).toContainText("you have broken it off");
  await press(page, open.url);
  await signInAtProvider(page, provider.issuer, "eve@evil.example");
  await expect(page.getByRole("alert")).toContainText("eve@evil.example is in none of them");
  await expect(page.getByLabel("Password")).toBeVisible();
  await context.close();
});

test("an account with a password gets an identity when its owner says so", async ({ browser }) => {
  const { page, context } = await visitor(browser, asking);
  await withPassword(page, asking);
  await page.goto(`${asking.url}/settings`);
  await page.getByRole("link", { name: "Add an identity of Our Id" }).click();
  await signInAtProvider(page, provider.issuer, "root@example.org");
  await page.waitForURL(`${asking.url}/settings`);
  await page.getByRole("button", { name: "Yes, it is mine" }).click();
  await expect(page.getByText("opens this account")).toBeVisible();
  await page.getByRole("button", { name: "Sign out", exact: true }).click();
  await press(page, asking.url, "/settings/users");
  await page.waitForURL(`${asking.url}/settings/users`);
  await context.close();
});

test("a provider that goes away lets nobody in and keeps no password out", async ({ browser }) => {
  const { page, context } = await visitor(browser, alone);
  await press(page, alone.url);
  const back = await wayBack(page, failing.issuer, "ada@example.org");
  await failing.stop();
  await page.goto(back);
  await expect(page.getByRole("alert")).toContainText("Our Id does not answer");
  await withPassword(page, alone);
  await expect(page.getByRole("banner")).toContainText("root");
  await context.close();
});
