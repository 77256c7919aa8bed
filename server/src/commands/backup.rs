//! `rankscope backup` and `rankscope restore`: one file with all that a data folder holds, and a folder made of it.

use super::{counted, opening, tell_missing};
use crate::{
    cli::{BackupArgs, RestoreArgs},
    store::backup::{self, Contents},
};
use anyhow::{Context, bail};
use rankscope_model::Bytes;
use std::{
    fs::File,
    io::{self, IsTerminal},
    path::Path,
};

/// Writes a copy of a data folder, also while a server holds it.
pub fn backup(args: &BackupArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let contents = if args.file == Path::new("-") {
        let out = io::stdout();
        if out.is_terminal() {
            bail!("standard output is a terminal; name a file, or send it on with a pipe");
        }
        runtime
            .block_on(backup::write(&args.data, args.objects.bucket().as_ref(), out.lock()))
            .with_context(|| opening(&args.data, None))?
    } else {
        to_file(&runtime, args)?
    };
    // Where the copy itself goes to standard output, this must not.
    eprintln!("Saved {}.", words(&contents));
    tell_missing(&contents.missing);
    Ok(())
}

/// Under its name only when it is whole and on disk.
fn to_file(runtime: &tokio::runtime::Runtime, args: &BackupArgs) -> anyhow::Result<Contents> {
    let (data, target) = (&*args.data, &*args.file);
    if target.exists() {
        bail!("{} exists already; name another file", target.display());
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let writing = || format!("writing {}", target.display());
    let mut new = tempfile::Builder::new().prefix(".rankscope-backup-").tempfile_in(folder).with_context(writing)?;
    let contents = runtime
        .block_on(backup::write(data, args.objects.bucket().as_ref(), &mut new))
        .with_context(|| opening(data, None))?;
    new.as_file().sync_all().with_context(writing)?;
    new.persist_noclobber(target).with_context(writing)?;
    File::open(folder).and_then(|folder| folder.sync_all()).with_context(writing)?;
    Ok(contents)
}

/// Makes a data folder of a copy.
pub fn restore(args: &RestoreArgs) -> anyhow::Result<()> {
    let reading = || format!("restoring {} from {}", args.data.display(), args.file.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let bucket = args.objects.bucket();
    let contents = if args.file == Path::new("-") {
        runtime.block_on(backup::restore(io::stdin().lock(), &args.data, bucket.as_ref())).with_context(reading)?
    } else {
        let file = File::open(&args.file).with_context(reading)?;
        runtime.block_on(backup::restore(file, &args.data, bucket.as_ref())).with_context(reading)?
    };
    let objects = bucket.map(|bucket| format!(", and the objects to {}", bucket.url)).unwrap_or_default();
    println!("Restored {} to {}{objects}.", words(&contents), args.data.display());
    Ok(())
}

/// `3 runs in 17 objects, 1.2 MiB`.
fn words(contents: &Contents) -> String {
    format!("{} with {}, {}", counted(contents.runs, "run"), counted(contents.objects, "object"), Bytes(contents.bytes))
}
