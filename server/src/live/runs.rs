//! How a job becomes a run: it appears on the nodes, is diagnosed anew while its evidence changes, and ends when its
//! processes do. Decides when; what is kept and how is `service` and `store`.

use super::{
    Live, Webhook, lock,
    record::{self, NodeRecord},
    state::{GRACE, Job, Node, Probe, State},
    tellings::{self, Kind, Ripe, Tellings},
    view::is_silent,
};
use crate::{
    errors::{Problem, ProblemKind},
    service::{Service, to_the_end},
    store::{LiveEvent, LiveStep, new_id, now},
};
use rankscope_diagnosis::Policy;
use rankscope_model::{LiveRunRef, Report, RunInfo, RunStanding, Silence, UnixMicros};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval};

/// Time between looks at the jobs.
const LOOK: Duration = Duration::from_secs(1);
/// A run is diagnosed at most so often, in microseconds.
const DIAGNOSE_EVERY: i64 = 3_000_000;
/// And no more than a tenth of the time goes into it.
const SHARE: i64 = 10;
/// A machine that is busy with other things must not let a run stand still for minutes.
const AT_MOST: i64 = 30_000_000;
/// Once all nodes that speak have no process of a job any more, one that is silent is waited for so long. The same for
/// a probe that did not say that it ends.
const LOST: i64 = 900_000_000;
/// A probe of which nothing arrives for so long is silent: it speaks at each step, and steps can be long.
const PROBE_SILENT: i64 = 120_000_000;
/// A probe may come before the agent lists its process; so long it is waited for.
const PROBE_WAITS: i64 = 10_000_000;
/// A probe that ended is over after this.
const PROBE_GRACE: i64 = 5_000_000;
/// Events older than this are not told any more when the server comes back.
const TELL_WITHIN: i64 = 3_600_000_000;

/// A job's cards count as filling for at most so long after it began.
const FILLS_WITHIN: i64 = 180_000_000;
/// A card has stopped to fill when it has risen no further for so long.
const FILLED_AFTER: i64 = 10_000_000;

/// What following needs.
#[derive(Debug, Clone)]
pub struct Follower {
    /// Where data come from.
    pub live: Arc<Live>,
    /// Where runs go.
    pub service: Arc<Service>,
    /// Tells people, if they asked for it.
    pub webhook: Option<Webhook>,
}

/// A job as it is now, over all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct JobNow {
    nodes: BTreeSet<String>,
    probes: Vec<String>,
    ranks: usize,
    world_size: u32,
    /// When it began.
    began: i64,
    /// Version of the newest change of its evidence.
    evidence: u64,
    /// All its processes are gone.
    gone: bool,
    /// Who of it says nothing any more.
    silent: Vec<Silence>,
    /// It has begun a little while ago, and its cards still fill one after the other.
    filling: bool,
}

/// A run that goes on.
#[derive(Debug)]
struct OpenRun {
    id: String,
    evidence: u64,
    /// Not before this is it diagnosed again.
    not_before: i64,
    /// What was told of it, and what is to be.
    tellings: Tellings,
    is_new: bool,
    /// The title that it was given here last.
    title: Option<String>,
    /// Its title has changed.
    is_renamed: bool,
    /// It was deleted, or could not be kept: its job is left alone.
    given_up: bool,
    /// As it was told last.
    standing: RunStanding,
    /// What its report accuses.
    found: Option<String>,
}

/// Follows the jobs until the server ends. Of several replicas the one that leads does; the others show what it finds.
pub async fn follow(follower: Follower) {
    let Some(shared) = follower.live.shared() else { return follow_on(&follower).await };
    let mut leads = shared.place().leads.clone();
    let leading = async {
        loop {
            // Whoever tells it ends with the server.
            if leads.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            // Whatever happened in between: another may have begun runs, so all is read anew.
            let ends = tokio::select! {
                () = follow_on(&follower) => true,
                changed = leads.changed() => changed.is_err(),
            };
            if ends {
                return;
            }
            tracing::warn!("this server leads no longer; another makes the runs of live jobs");
        }
    };
    tokio::join!(leading, shared.share_runs(&follower.live, &follower.service));
}

async fn follow_on(follower: &Follower) {
    let mut open: HashMap<String, OpenRun> = HashMap::new();
    let rows = loop {
        match follower.service.store.open_live_runs().await {
            Ok(rows) => break rows,
            // Without them a second run would begin for each job.
            Err(error) => tracing::error!(%error, "runs that went on could not be read; it is tried again"),
        }
        tokio::time::sleep(LOOK).await;
    };
    for row in rows {
        let tellings = follower.remembered(&row.run).await;
        let run = OpenRun { is_new: false, tellings, ..OpenRun::new(row.run.clone()) };
        // Of two for one job, as an older version may have left them, the newer goes on.
        if let Some(older) = open.insert(row.key.clone(), run) {
            follower.end_without(&older.id).await;
        }
        follower.live.hub.tick(&row.run, |_| {});
    }
    if let Some(webhook) = &follower.webhook {
        follower.tell_unsent(webhook).await;
    }
    follower.name_runs(&open).await;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let now = now().0;
        let jobs = jobs(&lock(&follower.live.state), now);
        let before: BTreeSet<String> = open.keys().cloned().collect();
        let keys: BTreeSet<String> = open.keys().chain(jobs.keys()).cloned().collect();
        for key in keys {
            let job = jobs.get(&key).cloned().unwrap_or(JobNow { gone: true, ..JobNow::default() });
            if !open.contains_key(&key) {
                if job.gone || !job.is_run() {
                    continue;
                }
                open.insert(key.clone(), OpenRun::new(new_id()));
            }
            let Some(run) = open.get_mut(&key) else { continue };
            if run.given_up {
                if job.gone {
                    open.remove(&key);
                }
                continue;
            }
            let is_still = job.standing().is_still();
            if run.standing.is_still() && !is_still {
                // Somebody speaks again: what is shown is of before.
                run.not_before = now;
            }
            let due = job.evidence > run.evidence && now >= run.not_before;
            if due || job.gone {
                follower.renew(&key, &job, run).await;
            }
            if !job.gone {
                follower.stand(run, job.standing());
            }
            // While nobody of it speaks, and until what they say then was looked at, what stands is the past.
            if !is_still && run.evidence >= job.evidence {
                follower.tell(run, now, job.filling).await;
            }
            if job.gone {
                open.remove(&key);
            }
        }
        let renamed = open.values_mut().filter_map(|run| std::mem::take(&mut run.is_renamed).then_some(())).count();
        if renamed > 0 || before != open.keys().cloned().collect() {
            follower.name_runs(&open).await;
        }
    }
}

impl OpenRun {
    fn new(id: String) -> Self {
        Self {
            id,
            evidence: 0,
            not_before: 0,
            tellings: Tellings::default(),
            is_new: true,
            title: None,
            is_renamed: false,
            given_up: false,
            standing: RunStanding::default(),
            found: None,
        }
    }
}

impl JobNow {
    /// One process on one card is no job whose ranks could differ. Who starts a probe wants to see it.
    fn is_run(&self) -> bool {
        self.ranks >= 2 || self.world_size >= 2 || !self.probes.is_empty()
    }

    fn standing(&self) -> RunStanding {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        RunStanding { nodes, filling: self.filling, silent: self.silent.clone() }
    }
}

/// All jobs, those that are gone but not forgotten included.
fn jobs(state: &State, now: i64) -> BTreeMap<String, JobNow> {
    let mut parts: BTreeMap<&str, Vec<(&String, &Node, &Job)>> = BTreeMap::new();
    for (name, node) in state.nodes() {
        for (key, part) in &node.jobs {
            parts.entry(key).or_default().push((name, node, part));
        }
    }
    let mut found: BTreeMap<String, JobNow> =
        parts.into_iter().map(|(key, parts)| (key.to_owned(), job_of(&parts, now))).collect();
    let mut on_their_own: BTreeMap<String, JobNow> = BTreeMap::new();
    for (source, probe) in state.probes() {
        if let Some(key) = key_of_probe(state, probe) {
            if let Some(job) = found.get_mut(&key) {
                job.probes.push(source.clone());
                job.evidence = job.evidence.max(probe.evidence);
            }
            continue;
        }
        let Some(name) = probe.master.as_ref().or(probe.job.as_ref()).or(probe.host.as_ref()) else { continue };
        let silence = now.saturating_sub(probe.heard);
        let gone = if probe.ended { silence > PROBE_GRACE } else { silence > LOST };
        if gone && silence > 2 * LOST || now.saturating_sub(probe.began) < PROBE_WAITS && !probe.ended {
            continue;
        }
        let job =
            on_their_own.entry(format!("probe:{name}")).or_insert_with(|| JobNow { gone: true, ..JobNow::default() });
        if job.gone && !gone {
            *job = JobNow::default();
        } else if gone && !job.gone {
            continue;
        }
        job.gone = gone;
        job.probes.push(source.clone());
        job.ranks += 1;
        job.world_size = job.world_size.max(probe.world_size.unwrap_or(0));
        job.began = if job.began == 0 { probe.began } else { job.began.min(probe.began) };
        job.evidence = job.evidence.max(probe.evidence);
    }
    for job in on_their_own.values_mut().filter(|job| !job.gone) {
        let heard = job.probes.iter().filter_map(|source| state.probes().get(source)).map(|probe| probe.heard).max();
        let silent = heard.filter(|heard| now.saturating_sub(*heard) > PROBE_SILENT);
        job.silent.extend(silent.map(|heard| Silence { node: None, since: UnixMicros(heard) }));
    }
    found.append(&mut on_their_own);
    found
}

/// A job out of its parts on the nodes. A part that ended before the others began is of an earlier job with the same
/// name; one that ended before the others did is still of this one.
///
/// Silence is no end: of a node of which nothing arrives nobody knows what its processes do. A job has ended when its
/// processes are gone from a list; where some nodes say so and others are silent for long, the job has lost those.
fn job_of(parts: &[(&String, &Node, &Job)], now: i64) -> JobNow {
    let some_are_gone = parts.iter().any(|(_, node, part)| is_gone(node, part));
    let goes_on = |(_, node, part): &&(&String, &Node, &Job)| {
        !(is_gone(node, part) || (some_are_gone && now.saturating_sub(node.heard) > LOST))
    };
    let gone = !parts.iter().any(|part| goes_on(&part));
    let last = parts.iter().map(|(_, _, part)| part.last).max().unwrap_or(0);
    let began = parts
        .iter()
        .filter(|part| if gone { part.2.last == last } else { goes_on(part) })
        .map(|(_, _, part)| part.first)
        .min()
        .unwrap_or(0);
    let mut job = JobNow { began, gone, ..JobNow::default() };
    for (name, node, part) in parts.iter().filter(|(_, _, part)| part.last.saturating_add(GRACE) >= began) {
        job.nodes.insert((*name).clone());
        job.ranks += part.ranks.len();
        job.world_size = job.world_size.max(part.world_size.unwrap_or(0));
        job.began = job.began.min(part.first);
        job.evidence = job.evidence.max(node.evidence);
        if !gone && !is_gone(node, part) && (node.ended || is_silent(node, now)) {
            job.silent.push(Silence { node: Some((*name).clone()), since: UnixMicros(node.heard) });
        }
    }
    job.filling = !gone && is_filling(parts.iter().filter(goes_on), &job, now);
    job
}

/// Whether the cards of a job still fill, one after the other, as they do when it begins: ranks are to come, or a card
/// other than the fullest rises. That one does not count: that it rises alone is what there is to tell.
fn is_filling<'a>(parts: impl Iterator<Item = &'a (&'a String, &'a Node, &'a Job)>, job: &JobNow, now: i64) -> bool {
    let policy = Policy::default();
    let mut is_young = false;
    let mut cards: Vec<(u64, bool)> = Vec::new();
    for (_, node, part) in parts {
        // The node's own clock, as far as it has gone on since it was heard.
        let here = node.time.saturating_add(now.saturating_sub(node.heard).max(0));
        let age = here.saturating_sub(part.first);
        if age >= FILLS_WITHIN {
            continue;
        }
        is_young = true;
        let lately = here.saturating_sub(FILLED_AFTER);
        if age < FILLED_AFTER {
            return true;
        }
        for device in part.subjects.iter().filter_map(|subject| node.device(*subject)) {
            let most = |from, to| device.course.between(from, to).map(|(_, used)| used).max().unwrap_or(0);
            let (before, now) = (most(part.first, lately), most(lately, here));
            cards.push((before.max(now), policy.differs(now, before)));
        }
    }
    let fullest = cards.iter().map(|(used, _)| *used).max();
    let others_rise = cards.iter().any(|(used, rises)| *rises && Some(*used) != fullest);
    let is_complete = u32::try_from(job.ranks).is_ok_and(|ranks| ranks >= job.world_size);
    is_young && (others_rise || !is_complete)
}

fn is_gone(node: &Node, job: &Job) -> bool {
    job.gone_since.is_some_and(|since| node.time.saturating_sub(since) >= GRACE)
}

/// The job of the nodes that a probe is a process of.
fn key_of_probe(state: &State, probe: &Probe) -> Option<String> {
    let on_host = || {
        let is_host =
            |name: &str, node: &Node| probe.host.as_deref().is_some_and(|host| host == name || host == node.info.host);
        state.nodes().iter().filter(move |(name, node)| is_host(name, node)).flat_map(|(_, node)| &node.jobs)
    };
    let by_pid = on_host().find(|(_, job)| probe.pid.is_some_and(|pid| job.ranks.values().any(|known| *known == pid)));
    let all = || state.nodes().values().flat_map(|node| &node.jobs);
    let by_name = || {
        all().find(|(key, _)| {
            let name = key.split_once(':').map_or(key.as_str(), |(_, name)| name);
            !name.is_empty() && (probe.master.as_deref() == Some(name) || probe.job.as_deref() == Some(name))
        })
    };
    // In a container the PID is another; then the only job on the host that has this rank is meant.
    let by_rank = || {
        let running = |(_, job): &(&String, &Job)| job.gone_since.is_none();
        let mut with_rank =
            on_host().filter(running).filter(|(_, job)| probe.rank.is_some_and(|rank| job.ranks.contains_key(&rank)));
        with_rank.next().filter(|_| with_rank.next().is_none())
    };
    by_pid.or_else(by_name).or_else(by_rank).map(|(key, _)| key.clone())
}

/// `Slurm job 4711 on node-a`.
fn title(key: &str, job: &JobNow) -> String {
    let what = match key.split_once(':') {
        Some(("slurm", id)) => format!("Slurm job {id}"),
        Some(("elastic", id)) => format!("torchrun {id}"),
        Some(("master", address)) => format!("Job at {address}"),
        Some(("mpi", id)) => format!("MPI job {id}"),
        Some(("node", _)) => "Job".to_owned(),
        Some(("probe", name)) => format!("Job {name}"),
        _ => format!("Job {key}"),
    };
    let place = match (job.nodes.len(), job.nodes.first()) {
        (1, Some(node)) => format!(" on {node}"),
        (0, _) => String::new(),
        (count, _) => format!(" on {count} nodes"),
    };
    format!("{what}{place}").chars().take(200).collect()
}

impl Follower {
    /// Diagnoses a run and keeps what came out; says what is new.
    async fn renew(&self, key: &str, job: &JobNow, run: &mut OpenRun) {
        let started = now().0;
        let (records, probes) = {
            let state = lock(&self.live.state);
            let part = |name: &String| record::of_job(name, state.nodes().get(name)?, key);
            let records: Vec<NodeRecord> = job.nodes.iter().filter_map(part).collect();
            (records, record::of_probes(&state, &job.probes))
        };
        let ended = job.gone.then_some(started);
        if records.is_empty() && probes.is_empty() {
            // Its node was forgotten.
            if !run.is_new {
                self.end_without(&run.id).await;
            }
            return;
        }
        let texts = tokio::task::spawn_blocking(move || {
            let records = records.into_iter().map(|record| (record.file_name(), record.text()));
            records.chain(probes).collect::<Vec<_>>()
        });
        let Ok(texts) = texts.await else { return };
        let began = job.began.min(started);
        let begin = run.is_new.then(|| {
            let info = RunInfo { id: run.id.clone(), title: title(key, job), created_at: UnixMicros(started) };
            (info, LiveStep::Begin { key: key.to_owned(), started: began })
        });
        let kept = if self.live.shared().is_some() {
            // To its end, also if this replica leads no longer: what is half kept would have to be cleared up.
            let (service, id) = (Arc::clone(&self.service), run.id.clone());
            to_the_end(async move { service.keep_live_run(&id, begin, texts, ended).await }).await
        } else {
            self.service.keep_live_run(&run.id, begin, texts, ended).await
        };
        match kept {
            Ok(report) => {
                run.is_new = false;
                run.evidence = job.evidence;
                let found = tellings::accusation(&report.diagnosis);
                if run.found != found {
                    (run.found, run.is_renamed) = (found, true);
                }
                self.retitle(run, &report, title(key, job)).await;
                self.say(run, &report, ended.is_some()).await;
            }
            Err(problem) if problem.kind() == ProblemKind::NotFound => {
                tracing::info!(run = run.id, "a run whose job goes on was deleted; the job is left alone");
                run.given_up = true;
            }
            Err(problem) => not_kept(run, &problem),
        }
        let finished = now().0;
        let rest = SHARE.saturating_mul(finished.saturating_sub(started)).clamp(DIAGNOSE_EVERY, AT_MOST);
        run.not_before = finished.saturating_add(rest);
    }

    /// Nodes join a job one after the other. A title that somebody gave stays.
    async fn retitle(&self, run: &mut OpenRun, report: &Report, title: String) {
        let is_ours = run.title.as_ref().is_some_and(|given| *given == report.run.title);
        if is_ours && title != report.run.title {
            match self.service.store.rename_run(&run.id, &title).await {
                Ok(()) => run.is_renamed = true,
                Err(error) => tracing::warn!(%error, run = run.id, "the title of a run could not be renewed"),
            }
        }
        run.title = Some(title);
    }

    /// Tells browsers when nodes of a run fall silent, or speak again.
    fn stand(&self, run: &mut OpenRun, standing: RunStanding) {
        if run.is_new || run.standing == standing {
            return;
        }
        run.standing = standing.clone();
        self.live.hub.tick(&run.id, |tick| {
            tick.word = rankscope_app::run_word(&standing);
            tick.standing = standing;
        });
    }

    /// Shows browsers how the run stands, and takes note of what is to be told.
    async fn say(&self, run: &mut OpenRun, report: &Report, has_ended: bool) {
        let at = report.diagnosed_at.0;
        let found = tellings::found_in(&report.diagnosis);
        let shown = run.tellings.take(found, at);
        self.live.hub.tick(&run.id, |tick| {
            (tick.version, tick.diagnosed_at) = (report.version, at);
            tick.found.clone_from(&run.found);
            for notice in &mut tick.notices {
                if let Some((_, stands)) = shown.iter().find(|(number, _)| *number == notice.number) {
                    // The first moment at which it stood no longer.
                    notice.ended = if *stands { None } else { notice.ended.or(Some(at)) };
                }
            }
        });
        if has_ended {
            // What stands at the end will not pass.
            self.tell(run, i64::MAX, false).await;
            self.live.hub.tick(&run.id, |tick| tick.ended = true);
        }
    }

    /// Tells what has stood for long enough.
    async fn tell(&self, run: &mut OpenRun, now: i64, filling: bool) {
        for Ripe { kind, number, claim, since, text } in run.tellings.ripe(now, filling) {
            let Some(name) = kind.outside() else {
                let mut shown = 0;
                self.live.hub.tick(&run.id, |tick| {
                    shown = tick.notices.last().map_or(1, |notice| notice.number + 1);
                    tick.notices.push(super::Notice { number: shown, at: since, text, ended: None });
                });
                run.tellings.shown_as(&kind, shown);
                continue;
            };
            let name = if number > 1 { format!("{name}/{number}") } else { name.to_owned() };
            // Plain texts and numbers: writing them as JSON cannot fail.
            let claim = serde_json::to_string(&claim).unwrap_or_default();
            let event = LiveEvent { run: run.id.clone(), kind: name, text, claim };
            match self.service.store.remember_event(&event).await {
                Ok(true) => {
                    tracing::info!(run = event.run, kind = event.kind, text = event.text, "found while the job runs");
                    if let Some(webhook) = self.webhook.clone() {
                        tokio::spawn(webhook.tell(Arc::clone(&self.service), event));
                    }
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "an event could not be remembered, so it is not told"),
            }
        }
    }

    /// What was told of a run before this server began.
    async fn remembered(&self, run: &str) -> Tellings {
        let mut tellings = Tellings::default();
        match self.service.store.told_events(run).await {
            Ok(events) => {
                for event in events {
                    if let Some(kind) = Kind::of_outside(&event.kind) {
                        tellings.remember(kind, serde_json::from_str(&event.claim).unwrap_or_default());
                    }
                }
            }
            Err(error) => tracing::warn!(%error, run, "what was told of a run could not be read"),
        }
        tellings
    }

    async fn tell_unsent(&self, webhook: &Webhook) {
        match self.service.store.unsent_events(now().0 - TELL_WITHIN).await {
            Ok(events) => {
                for event in events {
                    tokio::spawn(webhook.clone().tell(Arc::clone(&self.service), event));
                }
            }
            Err(error) => tracing::warn!(%error, "events that were not sent could not be read"),
        }
    }

    async fn end_without(&self, run: &str) {
        if let Err(error) = self.service.store.end_live_run(run, now().0).await {
            tracing::warn!(%error, run, "the end of a run could not be kept");
        }
        self.live.hub.tick(run, |tick| tick.ended = true);
    }

    /// Lets the nodes' pages lead to the runs.
    async fn name_runs(&self, open: &HashMap<String, OpenRun>) {
        let mut named = HashMap::new();
        for (key, run) in open.iter().filter(|(_, run)| !run.given_up && !run.is_new) {
            if let Ok(row) = self.service.store.run(&run.id).await {
                let found = run.found.clone();
                named.insert(key.clone(), LiveRunRef { id: run.id.clone(), title: row.run.title, found, ended: None });
            }
        }
        let deleted = open.values().filter(|run| run.given_up).map(|run| run.id.clone()).collect();
        self.live.name_runs(named, &deleted);
    }
}

impl Live {
    /// The run of each job, by the job's key: lets the nodes' pages lead there. What is named no more has ended, and is
    /// still led to while its job is remembered; unless it is `deleted`.
    pub(super) fn name_runs(&self, mut named: HashMap<String, LiveRunRef>, deleted: &BTreeSet<String>) {
        let remembered: BTreeSet<String> =
            lock(&self.state).nodes().values().flat_map(|node| node.jobs.keys().cloned()).collect();
        let changed = {
            let mut known = lock(&self.runs);
            for (key, old) in known.iter().filter(|(key, old)| remembered.contains(*key) && !deleted.contains(&old.id))
            {
                let ended = old.ended.or(Some(now()));
                named.entry(key.clone()).or_insert_with(|| LiveRunRef { ended, ..old.clone() });
            }
            let changed: BTreeSet<String> =
                named.keys().chain(known.keys()).filter(|key| named.get(*key) != known.get(*key)).cloned().collect();
            *known = named;
            changed
        };
        if changed.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        let nodes: Vec<String> = state
            .nodes()
            .iter()
            .filter(|(_, node)| node.jobs.keys().any(|key| changed.contains(key)))
            .map(|(name, _)| name.clone())
            .collect();
        for node in nodes {
            state.touch(&node);
        }
    }
}

fn not_kept(run: &OpenRun, problem: &Problem) {
    tracing::error!(
        run = run.id,
        detail = problem.detail(),
        "the diagnosis of a run that goes on was not kept; it is tried again"
    );
}

#[cfg(test)]
mod tests {
    use super::super::{
        state::Origin,
        testing::{device, node, processes, rank_process},
    };
    use super::*;
    use rankscope_model::{LiveLine, LiveProcess, LiveRecord};

    const S: i64 = 1_000_000;

    fn apply(state: &mut State, name: &str, at: i64, records: Vec<LiveRecord>) {
        let lines: Vec<LiveLine> =
            records.into_iter().map(|record| LiveLine { seq: 0, t: UnixMicros(at), record }).collect();
        state.apply(Origin { source: name, node: name, received: at }, &lines);
    }

    fn ranks(from: u32, job: &str) -> Vec<LiveProcess> {
        (0..2).map(|n| rank_process(n, 100 + n, from + n, job)).collect()
    }

    fn say(state: &mut State, source: &str, at: i64, lines: &[&str]) {
        let origin = Origin { source, node: "", received: at };
        state.apply_probe(origin, None, lines.iter().copied());
    }

    #[test]
    fn one_job_on_two_nodes_is_one_run_and_ends_with_the_last_of_its_processes() {
        let mut state = State::default();
        for name in ["a", "b"] {
            let list = ranks(if name == "a" { 0 } else { 2 }, "slurm:1");
            apply(&mut state, name, S, vec![node(&[device(0), device(1)]), processes(list)]);
        }
        let found = jobs(&state, S);
        let job = &found["slurm:1"];
        assert_eq!((found.len(), job.nodes.len(), job.ranks, job.gone), (1, 2, 4, false));
        assert_eq!(title("slurm:1", job), "Slurm job 1 on 2 nodes");

        apply(&mut state, "a", 2 * S, vec![processes(vec![])]);
        apply(&mut state, "a", 2 * S + GRACE, vec![processes(vec![])]);
        let job = &jobs(&state, 2 * S + GRACE)["slurm:1"];
        assert_eq!((job.gone, job.nodes.len()), (false, 2), "what is kept is of both");
        apply(&mut state, "b", 2 * S, vec![processes(vec![])]);
        apply(&mut state, "b", 2 * S + GRACE, vec![processes(vec![])]);
        let job = &jobs(&state, 2 * S + GRACE)["slurm:1"];
        assert_eq!((job.gone, job.nodes.len()), (true, 2));

        // The same name again, much later and on one node.
        let later = 1000 * S;
        apply(&mut state, "b", later, vec![processes(ranks(0, "slurm:1"))]);
        let job = &jobs(&state, later)["slurm:1"];
        assert_eq!((job.gone, job.nodes.len(), job.began), (false, 1, later));
    }

    #[test]
    fn a_node_that_falls_silent_is_named_and_ends_no_job() {
        let mut state = State::default();
        apply(&mut state, "a", S, vec![processes(ranks(0, "j"))]);
        assert!(jobs(&state, 2 * S)["j"].silent.is_empty());
        let silence = |since| Silence { node: Some("a".into()), since: UnixMicros(since) };
        for later in [15 * S, LOST + 2 * S, 86_400 * S] {
            let job = &jobs(&state, later)["j"];
            assert_eq!((job.gone, job.silent.as_slice()), (false, &[silence(S)][..]), "{later}");
        }
        // An agent that ended in order says nothing more from then on.
        apply(&mut state, "a", 20 * S, vec![processes(ranks(0, "j"))]);
        assert!(jobs(&state, 20 * S)["j"].silent.is_empty());
        apply(&mut state, "a", 21 * S, vec![LiveRecord::End]);
        assert_eq!(jobs(&state, 21 * S)["j"].silent, [silence(21 * S)]);
        // What it says when it is back decides.
        apply(&mut state, "a", 90_000 * S, vec![processes(vec![])]);
        apply(&mut state, "a", 90_000 * S + GRACE, vec![processes(vec![])]);
        assert!(jobs(&state, 90_000 * S + GRACE)["j"].gone);
    }

    #[test]
    fn a_job_fills_while_cards_beside_the_fullest_rise_and_not_for_ever() {
        use super::super::testing::memory;
        const G: u64 = 1 << 30;
        let fill = |used: &dyn Fn(u64, u64) -> u64, world_size: u32, until: i64| {
            let mut state = State::default();
            let mut list = ranks(0, "j");
            list.extend([rank_process(2, 102, 2, "j")]);
            for process in &mut list {
                process.rank.as_mut().unwrap().world_size = Some(world_size);
            }
            apply(&mut state, "a", S, vec![node(&[device(0), device(1), device(2)]), processes(list.clone())]);
            for second in 1..=u64::try_from(until).unwrap() {
                let figures: Vec<[u64; 1]> = (0..3).map(|card| [used(card, second)]).collect();
                let columns: Vec<(u32, &[u64])> = (0..).zip(figures.iter().map(|one| &one[..])).collect();
                let at = i64::try_from(second).unwrap() * S;
                apply(&mut state, "a", at, vec![memory(&columns), processes(list.clone())]);
            }
            jobs(&state, until * S)["j"].filling
        };
        // One card after the other, twenty seconds each.
        let in_turns = |card: u64, second: u64| (second.saturating_sub(card * 20).min(20) + 1) * G;
        assert!(fill(&in_turns, 3, 5) && fill(&in_turns, 3, 45));
        assert!(!fill(&in_turns, 3, 75), "all are full");
        let one_grows = |card: u64, second: u64| if card == 1 { second * G } else { 5 * G };
        assert!(!fill(&one_grows, 3, 40), "one alone is what there is to tell");
        let waves = |card: u64, second: u64| (20 + 5 * ((second + card) % 4)) * G;
        assert!(!fill(&waves, 3, 30));
        assert!(fill(&waves, 8, 30), "ranks are to come");
        assert!(!fill(&waves, 8, 185), "but they are not waited for without end");
    }

    #[test]
    fn a_job_whose_speaking_nodes_have_no_process_any_more_has_ended() {
        let mut state = State::default();
        for name in ["a", "b"] {
            apply(&mut state, name, S, vec![processes(ranks(if name == "a" { 0 } else { 2 }, "j"))]);
        }
        apply(&mut state, "a", 2 * S, vec![processes(vec![])]);
        let later = 2 * S + LOST;
        apply(&mut state, "a", later, vec![processes(vec![])]);
        assert_eq!(jobs(&state, later - S)["j"].silent.len(), 1, "b may still be at it");
        assert!(!jobs(&state, later - S)["j"].gone);
        assert!(jobs(&state, later + S)["j"].gone);
    }

    #[test]
    fn probes_join_the_job_of_their_process_or_make_one_of_their_own() {
        let mut state = State::default();
        apply(&mut state, "a", S, vec![node(&[device(0)]), processes(ranks(0, "master:10.0.0.1:29500"))]);
        let start = |host: &str, pid: u32, more: &str| {
            format!(r#"{{"type":"start","seq":0,"t":1,"rank":1,"host":"{host}","pid":{pid}{more}}}"#)
        };
        say(&mut state, "by-pid", S, &[&start("a", 101, "")]);
        say(&mut state, "by-master", S, &[&start("other", 5, r#","master":"10.0.0.1:29500""#)]);
        say(&mut state, "by-rank", S, &[&start("a", 7, "")]);
        say(&mut state, "alone", S, &[&start("z", 7, r#","job":"mine""#)]);
        let found = jobs(&state, 2 * S);
        assert_eq!(found["master:10.0.0.1:29500"].probes, ["by-master", "by-pid", "by-rank"]);
        assert_eq!(found.len(), 1, "its agent may still come");
        let found = jobs(&state, S + PROBE_WAITS);
        assert!(found["probe:mine"].is_run() && !found["probe:mine"].gone);
        say(&mut state, "alone", S, &[r#"{"type":"end","seq":1,"t":2}"#]);
        assert!(jobs(&state, S + PROBE_WAITS)["probe:mine"].gone);
    }
}
