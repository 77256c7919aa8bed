//! Calls from one script into another: where in the caller's flow a function of an imported file runs, by whom, and
//! under which condition.
//!
//! Each file is read alone, so a function that only another file calls has a flow of its own there. The links join the
//! flows. Knows facts and file names; knows no cause.

use rankscope_model::{ArtifactId, Fact, FlowProcess, Guard, GuardKind, ScriptEvidence, ScriptFact};
use std::collections::BTreeMap;

/// A flow: the file, and the number of the root in it.
type Root = (ArtifactId, u32);

/// Calls followed into each other; imports may go round in circles.
const MAX_DEPTH: usize = 16;

/// Where a flow is entered from another file.
struct Entry<'a> {
    caller: Root,
    order: u32,
    process: FlowProcess,
    /// Of the weakest call: one without condition on the rank is enough.
    guard: Option<&'a Guard>,
    /// The flow is that of `__init__`, which runs before the other methods that the same call stands for.
    is_init: bool,
}

/// The joined flows of all scripts.
#[derive(Default)]
pub(crate) struct Links<'a> {
    entries: BTreeMap<Root, Entry<'a>>,
}

/// Where something stands in a flow: its place, and whether it is an `__init__` that was entered there.
type Position = (Root, u32, bool);

impl<'a> Links<'a> {
    /// Of scripts whose modules `file_of` finds by the name that an import gives.
    pub fn new(scripts: &[&'a ScriptEvidence], file_of: impl Fn(&str) -> Option<ArtifactId>) -> Self {
        let mut links = Self::default();
        for script in scripts {
            for call in &script.facts {
                let Fact::CallsImported { module, name } = &call.what else { continue };
                let Some(file) = file_of(module).filter(|file| *file != script.at.artifact) else { continue };
                let Some(target) = scripts.iter().find(|other| other.at.artifact == file) else { continue };
                links.enter(target, name, call);
            }
        }
        links
    }

    /// A call of `name`, a function or a class of `target`.
    fn enter(&mut self, target: &'a ScriptEvidence, name: &str, call: &'a ScriptFact) {
        let of_call = call.guard.as_ref().filter(|guard| guard.kind.is_rank_only());
        for fact in target.facts.iter().filter(|fact| fact.flow.process == FlowProcess::Uncalled) {
            let Some(function) = fact.function.as_deref() else { continue };
            let method = function.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
            if function != name && method.is_none() {
                continue;
            }
            let root = (target.at.artifact, fact.flow.root);
            let caller = (call.at.artifact, call.flow.root);
            self.entries
                .entry(root)
                .and_modify(|known| {
                    if of_call.is_none() {
                        known.guard = None;
                    }
                    if known.caller == caller && call.flow.order < known.order {
                        known.order = call.flow.order;
                    }
                })
                .or_insert(Entry {
                    caller,
                    order: call.flow.order,
                    process: call.flow.process,
                    guard: of_call,
                    is_init: method == Some("__init__"),
                });
        }
    }

    /// The positions of a fact: in its own flow, in the one that enters that, and so on.
    fn positions(&self, fact: &ScriptFact) -> Vec<Position> {
        let mut here = ((fact.at.artifact, fact.flow.root), fact.flow.order, false);
        let mut list = vec![here];
        while let Some(entry) = self.entries.get(&here.0).filter(|_| list.len() < MAX_DEPTH) {
            here = (entry.caller, entry.order, entry.is_init);
            list.push(here);
        }
        list
    }

    /// Whether a process meets `a` before `b`; `None` where the flow does not tell.
    pub fn precedes(&self, a: &ScriptFact, b: &ScriptFact) -> Option<bool> {
        if a.at.artifact == b.at.artifact
            && let Some(known) = ScriptEvidence::precedes(a, b)
        {
            return Some(known);
        }
        let (of_a, of_b) = (self.positions(a), self.positions(b));
        let common = of_a.iter().find_map(|at| of_b.iter().find(|other| other.0 == at.0).map(|other| (*at, *other)));
        if let Some(((_, own, own_init), (_, other, other_init))) = common {
            return match own.cmp(&other) {
                std::cmp::Ordering::Less => Some(true),
                std::cmp::Ordering::Greater => Some(false),
                // Both within one call: of a class, whose other methods run after `__init__`.
                std::cmp::Ordering::Equal if own_init != other_init => Some(own_init),
                std::cmp::Ordering::Equal => None,
            };
        }
        // What an import does comes before what the importing flow does later.
        match (a.flow.on_import, b.flow.on_import) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => None,
        }
    }

    /// Who runs it: for code that only another file calls, whoever calls it there.
    pub fn process(&self, fact: &ScriptFact) -> FlowProcess {
        let mut process = fact.flow.process;
        let mut root = (fact.at.artifact, fact.flow.root);
        for _ in 0..MAX_DEPTH {
            let Some(entry) = self.entries.get(&root).filter(|_| process == FlowProcess::Uncalled) else { break };
            (process, root) = (entry.process, entry.caller);
        }
        process
    }

    /// The condition on the rank under which it is done, here or where it is called; else the one at hand.
    pub fn guard<'f>(&self, fact: &'f ScriptFact) -> Option<&'f Guard>
    where
        'a: 'f,
    {
        let own = fact.guard.as_ref();
        if own.is_some_and(|guard| guard.kind.is_rank_only() || guard.kind == GuardKind::SingleProcess) {
            return own;
        }
        let mut root = (fact.at.artifact, fact.flow.root);
        for _ in 0..MAX_DEPTH {
            let Some(entry) = self.entries.get(&root) else { break };
            if entry.guard.is_some() {
                return entry.guard;
            }
            root = entry.caller;
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rankscope_model::{FactKind, Flow, Provenance};

    fn fact(file: u32, root: u32, order: u32, function: Option<&str>, what: Fact) -> ScriptFact {
        let process = if root == 0 { FlowProcess::Main } else { FlowProcess::Uncalled };
        ScriptFact {
            at: Provenance::line(ArtifactId(file), u64::from(order) + 1, "x"),
            what,
            function: function.map(str::to_owned),
            guard: None,
            in_loop: None,
            flow: Flow { process, root, order, on_import: false },
        }
    }

    fn script(file: u32, facts: Vec<ScriptFact>) -> ScriptEvidence {
        let at = Provenance::line(ArtifactId(file), 1, "x");
        ScriptEvidence {
            at,
            frameworks: vec![],
            launchers: vec![],
            is_entry: file == 0,
            is_whole: true,
            facts,
            margins: BTreeMap::new(),
        }
    }

    fn calls(order: u32, module: &str, name: &str) -> ScriptFact {
        fact(0, 0, order, None, Fact::CallsImported { module: module.to_owned(), name: name.to_owned() })
    }

    #[test]
    fn flows_of_two_files_are_joined_where_one_calls_the_other() {
        let mut guarded = calls(5, "tools", "save");
        guarded.guard = Some(Guard { kind: GuardKind::RankZero, line: 6, text: "rank == 0".to_owned() });
        let main = script(0, vec![calls(1, "tools", "setup"), fact(0, 0, 3, None, Fact::CudnnBenchmark {}), guarded]);
        let tools = script(
            1,
            vec![
                fact(1, 1, 0, Some("setup"), Fact::EmptyCache {}),
                fact(1, 2, 1, Some("save"), Fact::SideStream { what: "s".to_owned() }),
                fact(1, 3, 2, Some("unused"), Fact::CudnnBenchmark {}),
            ],
        );
        let scripts = [&main, &tools];
        let links = Links::new(&scripts, |module| (module == "tools").then_some(ArtifactId(1)));
        let one = |script: &'static str, kind| -> ScriptFact {
            let of = if script == "main" { &main } else { &tools };
            of.facts.iter().find(|fact| fact.kind() == kind).cloned().unwrap()
        };
        let setup = one("tools", FactKind::EmptyCache);
        let work = one("main", FactKind::CudnnBenchmark);
        let save = one("tools", FactKind::SideStream);
        let unused = one("tools", FactKind::CudnnBenchmark);
        assert_eq!(links.precedes(&setup, &work), Some(true));
        assert_eq!(links.precedes(&work, &save), Some(true));
        assert_eq!(links.precedes(&save, &setup), Some(false));
        assert_eq!(links.precedes(&unused, &work), None, "numbers of roots mean nothing across files");
        assert_eq!(links.process(&setup), FlowProcess::Main);
        assert_eq!(links.process(&unused), FlowProcess::Uncalled);
        assert!(links.guard(&setup).is_none());
        assert_eq!(links.guard(&save).map(|guard| guard.kind), Some(GuardKind::RankZero));
    }

    #[test]
    fn an_object_is_made_before_its_methods_run() {
        let main = script(0, vec![calls(1, "loop", "Loop")]);
        let other = script(
            1,
            vec![
                fact(1, 1, 7, Some("Loop.fit"), Fact::EmptyCache {}),
                fact(1, 2, 9, Some("Loop.__init__"), Fact::CudnnBenchmark {}),
            ],
        );
        let scripts = [&main, &other];
        let links = Links::new(&scripts, |module| (module == "loop").then_some(ArtifactId(1)));
        assert_eq!(links.precedes(&other.facts[1], &other.facts[0]), Some(true));
    }

    #[test]
    fn imports_in_a_circle_end() {
        let call = |file: u32, root: u32, function, module: &str, name: &str| {
            fact(file, root, 0, function, Fact::CallsImported { module: module.to_owned(), name: name.to_owned() })
        };
        let a = script(0, vec![call(0, 1, Some("f"), "b", "g")]);
        let b = script(1, vec![call(1, 1, Some("g"), "a", "f")]);
        let links = Links::new(&[&a, &b], |module| Some(ArtifactId(u32::from(module == "b"))));
        assert_eq!(links.process(&a.facts[0]), FlowProcess::Uncalled);
        assert_eq!(links.precedes(&a.facts[0], &b.facts[0]), None);
    }
}
