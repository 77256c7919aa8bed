//! Prints the facts of scripts: `cargo run -p rankscope-ingest --example script_facts -- FILE...`.

use rankscope_ingest::{Limits, ReadContext, python_script};
use rankscope_model::{ArtifactId, Place};

fn main() {
    for path in std::env::args().skip(1) {
        println!("== {path}");
        let Ok(file) = std::fs::File::open(&path) else {
            println!("cannot be opened");
            continue;
        };
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name: &path, limits: &limits };
        let evidence = match python_script::read(&mut std::io::BufReader::new(file), &ctx) {
            Ok(evidence) => evidence,
            Err(error) => {
                println!("refused: {error}");
                continue;
            }
        };
        for warning in evidence.artifacts.iter().flat_map(|artifact| &artifact.warnings) {
            println!("warning: {warning}");
        }
        for script in &evidence.scripts {
            println!(
                "{:?} {:?} entry {} whole {}",
                script.frameworks, script.launchers, script.is_entry, script.is_whole
            );
            for fact in &script.facts {
                let (Place::Line(line) | Place::Lines(line, _)) = fact.at.place else { continue };
                let guard = fact.guard.as_ref().map_or(String::new(), |g| format!(" IF {:?} `{}`", g.kind, g.text));
                let flow = fact.flow;
                println!(
                    "{line:>4} {:?}/{}/{}{} {:?} in {}{}{}",
                    flow.process,
                    flow.root,
                    flow.order,
                    if flow.on_import { " import" } else { "" },
                    fact.what,
                    fact.function.as_deref().unwrap_or("-"),
                    fact.in_loop.map_or(String::new(), |l| format!(" {l:?}")),
                    guard,
                );
            }
        }
    }
}
