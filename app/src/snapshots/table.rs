//! All ranks side by side by line of code: bytes per rank and the difference against the median. What only the rank
//! looked at has stands on top.

use super::over_time::line;
use super::subjects::{MomentOf, Sort, Subjects, Wanted};
use super::tree::frame_line;
use crate::icons;
use crate::islands::SiteTable;
use crate::words;
use leptos::prelude::*;
use rankscope_model::{Bytes, CallSite, Frame, lower_median};

/// Rows that are shown at first, and at most.
const FIRST_ROWS: usize = 40;
const MAX_ROWS: usize = 400;
/// More ranks than this have no column each.
const MAX_COLUMNS: usize = 8;
/// Stacks that are shown of one row.
const MAX_STACKS: usize = 2;
/// A list of call sites at least so long may have been cut.
const CUT_FROM: usize = 20;

/// One line of code on all ranks.
struct Row<'a> {
    frame: Option<&'a Frame>,
    /// Bytes and blocks per subject; `None` where its list has no such line.
    cells: Vec<Option<(u64, u64)>>,
    /// The largest stacks of this line, of any rank.
    stacks: Vec<&'a CallSite>,
    /// Bytes of the one looked at, less the median of all.
    difference: i128,
    /// Only the one looked at has it.
    only: bool,
}

impl Row<'_> {
    fn bytes(&self, at: usize) -> u64 {
        self.cells.get(at).copied().flatten().map_or(0, |cell| cell.0)
    }

    fn holds(&self, query: &str) -> bool {
        let holds =
            |frame: &Frame| frame.function.to_lowercase().contains(query) || frame.file.to_lowercase().contains(query);
        query.is_empty()
            || line(self.frame).to_lowercase().contains(query)
            || self.stacks.iter().any(|site| site.frames.iter().any(holds))
    }
}

/// The section.
pub fn section(run: &str, found: &Subjects<'_>, wanted: &Wanted) -> AnyView {
    let mut rows = rows(found);
    let all = rows.len();
    let query = wanted.query.to_lowercase();
    rows.retain(|row| row.holds(&query));
    sort(&mut rows, wanted.sort, found.picked);
    let matching = rows.len();
    rows.truncate(if wanted.all { MAX_ROWS } else { FIRST_ROWS });
    let more = (matching > rows.len() && !wanted.all).then(|| {
        view! { <p class="more-rows"><a class="button" href=format!("{}#sites", wanted.address(run, &[("all", "1")]))>{format!("Show all {matching} lines")}</a></p> }
    });
    // The island may only search and sort what is all there.
    let whole = all == rows.len();
    let body = if rows.is_empty() {
        let none = if all == 0 { "No call site was recorded for this moment." } else { "No line has these words." };
        view! { <p class="empty">{none}</p> }.into_any()
    } else {
        table(run, found, wanted, &rows, whole)
    };
    let form = search(run, wanted);
    view! {
        <section class="card" id="sites" aria-labelledby="sites-title">
            <h2 id="sites-title">"Ranks side by side" <span>{subtitle(found)}</span></h2>
            {moments(run, found, wanted)}
            <SiteTable>
                {form}
                {body}
            </SiteTable>
            {more}
        </section>
    }
    .into_any()
}

fn subtitle(found: &Subjects<'_>) -> String {
    let when = match found.moment {
        MomentOf::Peak => "requested bytes at each rank's own peak",
        MomentOf::End => "allocated bytes when the snapshot was taken",
        MomentOf::NeverFreed => "requested bytes allocated in the recording and never freed",
    };
    format!("{when}, by line of code; {} is compared", found.picked().label)
}

/// The choice of the moment; where not all ranks have a recording, why there is none.
fn moments(run: &str, found: &Subjects<'_>, wanted: &Wanted) -> AnyView {
    if !found.unrecorded.is_empty() {
        return view! { <p class="one-moment">{icons::warning()}<span>{one_moment(found)}</span></p> }.into_any();
    }
    let link = |moment: MomentOf, value: &str, words: &'static str| {
        let current = (wanted.moment == moment).then_some("true");
        let address = format!("{}#sites", wanted.address(run, &[("at", value)]));
        view! { <a href=address aria-current=current>{words}</a> }
    };
    view! {
        <nav class="choice" aria-label="Moment">
            {link(MomentOf::Peak, "", "at the peak")}
            {link(MomentOf::End, "end", "at the end")}
            {link(MomentOf::NeverFreed, "never_freed", "never freed")}
        </nav>
    }
    .into_any()
}

/// Why only the end can be compared, and what would change that.
fn one_moment(found: &Subjects<'_>) -> String {
    const NAMED: usize = 4;
    let without = found.unrecorded.len();
    let who = match found.unrecorded.get(..NAMED) {
        _ if without == found.all.len() && without == 1 => "This snapshot has".to_owned(),
        _ if without == found.all.len() => "These snapshots have".to_owned(),
        Some(named) if without > NAMED => format!("{} and {} more have", named.join(", "), without - NAMED),
        _ if without == 1 => format!("{} has", found.unrecorded.join(", ")),
        _ => format!("{} have", found.unrecorded.join(", ")),
    };
    let like = if found.all.len() > 1 { ": all are compared as they were when the snapshot was taken" } else { "" };
    format!(
        "{who} no recorded events, so no peak is known{like}. Call torch.cuda.memory._record_memory_history() on every \
         rank before the steps to compare peaks."
    )
}

fn search(run: &str, wanted: &Wanted) -> AnyView {
    let hidden = |name: &'static str, value: String| {
        (!value.is_empty()).then(|| view! { <input type="hidden" name=name value=value/> })
    };
    // What the address holds besides the words stays.
    let at = match wanted.moment {
        MomentOf::Peak => "",
        MomentOf::End => "end",
        MomentOf::NeverFreed => "never_freed",
    };
    let sort = match wanted.sort {
        Sort::Difference => "",
        Sort::Bytes => "bytes",
        Sort::Name => "name",
    };
    let clear = (!wanted.query.is_empty())
        .then(|| view! { <a href=format!("{}#sites", wanted.address(run, &[("q", "")]))>"Show all"</a> });
    view! {
        <form class="search" method="get" action=format!("/runs/{run}/snapshots#sites") role="search">
            <label class="visually-hidden" for="q">"Function or file"</label>
            <input id="q" type="search" name="q" value=wanted.query.clone() placeholder="Function or file"/>
            {hidden("rank", wanted.rank.clone().unwrap_or_default())}
            {hidden("at", at.to_owned())}
            {hidden("sort", sort.to_owned())}
            <button class="button" type="submit">"Search"</button>
            {clear}
        </form>
    }
    .into_any()
}

/// Sites of all ranks, summed by the user's own line.
fn rows<'a>(found: &Subjects<'a>) -> Vec<Row<'a>> {
    let count = found.all.len();
    let mut rows: Vec<Row<'a>> = Vec::new();
    for (at, subject) in found.all.iter().enumerate() {
        for site in subject.sites(found.moment).unwrap_or_default() {
            let frame = site.own_frame().or_else(|| site.frames.iter().find(|f| f.line > 0)).or(site.frames.first());
            let row = if let Some(known) = rows.iter().position(|row| row.frame == frame) {
                &mut rows[known]
            } else {
                rows.push(Row { frame, cells: vec![None; count], stacks: vec![], difference: 0, only: false });
                let last = rows.len() - 1;
                &mut rows[last]
            };
            let cell = row.cells[at].get_or_insert((0, 0));
            *cell = (cell.0.saturating_add(site.bytes.0), cell.1.saturating_add(site.blocks));
            if row.stacks.iter().all(|known| known.frames != site.frames) {
                row.stacks.push(site);
            }
        }
    }
    // What a cut list does not hold is smaller than its last entry, and may be there all the same.
    let floors: Vec<u64> = found
        .all
        .iter()
        .map(|subject| {
            let sites = subject.sites(found.moment).unwrap_or_default();
            sites.last().filter(|_| sites.len() >= CUT_FROM).map_or(0, |last| last.bytes.0)
        })
        .collect();
    for row in &mut rows {
        row.stacks.sort_by_key(|site| std::cmp::Reverse(site.bytes));
        // Of two the middle would be one of them: what is of interest is the other.
        let is_compared = |at: &usize| count != 2 || *at != found.picked;
        let values: Vec<u64> = (0..count).filter(is_compared).map(|at| row.bytes(at)).collect();
        row.difference = i128::from(row.bytes(found.picked)) - i128::from(lower_median(&values).unwrap_or(0));
        let own = row.bytes(found.picked);
        let absent = |at: usize| row.cells.get(at).copied().flatten().is_none() && own > floors[at];
        row.only = count > 1 && own > 0 && (0..count).filter(|at| *at != found.picked).all(absent);
    }
    rows
}

fn sort(rows: &mut [Row<'_>], by: Sort, picked: usize) {
    match by {
        Sort::Difference => rows.sort_by_key(|row| std::cmp::Reverse((row.only, row.difference, row.bytes(picked)))),
        Sort::Bytes => rows.sort_by_key(|row| std::cmp::Reverse(row.bytes(picked))),
        Sort::Name => rows.sort_by_key(|row| line(row.frame).to_lowercase()),
    }
}

fn table(run: &str, found: &Subjects<'_>, wanted: &Wanted, rows: &[Row<'_>], whole: bool) -> AnyView {
    let head = |by: Sort, key: &str, words: String| {
        let sorted = (wanted.sort == by).then_some(if by == Sort::Name { "ascending" } else { "descending" });
        let address = format!("{}#sites", wanted.address(run, &[("sort", key)]));
        view! { <th scope="col" aria-sort=sorted><a href=address data-sort=key.to_owned()>{words}</a></th> }
    };
    let picked = found.picked().label.clone();
    let each = found.all.len() <= MAX_COLUMNS;
    let columns: Vec<usize> = (0..found.all.len()).filter(|at| each && *at != found.picked).collect();
    let others = columns.iter().map(|at| view! { <th scope="col">{found.all[*at].label.clone()}</th> }).collect_view();
    let ranges = (!each)
        .then(|| view! { <th scope="col">"median"</th><th scope="col">"lowest"</th><th scope="col">"highest"</th> });
    let lines = rows.iter().map(|row| row_view(row, found, &columns, each)).collect_view();
    let from = if found.all.len() == 2 { "from the other" } else { "from the median" };
    view! {
        <div class="scroll" tabindex="0" role="region" aria-label="Lines of code by rank">
            <table class="sites" data-whole=whole.then_some("")>
                <thead>
                    <tr>
                        {head(Sort::Name, "name", "line of code".to_owned())}
                        {head(Sort::Difference, "", from.to_owned())}
                        {head(Sort::Bytes, "bytes", picked)}
                        {others}
                        {ranges}
                    </tr>
                </thead>
                <tbody>{lines}</tbody>
            </table>
        </div>
    }
    .into_any()
}

fn row_view(row: &Row<'_>, found: &Subjects<'_>, columns: &[usize], each: bool) -> AnyView {
    let cell = |at: usize| match row.cells.get(at).copied().flatten() {
        Some((bytes, blocks)) => {
            let title = format!(
                "{} bytes, {}",
                words::grouped(bytes),
                words::count(usize::try_from(blocks).unwrap_or(0), "block")
            );
            view! { <td title=title data-n=bytes.to_string()>{Bytes(bytes).to_string()}</td> }.into_any()
        }
        None => view! { <td class="dim">"\u{2013}"</td> }.into_any(),
    };
    let ranges = (!each).then(|| {
        let values: Vec<u64> = (0..found.all.len()).map(|at| row.bytes(at)).collect();
        let value = |n: Option<u64>| Bytes(n.unwrap_or(0)).to_string();
        let (lowest, highest) = (values.iter().min().copied(), values.iter().max().copied());
        view! { <td>{value(lower_median(&values))}</td><td>{value(lowest)}</td><td>{value(highest)}</td> }
    });
    let difference = match row.difference {
        0 => "0".to_owned(),
        n => {
            let size = Bytes(u64::try_from(n.unsigned_abs()).unwrap_or(u64::MAX));
            if n > 0 { format!("+{size}") } else { format!("\u{2212}{size}") }
        }
    };
    let stacks = row.stacks.iter().take(MAX_STACKS).map(|site| stack(site)).collect_view();
    let left_out = row.stacks.len().saturating_sub(MAX_STACKS);
    let left_out = (left_out > 0).then(
        || view! { <p class="dim">{format!("and {} through this line", words::count(left_out, "other stack"))}</p> },
    );
    let others = columns.iter().map(|at| cell(*at)).collect_view();
    view! {
        <tr class:hot=row.only>
            <th scope="row">
                <details>
                    <summary><code>{line(row.frame)}</code>{row.only.then_some(" \u{25c6} on this rank only")}</summary>
                    {stacks}
                    {left_out}
                </details>
            </th>
            <td data-n=row.difference.to_string()>{difference}</td>
            {cell(found.picked)}
            {others}
            {ranges}
        </tr>
    }
    .into_any()
}

/// A whole stack, the user's own frames marked.
fn stack(site: &CallSite) -> AnyView {
    if site.frames.is_empty() {
        return view! { <p class="dim">"No stack was recorded: it was allocated before the recording began."</p> }
            .into_any();
    }
    let frames = site.frames.iter().map(frame_line).collect_view();
    let head = format!(
        "{} in {}, innermost call first",
        site.bytes,
        words::count(usize::try_from(site.blocks).unwrap_or(0), "block")
    );
    view! { <p class="dim">{head}</p><ol class="frames">{frames}</ol> }.into_any()
}
