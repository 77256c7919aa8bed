import { defineConfig } from "@playwright/test";

// Set by `cargo xtask test`; without it Playwright looks for a browser of its own.
const executablePath = process.env.RANKSCOPE_CHROMIUM || undefined;

export default defineConfig({
  testDir: "tests",
  outputDir: "test-results",
  // A test that passes only at the second try is a broken test.
  retries: 0,
  workers: 2,
  fullyParallel: true,
  forbidOnly: Boolean(process.env.CI),
  timeout: 60_000,
  expect: { timeout: 10_000 },
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    headless: true,
    screenshot: "only-on-failure",
    trace: "retain-on-failure",
    launchOptions: {
      executablePath,
      // Without a sandbox it also starts as root in a container; the rest keeps it from talking to anyone but the
      // server under test.
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
});
