//! What a browser gets: whole pages, rendered from a backend in memory through the server's own route handling.

mod support;

use axum::http::StatusCode;
use rankscope_app::{ComparedReports, standalone_comparison_html, standalone_report_html};
use rankscope_diagnosis::{Policy, Side, compare};
use rankscope_model::{
    ArtifactKind, Bytes, DeviceStatus, GIB, Item, ItemNote, ItemStatus, LiveRunRef, LiveStateKind, NodeStatus,
    OwnStatus, ProcessRole, ProcessStatus, Quantity, Rank, Report, ShareInfo, Stage, Subject, UnixMicros, Verdict,
};
use support::{Memory, Site, reports};

const SMI: &str = "/runs/01939f0a7e2b";
const STEPS: &str = "/runs/01939f0b11aa";
const OPEN: &str = "/runs/01939f0c22bb";

fn memory() -> Memory {
    Memory {
        reports: vec![reports::eight_gpus(), reports::step_log(), reports::inconclusive()],
        shares: vec![],
        tokens: vec![("good".into(), Some("01939f0a7e2b".into())), ("ended".into(), None)],
        ..Memory::default()
    }
}

async fn page(address: &str) -> String {
    let (status, html) = Site::new(memory()).get(address).await;
    assert_eq!(status, StatusCode::OK, "{address}");
    html
}

/// The opening tags of a document, without comments and text.
fn tags(html: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start..];
        // A quoted attribute may hold a `>`.
        let mut quote = None;
        let end = rest.char_indices().find(|&(_, c)| match (quote, c) {
            (None, '>') => true,
            (None, '"' | '\'') => {
                quote = Some(c);
                false
            }
            (Some(open), c) if c == open => {
                quote = None;
                false
            }
            _ => false,
        });
        let Some((end, _)) = end else { break };
        tags.push(&rest[..=end]);
        rest = &rest[end + 1..];
    }
    tags
}

/// Values of an attribute, in document order.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    tags(html)
        .into_iter()
        .filter_map(|tag| tag.split_once(start.as_str()))
        .filter_map(|(_, rest)| rest.split_once('"'))
        .map(|(value, _)| value)
        .collect()
}

/// The text of the first first-level heading; empty without one.
fn headline(html: &str) -> &str {
    let inside = html.split_once("<h1").and_then(|(_, rest)| rest.split_once('>'));
    inside.and_then(|(_, rest)| rest.split_once("</h1>")).map(|(text, _)| text).unwrap_or_default()
}

/// The text of the document, without tags, with the commonest entities read.
fn text(html: &str) -> String {
    let mut out = html.to_owned();
    for tag in tags(html) {
        out = out.replacen(tag, "", 1);
    }
    out.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#x27;", "'").replace("&amp;", "&")
}

#[tokio::test]
async fn the_report_leads_with_the_answer_and_its_figures() {
    let html = page(SMI).await;
    assert!(headline(&html).starts_with("GPU 0 is 24 % fuller than the mean"));
    let text = text(&html);
    for words in [
        "dlrm-criteo",
        "8 GPUs, 3 files",
        "16 Dec 2024, 10:41 UTC",
        "Imbalance",
        "31.4 GiB",
        "of 31.7 GiB",
        "25.4 GiB",
        "24 %",
        "99 %",
    ] {
        assert!(text.contains(words), "{words}");
    }
    assert_eq!(html.matches("<h1").count(), 1);
}

/// A difference that is meant to be is told and accuses nobody; who stands out beside the first has a figure of their own.
#[tokio::test]
async fn what_is_by_design_is_neutral_and_the_others_have_their_own_figure() {
    let facts = |html: &str| {
        let start = html.find("<dl class=\"facts\"").unwrap();
        html[start..].split("</dl>").next().unwrap().to_owned()
    };
    let with = |edit: &dyn Fn(&mut Report)| {
        let mut report = reports::eight_gpus();
        edit(&mut report);
        standalone_report_html(&report)
    };
    let others = |peaks: &[(u32, u64)]| {
        let html = with(&|report| {
            for &(device, mib) in peaks {
                let bars = &mut report.figures.peaks.as_mut().unwrap().bars;
                bars[device as usize].peak = Bytes::from_mib(mib);
                report.diagnosis.imbalance.as_mut().unwrap().heaviest.push(Subject::Device(device));
            }
        });
        text(&facts(&html))
    };
    assert!(others(&[(6, 29_000), (7, 28_160)]).contains("2 others, 27.5 GiB and more"));
    assert!(others(&[(7, 28_160)]).contains("1 other 27.5 GiB"));
    assert!(others(&[(6, 32_151), (7, 32_151)]).contains("2 others alike"));

    let accused = with(&|_| ());
    let cause_of = |html: &str| {
        let classes = attributes(html, "class");
        classes.into_iter().find(|class| class.starts_with("card cause")).unwrap().to_owned()
    };
    assert!(facts(&accused).contains("class=\"hot\"") && cause_of(&accused).contains("accusing"));
    let meant = with(&|report| report.diagnosis.imbalance.as_mut().unwrap().by_design = true);
    assert!(!facts(&meant).contains("class=\"hot\""), "{}", facts(&meant));
    let cause = cause_of(&meant);
    assert!(!cause.contains("accusing") && !cause.contains("doubtful"), "{cause}");
    assert!(text(&meant).contains("Different by design"));
}

#[tokio::test]
async fn causes_stand_with_reasons_for_and_against_and_a_remedy_as_a_diff() {
    let html = page(SMI).await;
    let text = text(&html);
    assert!(text.contains("Ranks are never bound to their own GPU"));
    assert!(text.contains("likely, 0.86"));
    assert!(text.contains("For: Seven processes on GPU 0"));
    assert!(text.contains("Against: A checkpoint loaded without map_location"));
    assert!(html.contains("<ins>+ torch.cuda.set_device(local_rank)"));
    assert!(html.contains("<del>- model = Net().cuda()"));
    // What is copied is the code after the change, without marks.
    assert!(html.contains(
        "data-copy=\"local_rank = int(os.environ[&quot;LOCAL_RANK&quot;])\ntorch.cuda.set_device(local_rank)"
    ));
    assert_eq!(html.matches("class=\"other\"").count(), 2, "less likely causes are folded");
}

#[tokio::test]
async fn every_reference_leads_to_a_place_that_exists_once() {
    for address in [SMI, STEPS, OPEN] {
        let html = page(address).await;
        let ids = attributes(&html, "id");
        for id in &ids {
            assert_eq!(ids.iter().filter(|other| *other == id).count(), 1, "{address}: id {id} is not unique");
        }
        let inside: Vec<&str> =
            attributes(&html, "href").into_iter().filter_map(|href| href.strip_prefix('#')).collect();
        assert!(inside.len() > 3, "{address}");
        for target in inside {
            assert!(ids.contains(&target), "{address}: nothing has the id {target}");
        }
        for target in attributes(&html, "for").into_iter().chain(attributes(&html, "aria-labelledby")) {
            assert!(ids.contains(&target), "{address}: nothing has the id {target}");
        }
    }
    assert!(page(SMI).await.contains("id=\"f0-L41-47\""));
}

#[tokio::test]
async fn the_checklist_says_a_word_for_every_status_and_how_to_decide_what_is_open() {
    let html = page(SMI).await;
    let text = text(&html);
    assert!(text.contains("5 of 10 items settled"));
    let report = reports::eight_gpus();
    for entry in &report.diagnosis.checklist {
        assert!(text.contains(entry.item.short_title()), "{}", entry.item.slug());
        if entry.status == ItemStatus::Unknown {
            assert!(html.contains(&format!("id=\"item-{}\"", entry.item.slug())));
            assert!(text.contains(&entry.collect[0].command), "{}", entry.item.slug());
        }
    }
    for word in ["fail", "suspect", "pass", "unknown", "not yet"] {
        assert!(html.contains(&format!("<span class=\"item-word\">{word}</span>")), "{word}");
    }
}

#[tokio::test]
async fn charts_are_drawn_for_every_width_that_they_are_shown_at() {
    let html = page(STEPS).await;
    let svgs: Vec<&str> = tags(&html).into_iter().filter(|tag| tag.contains("data-plot-left")).collect();
    assert_eq!(svgs.len(), 12, "timeline, heatmap and peaks, four widths each");
    for kind in ["chart-timeline", "chart-peaks"] {
        for width in [256, 320, 480, 720] {
            let found = svgs.iter().any(|svg| svg.contains(kind) && svg.contains(&format!("viewBox=\"0 0 {width} ")));
            assert!(found, "{kind} {width}");
        }
    }
    assert!(html.contains("data-root=\"/api/v1/runs/01939f0b11aa\""));
    assert!(html.contains("data-accused=\"rank 3\""));
    let composition = page(SMI).await;
    assert!(composition.contains("chart-composition"));
    assert!(text(&composition).contains("other ranks"));
    // Exact values stand behind, and the accused has a word beside its colour.
    assert!(composition.contains("33,712,766,976"));
    assert!(text(&composition).contains("GPU 0 \u{25c6} stands out"));
}

#[tokio::test]
async fn files_say_what_they_were_taken_for_and_what_was_wrong() {
    let html = page(SMI).await;
    let text = text(&html);
    for words in
        ["nvidia-smi table", "Python script", "GPUs 0 to 7", "No line holds a memory figure with a rank.", "1 MiB"]
    {
        assert!(text.contains(words), "{words}");
    }
    for n in 0..3 {
        assert!(html.contains(&format!("href=\"/api/v1/runs/01939f0a7e2b/artifacts/{n}\"")));
    }
}

#[tokio::test]
async fn forms_work_without_javascript() {
    let home = page("/").await;
    let form = tags(&home).into_iter().find(|tag| tag.contains("action=\"/runs\"")).unwrap();
    assert!(form.contains("method=\"post\"") && form.contains("enctype=\"multipart/form-data\""), "{form}");
    for name in ["title", "text", "files"] {
        assert!(attributes(&home, "name").contains(&name), "{name}");
    }
    assert!(text(&home).contains("Up to 2.0 GiB a file, 4.0 GiB together."));
    let report = page(SMI).await;
    for action in ["/runs/01939f0a7e2b/files", "/runs/01939f0a7e2b/shares"] {
        assert!(report.contains(&format!("action=\"{action}\"")), "{action}");
    }
    for seconds in ["86400", "604800", "2592000", ""] {
        assert!(report.contains(&format!("<option value=\"{seconds}\"")), "{seconds}");
    }
    // Buttons that need the browser's help are hidden until it is there.
    for button in tags(&report).into_iter().filter(|tag| tag.contains("data-copy")) {
        assert!(button.contains(" hidden"), "{button}");
    }
}

#[tokio::test]
async fn a_new_link_is_shown_whole_and_only_when_there_is_one() {
    let mut site = Site::new(memory());
    let share = |id: &str, expires_at, revoked_at| ShareInfo {
        id: id.into(),
        version: 2,
        created_at: reports::MADE_AT,
        expires_at,
        revoked_at,
        ..ShareInfo::default()
    };
    site.memory.shares = vec![
        share("living", Some(UnixMicros(i64::MAX)), None),
        share("endless", None, None),
        share("revoked", None, Some(reports::MADE_AT)),
        share("past", Some(reports::MADE_AT), None),
    ];
    let (_, before) = site.get(SMI).await;
    assert!(!before.contains("/r/"), "no link is ever shown again");
    let revocable: Vec<&str> = ["living", "endless", "revoked", "past"]
        .into_iter()
        .filter(|id| before.contains(&format!("/shares/{id}/revoke")))
        .collect();
    assert_eq!(revocable, ["living", "endless"]);
    site.new_share = Some(("living".into(), "t0ken".into()));
    let (_, after) = site.get(SMI).await;
    assert_eq!(after.matches("value=\"http://gpu.example:3000/r/t0ken\"").count(), 1);
    assert!(after.contains("data-copy=\"http://gpu.example:3000/r/t0ken\""));
}

#[tokio::test]
async fn a_shared_report_can_be_read_and_nothing_else() {
    let html = page("/r/good").await;
    assert!(headline(&html).starts_with("GPU 0 is 24 % fuller"));
    assert!(!html.contains("<form"), "nothing that writes");
    assert!(!html.contains("/api/v1/"), "nothing that only the owner may read");
    assert!(!html.contains("href=\"/\""), "no way to the list of runs");
    assert!(html.contains("<meta name=\"robots\" content=\"noindex, nofollow\">"));
    for (property, content) in [
        ("og:title", "dlrm-criteo"),
        (
            "og:description",
            "GPU 0 is 24 % fuller than the mean because the other seven ranks also opened a CUDA context on it.",
        ),
        ("og:image", "http://gpu.example:3000/r/good/preview.png"),
        ("og:image:width", "1200"),
        ("og:image:height", "630"),
        ("og:url", "http://gpu.example:3000/r/good"),
    ] {
        let meta = tags(&html).into_iter().find(|tag| tag.contains(&format!("property=\"{property}\""))).unwrap();
        assert!(meta.contains(&format!("content=\"{content}\"")), "{meta}");
    }
    let head = html.split_once("</head>").unwrap().0;
    assert!(head.contains("og:image"), "previews are read from the head alone");
}

#[tokio::test]
async fn missing_things_have_the_right_status_and_say_what_to_do() {
    let site = Site::new(memory());
    for (address, status, words) in [
        ("/runs/none", StatusCode::NOT_FOUND, "No such run"),
        ("/r/none", StatusCode::NOT_FOUND, "No report behind this link"),
        ("/r/ended", StatusCode::GONE, "This link has ended"),
        ("/nowhere/at/all", StatusCode::NOT_FOUND, "No page at this address"),
    ] {
        let (got, html) = site.get(address).await;
        assert_eq!(got, status, "{address}");
        assert!(html.contains(words), "{address}");
    }
    let down = Site::new(Memory { down: true, ..memory() });
    for address in ["/", SMI, "/r/good"] {
        let (got, html) = down.get(address).await;
        assert_eq!(got, StatusCode::SERVICE_UNAVAILABLE, "{address}");
        assert!(html.contains("The store does not answer"), "{address}");
    }
}

#[tokio::test]
async fn the_list_of_runs_can_be_searched_and_teaches_when_empty() {
    let html = page("/").await;
    let listed = text(&html);
    for report in memory().reports {
        assert!(html.contains(&format!("href=\"/runs/{}\"", report.run.id)));
        assert!(listed.contains(report.diagnosis.verdict.title()));
    }
    let found = page("/?query=bert").await;
    assert!(found.contains(STEPS) && !found.contains(SMI));
    assert!(found.contains("value=\"bert\""));
    assert!(text(&page("/?query=%3Cb%3E").await).contains("No run speaks of <b>"));
    let (_, empty) = Site::new(Memory::default()).get("/").await;
    assert!(text(&empty).contains("No runs yet."));
    assert!(empty.contains("nvidia-smi &gt; smi.txt"));
}

/// Nothing foreign may become markup, an attribute, a handler or a turn in the direction of text.
fn assert_harmless(html: &str, place: &str) {
    assert!(!html.contains('\u{202e}'), "{place}: a direction mark came through");
    let tags = tags(html);
    if let Some(at) = html.find("<script>") {
        panic!("{place}: {}", html.get(at.saturating_sub(200)..).unwrap_or_default());
    }
    let foreign: Vec<&&str> =
        tags.iter().filter(|tag| tag.starts_with("<script>") || tag.starts_with("<img")).collect();
    assert!(foreign.is_empty(), "{place}: {foreign:?}");
    for tag in &tags {
        // Attribute names outside quoted values.
        let mut bare = String::new();
        let mut quoted = false;
        for c in tag.chars() {
            if c == '"' {
                quoted = !quoted;
            } else if !quoted {
                bare.push(c);
            }
        }
        assert!(!bare.split_whitespace().skip(1).any(|name| name.starts_with("on")), "{place}: a handler in {tag}");
        assert!(!bare.contains(" style="), "{place}: a style attribute, which a strict policy refuses: {tag}");
        assert!(!tag.contains("javascript:"), "{place}: {tag}");
    }
}

#[tokio::test]
async fn hostile_names_stay_text_everywhere() {
    let mut site = Site::new(Memory { reports: vec![reports::hostile()], ..memory() });
    site.memory.tokens = vec![("good".into(), Some(reports::hostile().run.id))];
    site.new_share = Some(("\"><script>alert(3)</script>".into(), "\"><script>alert(4)</script>".into()));
    for address in [
        "/",
        STEPS,
        "/r/good",
        "/?query=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
        "/r/%22%3E%3Cscript%3E",
        "/runs/%22%3E%3Cscript%3E",
    ] {
        let (_, html) = site.get(address).await;
        assert_harmless(&html, address);
    }
    let (_, html) = site.get(STEPS).await;
    assert!(text(&html).contains("<script>alert(1)</script>"), "it is shown, as text");
    assert!(html.contains("\u{27e8}U+202E\u{27e9}"), "the direction mark is written out");
    assert_harmless(&standalone_report_html(&reports::hostile()), "export");
}

#[tokio::test]
async fn pages_need_no_script_and_bring_one_only_with_a_bundle() {
    for address in ["/", SMI, "/r/good", "/runs/none"] {
        let (_, html) = Site::new(memory()).get(address).await;
        // Leptos closes every page with the lists of data left for the browser; they must be empty.
        let (document, tail) = html.split_once("</html>").unwrap();
        assert!(!document.contains("<script"), "{address}");
        let tail: String = tags(tail).into_iter().fold(tail.to_owned(), |text, tag| text.replace(tag, ""));
        let empty = "__RESOLVED_RESOURCES=[];__SERIALIZED_ERRORS=[];__PENDING_RESOURCES=[];__RESOURCE_RESOLVERS=[];__INCOMPLETE_CHUNKS=[];";
        assert_eq!(tail.trim(), empty, "{address}");
        assert_harmless(&html, address);
    }
    let mut site = Site::new(memory());
    site.has_bundle = true;
    let (_, html) = site.get(SMI).await;
    let document = html.split_once("</html>").unwrap().0;
    let scripts: Vec<&str> = tags(document).into_iter().filter(|tag| tag.starts_with("<script")).collect();
    assert_eq!(scripts.len(), 1, "{scripts:?}");
    assert!(scripts[0].contains("type=\"module\"") && scripts[0].contains(" nonce=\""), "{scripts:?}");
    for island in ["CopyButtons", "Upload", "ShareBox"] {
        assert!(html.contains(&format!("data-component=\"{island}_")), "{island}");
    }
    assert!(site.get(STEPS).await.1.contains("data-component=\"TimelineLens_"));
}

#[test]
fn an_exported_report_stands_alone() {
    for report in [reports::eight_gpus(), reports::step_log(), reports::inconclusive()] {
        let html = standalone_report_html(&report);
        assert!(html.starts_with("<!DOCTYPE html><html lang=\"en\">"));
        assert!(html.contains(&report.diagnosis.artifacts[0].name));
        assert!(
            !html.contains("<script")
                && !html.contains("<link")
                && !html.contains("<form")
                && !html.contains("<leptos-island")
        );
        for tag in tags(&html) {
            assert!(!tag.contains(" src="), "{tag}");
            // The namespace of a drawing is a name, not an address.
            let tag = tag.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
            assert!(!tag.contains("http:") && !tag.contains("https:") && !tag.contains("//"), "{tag}");
        }
        for href in attributes(&html, "href") {
            assert!(href.starts_with('#'), "{href}");
        }
        let style = html.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
        assert!(style.contains("--hot:") && !style.contains("url(") && !style.contains("@import"));
    }
}

#[tokio::test]
async fn what_is_not_known_is_said_and_not_drawn() {
    let html = page(OPEN).await;
    let text = text(&html);
    assert!(text.contains("Not settled") && text.contains("0 of 10 items settled"));
    assert!(!html.contains("<dl class=\"facts\""), "no figures without a comparison");
    assert!(!html.contains("data-plot-left"), "no empty charts");
    assert!(!text.contains("likely, 1.00"), "an unsettled cause has no confidence to boast of");
    let next = html.find("id=\"next\"").unwrap();
    assert!(next < html.find("class=\"side\"").unwrap(), "what would settle it stands in the main column");

    let balanced = Report {
        diagnosis: rankscope_model::Diagnosis {
            events: vec![],
            verdict: Verdict::Balanced,
            causes: vec![],
            ..reports::inconclusive().diagnosis
        },
        ..reports::inconclusive()
    };
    let site = Site::new(Memory { reports: vec![balanced], ..memory() });
    assert!(site.get(OPEN).await.1.contains("No rank stands out and no card is near its capacity."));
}

// ---- the wizard ----

fn note(item: Item, status: Option<OwnStatus>, text: &str, author: &str, minute: i64) -> (String, ItemNote) {
    let note = ItemNote {
        id: format!("n{minute}"),
        item,
        status,
        note: text.into(),
        author: author.into(),
        created_at: UnixMicros(reports::MADE_AT.0 + minute * 60_000_000),
    };
    ("01939f0a7e2b".into(), note)
}

fn with_after() -> Memory {
    Memory {
        reports: vec![reports::eight_gpus(), reports::eight_gpus_bound(), reports::step_log(), reports::inconclusive()],
        after: vec![("01939f0a7e2b".into(), "01939f1c33cc".into())],
        ..memory()
    }
}

#[tokio::test]
async fn the_checklist_leads_to_the_most_telling_stage() {
    let site = Site::new(memory());
    let (status, location, _) = site.visit("/runs/01939f0a7e2b/checklist").await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    // The diagnosis wants the proof next, but what it says fails is mended first.
    assert_eq!(reports::eight_gpus().next.unwrap().0, Item::Verified);
    assert_eq!(location.as_deref(), Some("/runs/01939f0a7e2b/checklist/environment"));
    let (_, stage) = site.get("/runs/01939f0a7e2b/checklist/environment").await;
    let first = stage.find("Look here first").unwrap();
    let (item, other) = ("id=\"item-device_visibility\"", "id=\"item-distributed_init\"");
    assert!(stage.find(item).unwrap() < first && first < stage.find(other).unwrap());
    assert!(text(&page(SMI).await).contains("Then, with the remedy applied"), "the report leads the same way");
    // Once people have dealt with all the rest, the proof is what is left.
    let dealt = |item: &Item| note(*item, Some(OwnStatus::Mended), "", "Ada", 1);
    let notes: Vec<_> = Item::ALL.iter().filter(|item| **item != Item::Verified).map(dealt).collect();
    let (_, location, _) = Site::new(Memory { notes, ..memory() }).visit("/runs/01939f0a7e2b/checklist").await;
    assert_eq!(location.as_deref(), Some("/runs/01939f0a7e2b/checklist/verify"));
    // From another stage one is led to the remedy, not to another command.
    let shown = text(&site.get("/runs/01939f0a7e2b/checklist/data").await.1);
    assert!(shown.contains("First, mend what fails") && !shown.contains("Next, most telling"));
    // Nothing is left once it is proven.
    let (_, location, _) = Site::new(with_after()).visit("/runs/01939f0a7e2b/checklist").await;
    assert_eq!(location.as_deref(), Some("/runs/01939f0a7e2b/checklist/verify"));
    for (address, status) in [
        ("/runs/01939f0a7e2b/checklist/data", StatusCode::OK),
        ("/runs/01939f0a7e2b/checklist/2", StatusCode::OK),
        ("/runs/01939f0a7e2b/checklist/nowhere", StatusCode::NOT_FOUND),
        ("/runs/none/checklist/data", StatusCode::NOT_FOUND),
        ("/runs/none/checklist", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(site.get(address).await.0, status, "{address}");
    }
}

#[tokio::test]
async fn every_stage_says_what_each_item_means_and_takes_its_evidence() {
    for stage in Stage::ALL {
        let html = page(&format!("/runs/01939f0a7e2b/checklist/{}", stage.slug())).await;
        let text = text(&html);
        assert_harmless(&html, stage.slug());
        assert_eq!(html.matches("aria-current=\"step\"").count(), 1, "{}", stage.slug());
        for entry in reports::eight_gpus().diagnosis.checklist.iter().filter(|entry| entry.item.stage() == *stage) {
            let stated = if *stage == Stage::Verify { "The fix is not proven yet" } else { entry.item.title() };
            assert!(text.contains(stated), "{}", entry.item.slug());
            let note = format!("action=\"/runs/01939f0a7e2b/checklist/{}/notes\"", entry.item.slug());
            assert!(html.contains(&note), "{}", entry.item.slug());
            if entry.status == ItemStatus::Unknown && *stage != Stage::Verify {
                assert!(text.contains(&entry.collect[0].command), "{}", entry.item.slug());
                let drop = format!("action=\"/runs/01939f0a7e2b/files?item={}\"", entry.item.slug());
                assert!(html.contains(&drop), "{}", entry.item.slug());
            }
        }
        let ids = attributes(&html, "id");
        for id in &ids {
            assert_eq!(ids.iter().filter(|other| *other == id).count(), 1, "{}: id {id}", stage.slug());
        }
        for target in attributes(&html, "for").into_iter().chain(attributes(&html, "aria-labelledby")) {
            assert!(ids.contains(&target), "{}: nothing has the id {target}", stage.slug());
        }
    }
    let environment = page("/runs/01939f0a7e2b/checklist/environment").await;
    assert!(environment.contains("href=\"/runs/01939f0a7e2b#f0-L41-47\""), "a claim leads to its line in the report");
    assert!(text(&environment).contains("torch.cuda.set_device(local_rank)"), "the remedy of the named cause");
}

#[tokio::test]
async fn people_are_heard_beside_the_machine_and_never_instead_of_it() {
    let notes = vec![
        note(Item::DeviceVisibility, Some(OwnStatus::Fails), "rows of seven PIDs\non GPU 0", "Ada", 1),
        note(Item::DeviceVisibility, Some(OwnStatus::Mended), "<b>set_device</b> added", "Bo\u{202e}", 9),
        note(Item::UnsyncedBuffers, Some(OwnStatus::DoesNotApply), "no buffers in this model", "Ada", 3),
    ];
    let mut site = Site::new(Memory { notes, ..memory() });
    site.visitor_name = Some("Ada \"x\"".into());
    let (_, html) = site.get("/runs/01939f0a7e2b/checklist/environment").await;
    let shown = text(&html);
    assert_harmless(&html, "notes");
    for words in [
        "mended, proof to come",
        "The files say: fail.",
        "<b>set_device</b> added",
        "rows of seven PIDs",
        "16 Dec 2024, 10:50 UTC",
    ] {
        assert!(shown.contains(words), "{words}");
    }
    assert!(html.contains("Seven PIDs of GPUs 1 to 7"), "the findings stay");
    assert!(html.contains("value=\"Ada &quot;x&quot;\""), "the name is remembered");
    let (_, model) = site.get("/runs/01939f0a7e2b/checklist/model").await;
    let folded = text(&model);
    assert!(folded.contains("Does not apply here") && folded.contains("no buffers in this model"));
    assert!(folded.contains("1 does not apply"));
    assert!(!page("/runs/01939f0a7e2b/checklist/model").await.contains("Does not apply here"));
}

#[tokio::test]
async fn progress_counts_what_is_settled_by_evidence_or_by_people() {
    let settled = |html: &str| {
        let progress = tags(html).into_iter().find(|tag| tag.contains("aria-label=\"Items settled\"")).unwrap();
        (attributes(progress, "value")[0].to_owned(), attributes(progress, "max")[0].to_owned())
    };
    assert_eq!(settled(&page("/runs/01939f0a7e2b/checklist/data").await), ("5".into(), "10".into()));
    let notes = vec![
        note(Item::DeviceVisibility, Some(OwnStatus::Mended), "", "Ada", 1),
        note(Item::UnsyncedBuffers, Some(OwnStatus::DoesNotApply), "", "Ada", 2),
        note(Item::DistributedSampler, Some(OwnStatus::Open), "look again", "Ada", 3),
    ];
    let (_, html) = Site::new(Memory { notes, ..memory() }).get("/runs/01939f0a7e2b/checklist/data").await;
    assert_eq!(settled(&html), ("5".into(), "9".into()));
}

#[tokio::test]
async fn the_report_and_the_wizard_count_alike() {
    let notes = vec![
        note(Item::DeviceVisibility, Some(OwnStatus::Mended), "", "Ada", 1),
        note(Item::UnsyncedBuffers, Some(OwnStatus::DoesNotApply), "", "Ada", 2),
    ];
    let sites = [memory(), Memory { notes, ..memory() }, with_after()];
    let counts = ["5 of 10 items settled", "6 of 9 items settled, 1 does not apply", "6 of 10 items settled"];
    for (memory, count) in sites.into_iter().zip(counts) {
        let site = Site::new(memory);
        for address in [SMI, "/runs/01939f0a7e2b/checklist/data", "/runs/01939f0a7e2b/checklist/verify"] {
            let shown = text(&site.get(address).await.1);
            assert!(shown.contains(count), "{address}: {count}");
        }
    }
    // What a person said stands in the report beside the machine's word.
    let notes = vec![note(Item::DeviceVisibility, Some(OwnStatus::Mended), "", "Ada", 1)];
    let shown = text(&Site::new(Memory { notes, ..memory() }).get(SMI).await.1);
    assert!(shown.contains("Ada: mended"));
}

#[tokio::test]
async fn the_closing_item_states_no_proof_that_it_does_not_have() {
    let verify = "/runs/01939f0a7e2b/checklist/verify";
    let before = page(verify).await;
    let heading = |html: &str| {
        let inside = html.split_once("id=\"title-verified\"").and_then(|(_, rest)| rest.split_once('>'));
        inside.and_then(|(_, rest)| rest.split_once("</h2>")).map(|(heading, _)| heading.to_owned()).unwrap_or_default()
    };
    let badge = |html: &str| {
        let (_, rest) = html.split_once("id=\"title-verified\"").unwrap();
        text(rest.split_once("class=\"badge").unwrap().1.split_once('>').unwrap().1.split_once("</div>").unwrap().0)
    };
    assert_eq!(heading(&before), "The fix is not proven yet");
    assert!(badge(&before).contains("not yet"), "{}", badge(&before));
    let (_, after) = Site::new(with_after()).get(verify).await;
    assert_eq!(heading(&after), "The fix is proven");
    assert!(badge(&after).contains("proven"), "{}", badge(&after));
    // The report says the same.
    assert!(text(&page(SMI).await).contains("The fix is not proven yet"));
    assert!(!text(&Site::new(with_after()).get(SMI).await.1).contains("not yet"));
}

#[tokio::test]
async fn a_version_that_is_none_is_told_from_a_run_that_is_gone() {
    let site = Site::new(memory());
    for version in ["-1", "0", "x", "99", "1e3"] {
        let (status, html) = site.get(&format!("{SMI}?version={version}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{version}");
        assert_eq!(headline(&html), "No such diagnosis of this run", "{version}");
        assert!(html.contains(&format!("href=\"{SMI}\"")), "{version}");
    }
    assert_eq!(headline(&site.get("/runs/none?version=-1").await.1), "No such run");
}

#[tokio::test]
async fn the_closing_step_takes_a_run_and_shows_the_proof() {
    let before = page("/runs/01939f0a7e2b/checklist/verify").await;
    assert!(text(&before).contains("What a proof needs"));
    for action in ["/runs/01939f0a7e2b/after/files", "/runs/01939f0a7e2b/after"] {
        assert!(before.contains(&format!("action=\"{action}\"")), "{action}");
    }
    assert!(before.contains("<option value=\"01939f0b11aa\""), "runs that are here");
    assert!(!before.contains("<option value=\"01939f0a7e2b\""), "not the run itself");

    let (_, html) = Site::new(with_after()).get("/runs/01939f0a7e2b/checklist/verify").await;
    let shown = text(&html);
    assert!(shown.contains("Fixed: GPU 0 was"), "{shown}");
    assert!(shown.contains("no longer stands out"));
    assert!(html.contains("/compare?base=01939f0a7e2b&amp;head=01939f1c33cc"));
    assert!(shown.contains("Take another run as the proof"));
    // The closing item is decided by it, on every stage.
    let (_, data) = Site::new(with_after()).get("/runs/01939f0a7e2b/checklist/data").await;
    assert!(tags(&data).iter().any(|tag| tag.contains("checklist/verify#item-verified")));
    assert!(!text(&data).contains("not yet"));
}

// ---- two runs side by side ----

#[tokio::test]
async fn a_comparison_leads_with_its_answer_and_shows_both_sides() {
    let site = Site::new(with_after());
    let (status, html) = site.get("/compare?base=01939f0a7e2b&head=01939f1c33cc").await;
    assert_eq!(status, StatusCode::OK);
    assert!(headline(&html).starts_with("Fixed: GPU 0 was"), "{}", headline(&html));
    assert_harmless(&html, "compare");
    assert_eq!(
        tags(&html).into_iter().filter(|tag| tag.contains("data-plot-left")).count(),
        8,
        "two charts, four widths"
    );
    let tops: std::collections::BTreeSet<&str> = attributes(&html, "data-y-max").into_iter().collect();
    assert_eq!(tops.len(), 1, "one scale for both: {tops:?}");
    let shown = text(&html);
    for words in
        ["Side by side", "GPU 7", "gone", "Ranks are never bound to their own GPU", "What the proof does not cover"]
    {
        assert!(shown.contains(words), "{words}");
    }
    let (_, same) = site.get("/compare?base=01939f0a7e2b&head=01939f0a7e2b").await;
    assert!(headline(&same).starts_with("Not fixed"), "{}", headline(&same));
    assert!(text(&same).contains("still stands out") && text(&same).contains("remains"));
    let (_, other) = site.get("/compare?base=01939f0a7e2b&head=01939f0b11aa").await;
    assert!(headline(&other).starts_with("Cannot tell"), "{}", headline(&other));
    assert!(text(&other).contains("Would settle it"));
    assert_eq!(site.get("/compare?base=none&head=01939f0b11aa").await.0, StatusCode::NOT_FOUND);

    let (_, choice) = site.get("/compare?base=01939f1c33cc").await;
    let form = tags(&choice).into_iter().find(|tag| tag.contains("action=\"/compare\"")).unwrap();
    assert!(form.contains("method=\"get\""));
    assert!(choice.contains("<option value=\"01939f1c33cc\" selected"));
}

#[tokio::test]
async fn a_report_leads_its_owner_on_and_to_its_older_versions() {
    let html = page(SMI).await;
    for address in
        ["/runs/01939f0a7e2b/checklist", "/runs/01939f0a7e2b/checklist/verify", "/runs/01939f0a7e2b?version=1"]
    {
        assert!(html.contains(&format!("href=\"{address}\"")), "{address}");
    }
    assert!(!text(&html).contains("This is diagnosis"));
    let old = page("/runs/01939f0a7e2b?version=1").await;
    assert!(text(&old).contains("This is diagnosis 1 of 2"));
    assert!(old.contains("data-version=\"1\"") || !old.contains("data-root"));
    assert!(old.contains("/report.html?version=1"));
    for wrong in ["0", "3", "x"] {
        let (status, _) = Site::new(memory()).get(&format!("{SMI}?version={wrong}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{wrong}");
    }
    let shared = page("/r/good").await;
    assert!(!shared.contains("/checklist") && !shared.contains("?version="));
}

#[test]
fn an_exported_comparison_stands_alone() {
    let (base, head) = (reports::eight_gpus(), reports::eight_gpus_bound());
    let comparison = compare(Side::from(&base), Side::from(&head), &Policy::default());
    let html = standalone_comparison_html(&ComparedReports { base, head, comparison });
    assert!(html.contains("Fixed: GPU 0 was"));
    assert!(!html.contains("<script") && !html.contains("<form") && !html.contains("<leptos-island"));
    for href in attributes(&html, "href") {
        assert!(href.starts_with('#'), "{href}");
    }
    assert_eq!(html.matches("<h1").count(), 1);
}

fn node(name: &str) -> NodeStatus {
    let process = |pid: u32, rank: Option<u32>, role, gib: u64| ProcessStatus {
        pid,
        name: Some("python<script>".into()),
        rank: rank.map(Rank),
        role,
        used: Some(Bytes(gib * GIB)),
    };
    let card = |index: u32, used: Option<u64>, outlier: bool, processes| DeviceStatus {
        last_used: None,
        state_since: None,
        subject: Subject::Device(index),
        name: Some("NVIDIA H100".into()),
        total: Some(Bytes(80 * GIB)),
        used: used.map(|gib| Bytes(gib * GIB)),
        heat: format!("{}..1178", ".".repeat(54)),
        outlier,
        utilization_percent: Some(98),
        temperature_c: Some(61),
        state: used.is_none().then_some(LiveStateKind::Lost),
        processes,
    };
    let visited = vec![
        process(100, Some(0), ProcessRole::Home, 60),
        process(101, Some(1), ProcessRole::Visitor, 2),
        process(102, Some(2), ProcessRole::Visitor, 2),
        process(7, None, ProcessRole::Stranger, 3),
    ];
    NodeStatus {
        node: name.into(),
        heard_at: UnixMicros(1_734_345_667_000_000),
        silent: false,
        ended: false,
        driver_version: None,
        notes: vec!["GPU 1 has fallen off the bus.".into()],
        devices: vec![card(0, Some(67), true, visited), card(1, None, false, vec![])],
        runs: vec![LiveRunRef { id: "01939f0a7e2b".into(), title: "Slurm job 1 on a".into(), ..LiveRunRef::default() }],
    }
}

#[tokio::test]
async fn nodes_are_seen_with_their_cards_and_who_is_on_them() {
    let silent = NodeStatus { silent: true, ..node("b") };
    let site = Site::new(Memory { nodes: vec![node("a"), silent], ..memory() });
    let (status, html) = site.get("/live").await;
    assert_eq!(status, StatusCode::OK);
    let shown = text(&html);
    for words in [
        "2 nodes, 1 of them silent, 4 GPUs, 1 lost, 1 stands out",
        "67.0 GiB of 80.0 GiB",
        "98 %, 61 °C",
        "rank 0",
        "ranks 1, 2 from other GPUs",
        "4.0 GiB",
        "python<script> (PID 7)",
        "lost",
        "GPU 1 has fallen off the bus.",
        "no word since 10:41:07; last known state",
        "Slurm job 1 on a",
    ] {
        assert!(shown.contains(words), "{words}");
    }
    assert_eq!(html.matches("class=\"gpu hot\"").count(), 2);
    assert_eq!(html.matches("class=\"node-remove\"").count(), 1, "only of the one that is silent");
    assert!(html.contains("class=\"nodes editable\""), "who may edit sees it");
    assert!(html.contains("data-since=\"e-7\"") && html.contains("<path class=\"h7\" d=\"M58 0h1v1h-1z\">"));
    let empty = tags(&html).into_iter().find(|tag| tag.contains("data-empty")).unwrap();
    assert!(empty.contains("hidden"));
}

#[tokio::test]
async fn without_nodes_the_page_says_how_to_begin() {
    let html = page("/live").await;
    assert!(text(&html).contains("No node has sent anything yet."));
    assert!(html.contains("rankscope agent --server ") && html.contains("--agent-token-file"));
}

#[tokio::test]
async fn a_run_whose_job_goes_on_says_so() {
    let site = Site::new(Memory { goes_on: Some("01939f0a7e2b".into()), ..memory() });
    let (_, html) = site.get(SMI).await;
    assert!(text(&html).contains("The job is running") && html.contains("data-run=\"01939f0a7e2b\""));
    let (_, old) = site.get(&format!("{SMI}?version=1")).await;
    assert!(!old.contains("data-run="), "an old version does not change");
    let (_, other) = site.get(STEPS).await;
    assert!(!other.contains("data-run="));
}

#[tokio::test]
async fn what_was_held_at_the_end_is_no_peak() {
    let mut report = reports::step_log();
    let ranks = report.diagnosis.artifacts.iter().flat_map(|file| file.ranks.clone()).collect::<Vec<_>>();
    report.diagnosis.artifacts = ranks
        .iter()
        .map(|rank| {
            reports::file(&format!("snap_rank{rank}.pickle"), ArtifactKind::TorchSnapshot, &[*rank], &[], 1000, &[])
        })
        .collect();
    let imbalance = report.diagnosis.imbalance.as_mut().unwrap();
    (imbalance.quantity, imbalance.opens_at, imbalance.at) = (Quantity::Allocated, None, None);
    let heaviest = imbalance.heaviest[0];
    let end = imbalance.max_bytes;
    report.figures.peaks.as_mut().unwrap().quantity = Quantity::Allocated;
    let timeline = report.figures.timeline.as_mut().unwrap();
    timeline.quantity = Quantity::Requested;
    let line = timeline.lines.iter_mut().find(|line| line.subject == heaviest).unwrap();
    line.y[0] = end.0 + 3 * GIB;
    let site = Site::new(Memory { reports: vec![report.clone()], ..memory() });
    let shown = text(&site.get(STEPS).await.1);
    for words in [
        format!("{heaviest} at the end"),
        "allocated, when its snapshot was taken".to_owned(),
        "allocated, at the end".to_owned(),
        format!("{heaviest} peaks at"),
        Bytes(end.0 + 3 * GIB).to_string(),
        "requested, in its recording".to_owned(),
        "Each rank when its snapshot was taken".to_owned(),
    ] {
        assert!(shown.contains(&words), "{words}");
    }
    assert!(!shown.contains("Peak per rank"));
    // Without a recording only the end is known, and nothing else is said.
    report.figures.timeline = None;
    let shown = text(&Site::new(Memory { reports: vec![report], ..memory() }).get(STEPS).await.1);
    assert!(shown.contains("at the end") && !shown.contains("peaks at"));
}

#[tokio::test]
async fn rows_of_tables_and_code_keep_their_lines_and_scroll() {
    let html = page(SMI).await;
    let boxes = html.matches("class=\"sideways\"").count();
    assert!(boxes >= 2, "the table and the script: {boxes}");
    assert!(tags(&html).iter().any(|tag| tag.contains("class=\"sideways\"") && tag.contains("tabindex=\"0\"")));
}

#[tokio::test]
async fn chats_show_verdict_and_chart_beside_the_address_of_a_run() {
    let html = page(SMI).await;
    let of = |name: &str| {
        let tag = tags(&html).into_iter().find(|tag| tag.contains(&format!("property=\"{name}\""))).unwrap_or_default();
        attributes(tag, "content").first().copied().unwrap_or_default().to_owned()
    };
    assert!(of("og:image").ends_with("/runs/01939f0a7e2b/preview.png"), "{}", of("og:image"));
    assert!(of("og:description").contains("GPU 0"), "{}", of("og:description"));
}

#[tokio::test]
async fn the_bundles_code_is_asked_for_once_and_by_whoever_uses_it() {
    let mut site = Site::new(memory());
    site.has_bundle = true;
    let (_, html) = site.get(SMI).await;
    assert!(!html.contains("rel=\"preload\""), "browsers complain where nobody takes a preload in time");
    assert_eq!(html.matches("fetch(\"/pkg/rankscope_bg.wasm\")").count(), 1);
    assert!(html.contains("module_or_path: code"), "the script of this version of Leptos takes it from there");
    assert!(
        tags(&html)
            .iter()
            .any(|tag| tag.contains("rel=\"modulepreload\"") && tag.contains("href=\"/pkg/rankscope.js\""))
    );
}
