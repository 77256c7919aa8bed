//! The documentation's commands, run as a reader would type them: every block marked `sh test`, and with a server those
//! marked `sh test server`.

#![allow(clippy::unwrap_used)] // a helper that fails should stop the test

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// What the documents call the server.
const SERVER: &str = "127.0.0.1:3000";

struct Block {
    file: String,
    line: usize,
    needs_server: bool,
    commands: String,
}

/// The workspace's root, where readers are told to be.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn blocks(name: &str, text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        match line.trim().strip_prefix("```") {
            Some(_) if open => open = false,
            Some(info) => {
                let words: Vec<&str> = info.split_whitespace().collect();
                open = words.starts_with(&["sh", "test"]);
                if open {
                    let needs_server = words.contains(&"server");
                    found.push(Block { file: name.into(), line: index + 1, needs_server, commands: String::new() });
                }
            }
            None if open => {
                let block = found.last_mut().unwrap();
                block.commands.push_str(line);
                block.commands.push('\n');
            }
            None => {}
        }
    }
    found
}

fn all_blocks() -> Vec<Block> {
    let mut files = vec![root().join("README.md")];
    files.extend(fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    files.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    files.sort();
    files
        .iter()
        .flat_map(|path| blocks(&path.file_name().unwrap().to_string_lossy(), &fs::read_to_string(path).unwrap()))
        .collect()
}

/// Runs a block in a shell that stops at the first failure.
fn run(block: &Block, address: &str) {
    let program = Path::new(env!("CARGO_BIN_EXE_rankscope"));
    let path = std::env::join_paths(
        std::iter::once(program.parent().unwrap().to_path_buf())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )
    .unwrap();
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &block.commands.replace(SERVER, address)])
        .current_dir(root())
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{} line {}: {}\n{}\n{}{}",
        block.file,
        block.line,
        output.status,
        block.commands,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        !output.stdout.is_empty() || block.commands.contains('>'),
        "{} line {}: says nothing",
        block.file,
        block.line
    );
}

struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn commands_without_a_server_work_as_printed() {
    let blocks: Vec<Block> = all_blocks().into_iter().filter(|block| !block.needs_server).collect();
    assert!(blocks.len() >= 10, "only {} blocks were found", blocks.len());
    for block in blocks {
        run(&block, SERVER);
    }
}

#[test]
fn commands_that_talk_to_a_server_work_as_printed() {
    let data = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_rankscope"))
        .args(["serve", "--no-sampler", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let _serving = Serving(child);
    let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap().to_owned();

    let blocks: Vec<Block> = all_blocks().into_iter().filter(|block| block.needs_server).collect();
    assert!(blocks.len() >= 5, "only {} blocks were found", blocks.len());
    for block in blocks {
        run(&block, &address);
    }
}
