//! Writes the pages into a folder, with the style sheet beside them, to look at them without a server:
//! `cargo run -p rankscope-app --example preview -- /tmp/preview`, then open `home.html`.

#[path = "../tests/support/mod.rs"]
mod support;

use rankscope_app::standalone_report_html;
use rankscope_model::{ShareInfo, UnixMicros};
use std::path::{Path, PathBuf};
use std::{env, fs, io};
use support::{Memory, Site, reports};

#[tokio::main]
async fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map_or_else(|| env::temp_dir().join("rankscope-preview"), PathBuf::from);
    fs::create_dir_all(&folder)?;
    let day = 86_400_000_000;
    let share = |id: &str, expires: Option<i64>, revoked: Option<i64>| ShareInfo {
        id: id.into(),
        version: 1,
        created_at: reports::MADE_AT,
        expires_at: expires.map(UnixMicros),
        revoked_at: revoked.map(UnixMicros),
        ..ShareInfo::default()
    };
    let memory = Memory {
        reports: vec![reports::eight_gpus(), reports::eight_gpus_bound(), reports::step_log(), reports::inconclusive()],
        shares: vec![
            share("s1", Some(4_102_444_800_000_000), None),
            share("s2", None, Some(reports::MADE_AT.0 + day)),
            share("s3", Some(reports::MADE_AT.0 + 7 * day), None),
        ],
        tokens: vec![("tok".into(), Some(reports::eight_gpus().run.id)), ("ended".into(), None)],
        after: vec![(reports::eight_gpus().run.id, reports::eight_gpus_bound().run.id)],
        ..Memory::default()
    };
    let mut site = Site::new(memory.clone());
    site.new_share = Some(("s1".into(), "q9Xw3nT0kz2mVb7cR4yLh8sJ6pDf1gAe5uWi0oZx_Kt".into()));
    let pages = [
        ("home", "/"),
        ("search", "/?query=nothing-like-this"),
        ("smi", "/runs/01939f0a7e2b"),
        ("steps", "/runs/01939f0b11aa"),
        ("open", "/runs/01939f0c22bb"),
        ("environment", "/runs/01939f0a7e2b/checklist/environment"),
        ("data", "/runs/01939f0b11aa/checklist/data"),
        ("verify", "/runs/01939f0a7e2b/checklist/verify"),
        ("verify-open", "/runs/01939f0b11aa/checklist/verify"),
        ("compare", "/compare?base=01939f0a7e2b&head=01939f1c33cc"),
        ("compare-open", "/compare?base=01939f0a7e2b&head=01939f0b11aa"),
        ("shared", "/r/tok"),
        ("ended", "/r/ended"),
        ("missing", "/runs/none"),
    ];
    for (name, address) in pages {
        let (status, html) = site.get(address).await;
        println!("{status} {address}");
        write(&folder, name, &html)?;
    }
    let empty = Site::new(Memory::default());
    write(&folder, "empty", &empty.get("/").await.1)?;
    fs::write(folder.join("export.html"), standalone_report_html(&reports::step_log()))?;
    fs::write(folder.join("style.css"), rankscope_app::STYLE)
}

/// Files have no root: addresses of the style sheet and the icon become relative.
fn write(folder: &Path, name: &str, html: &str) -> io::Result<()> {
    let html = html.replace("href=\"/style.css\"", "href=\"style.css\"");
    fs::write(folder.join(format!("{name}.html")), html)
}
