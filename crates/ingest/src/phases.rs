//! What a job was doing, from the lines in which programs say that they begin to train, evaluate, save or load.
//!
//! One mark for each time a writer changes its phase; progress lines of the same phase are not repeated. Knows no
//! memory figure and no rule.

use crate::context::ReadContext;
use crate::lines::{Line, RankFrom, Trust, counted};
use crate::rank_name::{rank_before, rank_from_name};
use rankscope_model::{Phase, PhaseMark, Rank, Step};
use regex::{Regex, RegexSet};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Words of which every phrase below has one: most lines of a log are told from these alone.
static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let words = "checkpoint|evaluat|validat|inference|resum|restor|train|sampl|saving|loading|state_dict|sanity|epoch|loss|snapshot|^test:|^test |distributed|images  instances|predict";
    Regex::new(&format!("(?i){words}")).ok()
});

/// Where a phrase must stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// At the beginning of the line's own text, behind prefixes and logger names.
    Begins,
    /// Anywhere in the line.
    Inside,
}

/// A phrase in lower case, where it stands, and the phase that begins with it.
type Phrase = (Where, &'static str, Phase);

/// First match wins. Phrases of: Transformers, Accelerate, Lightning, DeepSpeed, Megatron-LM, torchtitan, MMEngine and
/// MMCV, detectron2, fairseq, diffusers, Ultralytics, DETR and its many children, ImageNet examples, timm.
const PHRASES: &[Phrase] = &[
    (Where::Inside, "running evaluation *****", Phase::Eval),
    (Where::Inside, "running prediction *****", Phase::Eval),
    (Where::Inside, "running training *****", Phase::Train),
    // Shards of pretrained weights while the model is built.
    (Where::Begins, "loading checkpoint shards", Phase::Init),
    (Where::Inside, "loading pretrained", Phase::Init),
    (Where::Inside, "initializing distributed", Phase::Init),
    (Where::Inside, "distributed init (rank", Phase::Init),
    (Where::Inside, "saving model checkpoint", Phase::Save),
    (Where::Inside, "saving checkpoint", Phase::Save),
    (Where::Inside, "saving the checkpoint", Phase::Save),
    (Where::Inside, "saving a full checkpoint", Phase::Save),
    (Where::Inside, "preparing to save checkpoint", Phase::Save),
    (Where::Inside, "begin save checkpoint", Phase::Save),
    (Where::Inside, "saving current state to", Phase::Save),
    (Where::Inside, "saving model to", Phase::Save),
    (Where::Inside, "saving model state", Phase::Save),
    (Where::Inside, "saving fp32 model", Phase::Save),
    (Where::Inside, "[torch] saving", Phase::Save),
    (Where::Begins, "saving state_dict", Phase::Save),
    (Where::Inside, "snapshot written to", Phase::Save),
    (Where::Inside, "snapshot saved at", Phase::Save),
    (Where::Begins, "saving the model", Phase::Save),
    (Where::Begins, "saving model", Phase::Save),
    (Where::Inside, "saving training state", Phase::Save),
    (Where::Inside, "continuing training from checkpoint", Phase::Resume),
    (Where::Inside, "resuming from", Phase::Resume),
    (Where::Inside, "resuming training", Phase::Resume),
    (Where::Inside, "resume from", Phase::Resume),
    (Where::Inside, "resumed from", Phase::Resume),
    (Where::Inside, "resumed epoch", Phase::Resume),
    (Where::Inside, "restoring states from", Phase::Resume),
    (Where::Inside, "restored all states", Phase::Resume),
    (Where::Inside, "loading states from", Phase::Resume),
    (Where::Inside, "loading checkpoint", Phase::Resume),
    (Where::Inside, "loading the checkpoint", Phase::Resume),
    (Where::Inside, "load checkpoint from", Phase::Resume),
    (Where::Inside, "loads checkpoint by", Phase::Resume),
    (Where::Inside, "loaded checkpoint", Phase::Resume),
    (Where::Inside, "loaded state_dict", Phase::Resume),
    (Where::Inside, "[torch] loading", Phase::Resume),
    (Where::Inside, "[checkpointer] loading from", Phase::Resume),
    (Where::Inside, "[detectioncheckpointer] loading from", Phase::Resume),
    (Where::Inside, "validation sanity check", Phase::Eval),
    (Where::Inside, "sanity checking", Phase::Eval),
    (Where::Begins, "validation dataloader", Phase::Eval),
    (Where::Begins, "testing dataloader", Phase::Eval),
    (Where::Begins, "predicting dataloader", Phase::Eval),
    (Where::Begins, "validating:", Phase::Eval),
    (Where::Begins, "validation:", Phase::Eval),
    (Where::Inside, "begin validation on", Phase::Eval),
    (Where::Inside, "running validation", Phase::Eval),
    (Where::Begins, "evaluating", Phase::Eval),
    (Where::Inside, "evaluating on", Phase::Eval),
    (Where::Inside, "evaluating iter", Phase::Eval),
    (Where::Inside, "starting evaluation", Phase::Eval),
    (Where::Inside, "start evaluation", Phase::Eval),
    (Where::Inside, "start evaluating", Phase::Eval),
    (Where::Inside, "start validation", Phase::Eval),
    (Where::Inside, "start inference on", Phase::Eval),
    (Where::Inside, "validate step:", Phase::Eval),
    (Where::Inside, "epoch(val)", Phase::Eval),
    (Where::Inside, "epoch(test)", Phase::Eval),
    (Where::Begins, "test:", Phase::Eval),
    (Where::Begins, "test: [", Phase::Eval),
    (Where::Inside, "class     images  instances", Phase::Eval),
    (Where::Inside, "ddim sampling with", Phase::Eval),
    (Where::Inside, "generating samples", Phase::Eval),
    (Where::Inside, "training starts at step", Phase::Train),
    (Where::Inside, "begin training epoch", Phase::Train),
    (Where::Inside, "starting training", Phase::Train),
    (Where::Begins, "start training", Phase::Train),
    (Where::Inside, "start iterating over samples", Phase::Train),
    (Where::Inside, "epoch(train)", Phase::Train),
    (Where::Begins, "training dataloader", Phase::Train),
];

/// Which phrases a line holds, told in one pass: seventy searches, one after another, were a third of the time that a
/// job's log took.
static HELD: LazyLock<Option<RegexSet>> =
    LazyLock::new(|| RegexSet::new(PHRASES.iter().map(|(_, phrase, _)| regex::escape(phrase))).ok());

/// Longest beginning of a line that is looked at.
const LOOKED_AT: usize = 600;
/// Writers whose last phase is remembered.
const MAX_WRITERS: usize = 4096;

/// Who wrote a line, as far as its prefix tells.
type Writer = (Option<u32>, Option<u32>);

/// Gathers marks line by line.
pub(crate) struct PhaseReader<'c> {
    ctx: &'c ReadContext<'c>,
    file_rank: Option<Rank>,
    found: Vec<(PhaseMark, Option<RankFrom>)>,
    last: BTreeMap<Writer, (Phase, Option<Step>)>,
    dropped: u64,
}

impl<'c> PhaseReader<'c> {
    pub(crate) fn new(ctx: &'c ReadContext<'c>) -> Self {
        let file_rank = rank_from_name(ctx.name);
        Self { ctx, file_rank, found: Vec::new(), last: BTreeMap::new(), dropped: 0 }
    }

    pub(crate) fn line(&mut self, line: &Line<'_>) {
        let Some((phase, step, before)) = phase_of(line.body) else { return };
        let writer = line.label.writer();
        let known = self.last.get(&writer).copied();
        // Progress of a phase is no new mark; a second save of another step is.
        let again = |(last, at): (Phase, Option<Step>)| {
            last == phase && (step.is_none() || step == at || phase == Phase::Train || phase == Phase::Eval)
        };
        if known.is_some_and(again) {
            return;
        }
        if known.is_some() || self.last.len() < MAX_WRITERS {
            self.last.insert(writer, (phase, step));
        }
        if self.found.len() >= self.ctx.limits.max_phase_marks {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let named = rank_before(before).map(|rank| (rank, RankFrom::Text)).or(line.label.rank);
        let named = named.or(self.file_rank.map(|rank| (rank, RankFrom::FileName)));
        let rank = named.map(|(rank, _)| rank);
        let mark = PhaseMark { at: line.provenance(self.ctx.artifact), rank, phase, step };
        self.found.push((mark, named.map(|(_, from)| from)));
    }

    /// The marks in the order of the file, and a word on what was left out.
    pub(crate) fn finish(self, trust: &Trust) -> (Vec<PhaseMark>, Option<String>) {
        let file_rank = self.file_rank;
        let marks = self.found.into_iter().map(|(mut mark, from)| {
            if from.is_some_and(|from| !trust.accepts(from)) {
                mark.rank = file_rank;
            }
            mark
        });
        let limit = self.ctx.limits.max_phase_marks;
        let changes = counted(self.dropped, "change of phase was", "changes of phase were");
        let warning = (self.dropped > 0).then(|| format!("{changes} left out beyond the limit of {limit}"));
        (marks.collect(), warning)
    }
}

/// The phase that a line begins, its step, and the text in front of the phrase.
fn phase_of(body: &str) -> Option<(Phase, Option<Step>, &str)> {
    let end = body.char_indices().map(|(at, _)| at).find(|at| *at >= LOOKED_AT).unwrap_or(body.len());
    let body = body.get(..end)?;
    if !WORDS.as_ref()?.is_match(body) {
        return None;
    }
    let lower = body.to_ascii_lowercase();
    let held = HELD.as_ref()?.matches(&lower);
    let said = held.iter().filter_map(|number| PHRASES.get(number)).find_map(|(place, phrase, phase)| {
        let at = match place {
            Where::Begins => {
                beginnings(&lower).into_iter().find(|at| lower.get(*at..).is_some_and(|t| t.starts_with(phrase)))
            }
            Where::Inside => lower.find(phrase),
        };
        Some((at?, *phase))
    });
    let Some((at, phase)) = said else { return progress(&lower).map(|(phase, step)| (phase, step, "")) };
    // "checkpoint saving", "when resuming from": prose and settings are no event.
    let before = body.get(..at)?;
    let is_prose = before.trim_end().ends_with(|c: char| c.is_ascii_lowercase()) && !ends_in_event_word(before);
    if is_prose {
        return None;
    }
    let step = step_in(lower.get(at..)?).or_else(|| step_in(lower.get(..at)?));
    Some((phase, step, before))
}

static EPOCH: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\bepoch \d+:? (training|evaluation|validation|testing)\b").ok());

/// Lines without a phrase that show what is going on: `epoch 3 evaluation`; a loss with its step or epoch, which is
/// training unless a word says otherwise.
fn progress(lower: &str) -> Option<(Phase, Option<Step>)> {
    if let Some(captures) = EPOCH.as_ref()?.captures(lower) {
        let trains = captures.get(1).is_some_and(|word| word.as_str().starts_with("train"));
        return Some((if trains { Phase::Train } else { Phase::Eval }, None));
    }
    let counts = ["step", "iter", "epoch"].iter().any(|word| lower.contains(word));
    let other = ["val", "eval", "test", "best", "nan", "average"].iter().any(|word| lower.contains(word));
    let is_step = lower.contains("loss") && counts && !other && lower.bytes().any(|b| b.is_ascii_digit());
    is_step.then(|| (Phase::Train, step_in(lower)))
}

/// Words in front of a phrase that leave it an event.
fn ends_in_event_word(before: &str) -> bool {
    let word = before.trim_end().rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
    let word = word.unwrap_or_default().to_ascii_lowercase();
    // `global rank 0 is loading checkpoint`, `Auto resumed from`, `INFO - begin`, `root saving checkpoint`
    matches!(
        word.as_str(),
        "is" | "now"
            | "running"
            | "auto"
            | "info"
            | "root"
            | "main"
            | "rank"
            | "successfully"
            | "rerun"
            | "then"
            | "titan"
    ) || before.ends_with("] ")
}

/// Where the program's own text may begin: behind bullets, and behind the names of loggers and files that stand in
/// front: `2021-01-01 | INFO | fairseq.trainer | `, `d2.evaluation.evaluator INFO: `, `[INFO|trainer.py:1200] `.
fn beginnings(lower: &str) -> Vec<usize> {
    const BULLETS: [char; 8] = [' ', '>', '*', '#', '|', '-', '=', '\t'];
    let mut text = lower.trim_start_matches(BULLETS);
    let mut found = vec![lower.len().saturating_sub(text.len())];
    for sign in ["info: ", "info - ", "| info | ", "info:root:", "info:", "] ", "| "] {
        // A name has no gaps; a progress bar does.
        if let Some((head, rest)) = text.split_once(sign)
            && head.len() <= 120
            && !head.contains("  ")
        {
            text = rest.trim_start_matches(BULLETS);
            found.push(lower.len().saturating_sub(text.len()));
        }
    }
    found
}

static STEP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?:iteration|global_step|step)s?[ :=#-]{0,4}(\d{1,12})|checkpoint-(\d{1,12})|(?:@|after) (\d{1,12}) updates",
    )
    .ok()
});

fn step_in(text: &str) -> Option<Step> {
    let captures = STEP.as_ref()?.captures(text)?;
    let digits = captures.iter().skip(1).flatten().next()?;
    digits.as_str().parse().ok().map(Step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Limits;
    use crate::sniff::TextEncoding;
    use crate::text;
    use rankscope_model::ArtifactId;

    fn marks(text: &str) -> Vec<PhaseMark> {
        let limits = Limits::default();
        let ctx = ReadContext { artifact: ArtifactId(0), name: "job.log", limits: &limits };
        text::read_with(&mut text.as_bytes(), TextEncoding::Utf8, &ctx, text::Readers::ALL).unwrap().phases
    }

    fn phase(line: &str) -> Option<(Phase, Option<u64>)> {
        phase_of(line).map(|(phase, step, _)| (phase, step.map(|s| s.0)))
    }

    #[test]
    fn phrases_of_many_programs() {
        use Phase::{Eval, Init, Resume, Save, Train};
        for (line, expected) in [
            // Transformers
            ("***** Running training *****", (Train, None)),
            ("***** Running Evaluation *****", (Eval, None)),
            ("[INFO|trainer.py:3376] 2024-01-01 10:00:00,000 >> ***** Running Prediction *****", (Eval, None)),
            ("[INFO|trainer.py:2936] Saving model checkpoint to out/checkpoint-500", (Save, Some(500))),
            ("  Continuing training from checkpoint, will skip to saved global_step", (Resume, None)),
            ("Loading checkpoint shards:  50%|#####     | 1/2 [00:03<00:03]", (Init, None)),
            // Accelerate
            ("[INFO] Saving current state to out/step_20", (Save, None)),
            ("Loading states from out/step_20", (Resume, None)),
            // Lightning
            ("Restoring states from the checkpoint path at a/epoch=1-step=200.ckpt", (Resume, Some(200))),
            ("Validation DataLoader 0:  10%|#         | 1/10", (Eval, None)),
            ("Sanity Checking: 0it [00:00, ?it/s]", (Eval, None)),
            (
                "Epoch 0, global step 100: 'val/loss' reached 0.1 (best 0.1), saving model to '/out/a.ckpt' as top 1",
                (Save, Some(100)),
            ),
            // DeepSpeed
            (
                "[INFO] [logging.py:96:log_dist] [Rank 0] Saving model checkpoint: out/mp_rank_00_model_states.pt",
                (Save, None),
            ),
            ("[INFO] [torch_checkpoint_engine.py:21:save] [Torch] Saving out/zero_pp_rank_0.pt...", (Save, None)),
            ("[INFO] [torch_checkpoint_engine.py:27:load] [Torch] Loading checkpoint from out/a.pt...", (Resume, None)),
            // Megatron-LM
            ("saving checkpoint at iteration    1000 to /out in torch format", (Save, Some(1000))),
            (" loading checkpoint from /out at iteration 1000", (Resume, Some(1000))),
            ("Evaluating on 640 samples", (Eval, None)),
            ("Evaluating iter 3/10", (Eval, None)),
            ("global rank 0 is loading checkpoint /out/mp_rank_00/model_optim_rng.pt", (Resume, None)),
            // torchtitan
            ("[titan] 2024-06-01 10:00:00,000 - root - INFO - Training starts at step 1", (Train, Some(1))),
            (
                "[titan] 2024-06-01 10:00:00,000 - root - INFO - Saving the checkpoint (or staging if async is enabled).",
                (Save, None),
            ),
            ("[titan] root - INFO - Loading the checkpoint at step 500", (Resume, Some(500))),
            // MMEngine, MMCV
            ("2023/01/01 10:00:00 - mmengine - INFO - Saving checkpoint at 10 epochs", (Save, None)),
            ("INFO - Epoch(val) [1][100/500]    eta: 0:00:10  time: 0.1", (Eval, None)),
            ("mmdet - INFO - load checkpoint from local path: a.pth", (Resume, None)),
            // detectron2
            ("d2.evaluation.evaluator INFO: Start inference on 1000 batches", (Eval, None)),
            (
                "[09/05 15:30:14 fvcore.common.checkpoint]: Saving checkpoint to ./output/model_0004999.pth",
                (Save, None),
            ),
            ("[09/05 15:30:14 fvcore.common.checkpoint]: [Checkpointer] Loading from a.pkl ...", (Resume, None)),
            ("[d2.engine.train_loop]: Starting training from iteration 0", (Train, Some(0))),
            // fairseq
            (
                "2022-11-09 12:41:47 | INFO | fairseq.checkpoint_utils | Preparing to save checkpoint for epoch 1 @ 10 updates",
                (Save, Some(10)),
            ),
            ("2022-11-09 12:41:48 | INFO | fairseq_cli.train | begin validation on \"valid\" subset", (Eval, None)),
            ("2021-01-05 21:40:26 | INFO | fairseq.trainer | begin training epoch 15", (Train, None)),
            // others
            ("=> loading checkpoint 'model_best.pth.tar'", (Resume, None)),
            ("Test:  [   0/2478]  eta: 0:28:54  loss: 21.3  max mem: 6121", (Eval, None)),
            ("                 Class     Images  Instances      Box(P          R      mAP50", (Eval, None)),
            ("Starting training for 100 epochs...", (Train, None)),
            ("Running validation... ", (Eval, None)),
            ("| distributed init (rank 3): env://", (Init, None)),
            ("Running DDIM Sampling with 50 timesteps", (Eval, None)),
            ("epoch 3 evaluation", (Eval, None)),
            ("epoch 4 training", (Train, None)),
            ("epoch 0 | snapshot written to snapshot.pt", (Save, None)),
            ("[GPU1] epoch 0 | steps 118 | loss 5.9200", (Train, Some(118))),
            ("iter 10/20000 loss 2.5400 lr 2.5e-04", (Train, None)),
            ("{'loss': 1.2345, 'learning_rate': 5e-05, 'epoch': 0.12}", (Train, None)),
        ] {
            assert_eq!(phase(line), Some(expected), "{line}");
        }
    }

    #[test]
    fn prose_settings_and_figures_are_no_event() {
        for line in [
            "save_checkpoint_every: 100",
            "checkpoint saving takes long when resuming from a shared disk",
            "resume_from = None",
            "args: Namespace(resume='', eval=False)",
            "training loss 0.3",
            "Epoch 3 train loss 0.1 val loss 0.2",
            "evaluation_strategy=steps",
            "model trained and evaluated",
            "the latest: 4",
        ] {
            assert_eq!(phase(line), None, "{line}");
        }
    }

    #[test]
    fn marks_keep_rank_time_and_line_and_are_not_repeated() {
        let text = "2024-01-01 10:00:00,000 INFO ***** Running training *****\n[rank1]: Evaluating: 10%\n[rank1]: Evaluating: 20%\n[rank0]: Saving checkpoint at step 5\n[rank0]: Saving checkpoint at step 5\n[rank0]: Saving checkpoint at step 9\n";
        let seen: Vec<_> = marks(text).iter().map(|m| (m.rank.map(|r| r.0), m.phase, m.step.map(|s| s.0))).collect();
        assert_eq!(
            seen,
            [
                (None, Phase::Train, None),
                (Some(1), Phase::Eval, None),
                (Some(0), Phase::Save, Some(5)),
                (Some(0), Phase::Save, Some(9)),
            ]
        );
        assert_eq!(marks(text)[0].time().map(|t| t.0), Some(1_704_103_200_000_000));
    }
}
