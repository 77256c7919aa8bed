//! Every check of the project, in one call.

use crate::bundle::{self, WasmProfile};
use crate::layout::Layout;
use crate::node::Node;
use crate::postgres::Postgres;
use crate::serve::SITE_VARIABLE;
use crate::summary::Summary;
use crate::{browser, command, probe, say};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs the checks. `quick` leaves out what needs the bundle.
pub fn test(layout: &Layout, quick: bool) -> Result<()> {
    // The same in every call, so that cargo builds the server once for all of them.
    let site = layout.site(WasmProfile::WasmDev.name());
    let mut summary = Summary::default();

    summary.step("formatting", || command::run(cargo(layout, &site).args(["fmt", "--all", "--check"])));
    // The bundle goes before everything that compiles the server, which embeds it.
    let bundled = if quick {
        summary.skip("bundle", "--quick");
        None
    } else {
        summary.step("bundle", || bundle::bundle(layout, WasmProfile::WasmDev))
    };
    summary.step("clippy", || {
        command::run(cargo(layout, &site).args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    });
    // The workspace is checked as the server uses it, in which the islands' code for the browser is switched off.
    summary.step("clippy of the browser's part", || {
        command::run(
            cargo(layout, &site)
                .args([
                    "clippy",
                    "--package",
                    "rankscope-app",
                    "--lib",
                    "--no-default-features",
                    "--features",
                    "hydrate",
                ])
                .args(["--", "--deny", "warnings"]),
        )
    });
    summary.step("probe", || probe::test(layout));
    // Real jobs with the probe are part of the Rust tests, which leave them out in sight without a torch.
    let torch = probe::bring_torch().inspect_err(|why| summary.skip("jobs with the probe", format!("{why:#}"))).ok();
    summary.step("tests", || rust_tests(layout, &site, torch.as_deref()));
    let bucket = ("RANKSCOPE_TEST_BUCKET", "1");
    summary.step("tests with a bucket", || store_tests(layout, &site, &[bucket]));
    match Postgres::start() {
        Ok(postgres) => {
            let database = ("RANKSCOPE_TEST_DATABASE_URL", postgres.url());
            summary.step("tests on PostgreSQL", || store_tests(layout, &site, &[database]));
            summary.step("tests on PostgreSQL with a bucket", || store_tests(layout, &site, &[database, bucket]));
        }
        Err(why) => summary.skip("tests on PostgreSQL", format!("{why:#}")),
    }
    summary.step("documentation tests", || {
        command::run(cargo(layout, &site).args(["test", "--workspace", "--doc", "--quiet"]))
    });
    if bundled.is_some() {
        summary.step("browser tests", || browser_tests(layout, &site));
    } else {
        summary.skip("browser tests", if quick { "--quick" } else { "there is no bundle" });
    }
    summary.finish()
}

fn cargo(layout: &Layout, site: &Path) -> Command {
    let mut command = command::cargo();
    command.current_dir(&layout.root).env(SITE_VARIABLE, site);
    command
}

fn rust_tests(layout: &Layout, site: &Path, torch: Option<&Path>) -> Result<()> {
    let cargo_with_torch = || {
        let mut command = cargo(layout, site);
        if let Some(python) = torch {
            command.env(probe::TORCH_PYTHON, python);
        }
        command
    };
    if bring_nextest(layout, site) {
        command::run(cargo_with_torch().args(["nextest", "run", "--workspace", "--no-fail-fast"]))
    } else {
        say::line("cargo-nextest is not to be had; `cargo test` runs the tests");
        command::run(cargo_with_torch().args(["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]))
    }
}

/// Every test of the store and of accounts once more, with the rows in a `PostgreSQL` or the objects in a bucket: they
/// open what the variables name.
fn store_tests(layout: &Layout, site: &Path, elsewhere: &[(&str, &str)]) -> Result<()> {
    let cargo = || {
        let mut command = cargo(layout, site);
        command.envs(elsewhere.iter().copied());
        command
    };
    if bring_nextest(layout, site) {
        // The same selection of packages as before: any other would be compiled anew.
        let tests =
            "package(rankscope) & (kind(lib) & test(/^(store|accounts)::/) | binary(database) | binary(replicas))";
        return command::run(cargo().args(["nextest", "run", "--workspace", "--no-fail-fast", "--filterset", tests]));
    }
    let rest = ["--", "store::", "accounts::"];
    command::run(cargo().args(["test", "--package", "rankscope", "--lib", "--no-fail-fast"]).args(rest))?;
    let binaries = ["--test", "database", "--test", "replicas"];
    command::run(cargo().args(["test", "--package", "rankscope", "--no-fail-fast"]).args(binaries))
}

/// Installed already, or from its source with the versions it was released with.
fn bring_nextest(layout: &Layout, site: &Path) -> bool {
    let installed = cargo(layout, site)
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if installed {
        return true;
    }
    say::line("cargo brings cargo-nextest from its source (some minutes, once)");
    command::run(cargo(layout, site).args(["install", "--quiet", "--locked", "cargo-nextest"]))
        .inspect_err(say::error)
        .is_ok()
}

fn browser_tests(layout: &Layout, site: &Path) -> Result<()> {
    // The server's own tests need its binary, so this builds it, with the very dependencies that were compiled for the
    // tests before: any other selection would compile many of them again with fewer features.
    command::run(cargo(layout, site).args(["build", "--workspace", "--tests"]))?;
    // The driver's library that the sampler of the server opens: cargo makes it for nobody's tests.
    command::run(cargo(layout, site).args(["build", "--package", "nvml-stub"]))?;
    let stub = layout.binary("debug").with_file_name("libnvml_stub.so");
    let node = Node::bring(layout)?;
    let chromium: PathBuf = browser::bring(&node)?;
    command::run(
        node.playwright_test()
            .env_remove("LD_LIBRARY_PATH")
            .env("RANKSCOPE_BIN", layout.binary("debug"))
            .env("RANKSCOPE_NVML_STUB", stub)
            .env("RANKSCOPE_CHROMIUM", chromium),
    )
}
