//! The SVG as the page gets it: well-formed, coloured by variables, described in words.
#![cfg(feature = "native")]

#[path = "../examples/gallery/figures.rs"]
#[allow(dead_code, missing_docs)]
mod figures;

use rankscope_charts::{ChartError, Theme, Token, part_token, svg};
use rankscope_model::{
    Bytes, GIB, PartKind, PeakBar, Peaks, Phase, PhaseSpan, Quantity, Rank, SeriesAxis, Subject, Timeline,
    TimelineLine, TimelineMark,
};

fn small_timeline() -> Timeline {
    let line = |rank: u32, values: [u64; 4]| TimelineLine {
        subject: Subject::Rank(Rank(rank)),
        x: vec![0, 10, 20, 30],
        y: values.map(|gib| gib * GIB).to_vec(),
        accused: rank == 0,
    };
    Timeline {
        quantity: Quantity::DeviceUsed,
        axis: SeriesAxis::Step,
        lines: vec![line(0, [2, 18, 30, 30]), line(1, [2, 18, 24, 25])],
        capacity: Some(Bytes(32 * GIB)),
        phases: vec![
            PhaseSpan { phase: Phase::Train, from: 0, to: 20 },
            PhaseSpan { phase: Phase::Eval, from: 20, to: 30 },
        ],
        marks: vec![TimelineMark { x: 10, text: "gap opens <here> & \"now\"\u{1b}".to_owned() }],
    }
}

fn small_peaks() -> Peaks {
    let bar = |number: u32, gib: u64| PeakBar {
        subject: Subject::Device(number),
        peak: Bytes(gib * GIB),
        accused: number == 1,
    };
    Peaks {
        quantity: Quantity::PeakReserved,
        bars: vec![bar(0, 25), bar(1, 31), bar(2, 25)],
        median: Bytes(25 * GIB),
        capacity: Some(Bytes(32 * GIB)),
        per_node: None,
        at: None,
    }
}

/// Reads the tags of a document and fails where they do not close. Returns all attribute values and texts.
fn read_xml(document: &str) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut contents = Vec::new();
    let mut rest = document;
    while let Some(start) = rest.find('<') {
        contents.push(rest[..start].to_owned());
        let end = start + rest[start..].find('>').expect("a tag closes");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        contents.extend(tag.split('"').skip(1).step_by(2).map(str::to_owned));
        if !tag.ends_with('/') {
            open.push(tag.split(' ').next().expect("a tag has a name"));
        }
    }
    assert!(open.is_empty() && rest.is_empty());
    for content in &contents {
        assert!(!content.contains(|c: char| c.is_control()), "{content}");
        for entity in content.split('&').skip(1) {
            let is_known = ["lt;", "gt;", "amp;", "quot;"].iter().any(|known| entity.starts_with(known));
            assert!(is_known, "{content}");
        }
    }
    contents
}

#[test]
fn a_timeline_on_the_page() {
    let drawn = svg::timeline(&small_timeline(), 320, Theme::Page).unwrap();
    read_xml(&drawn);
    insta::assert_snapshot!(drawn.replace("><", ">\n<"));
}

#[test]
fn peaks_on_the_page() {
    let drawn = svg::peaks(&small_peaks(), 320, Theme::Page).unwrap();
    read_xml(&drawn);
    insta::assert_snapshot!(drawn.replace("><", ">\n<"));
}

#[test]
fn a_composition_in_a_file() {
    let drawn = svg::composition(&figures::every_kind(), 480, Theme::Dark).unwrap();
    read_xml(&drawn);
    insta::assert_snapshot!(drawn.replace("><", ">\n<"));
}

#[test]
fn the_page_gets_variables_only_and_a_file_gets_none() {
    for (name, figure) in figures::timelines() {
        let page = svg::timeline(&figure, 760, Theme::Page).unwrap();
        let texts = read_xml(&page);
        assert!(texts.iter().all(|text| !text.starts_with('#')), "{name}: a fixed colour in the page");
        let variables = texts.iter().filter_map(|text| text.strip_prefix("var(")?.strip_suffix(')'));
        for variable in variables {
            assert!(Token::ALL.iter().any(|token| token.variable() == variable), "{name}: {variable}");
        }
        let file = svg::timeline(&figure, 760, Theme::Dark).unwrap();
        assert!(!file.contains("var("), "{name}");
    }
}

#[test]
fn key_and_drawing_agree_on_colours() {
    let drawn = svg::composition(&figures::every_kind(), 760, Theme::Page).unwrap();
    for kind in PartKind::ALL {
        assert!(drawn.contains(&format!("fill=\"var({})\"", part_token(kind))), "{kind:?}");
    }
}

#[test]
fn the_words_say_what_the_picture_shows() {
    let drawn = svg::timeline(&figures::v100_run(), 760, Theme::Page).unwrap();
    let label = drawn.split("aria-label=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert_eq!(
        label,
        "Device used over time, 8 ranks: rank 0 stands out; maximum 31.5 GiB, median of the peaks 25.5 GiB, \
         capacity 31.8 GiB."
    );
    let drawn = svg::peaks(&small_peaks(), 760, Theme::Page).unwrap();
    assert!(drawn.contains(
        "aria-label=\"Highest peak reserved of 3 GPUs: GPU 1 stands out; maximum 31.0 GiB, median 25.0 GiB, \
         capacity 32.0 GiB.\""
    ));
}

#[test]
fn a_page_stays_light_with_many_ranks() {
    for (name, figure) in figures::timelines() {
        let drawn = svg::timeline(&figure, 1100, Theme::Page).unwrap();
        assert!(drawn.len() < 100_000, "{name}: {} bytes", drawn.len());
    }
    for (name, figure) in figures::all_peaks() {
        let drawn = svg::peaks(&figure, 1100, Theme::Page).unwrap();
        assert!(drawn.len() < 40_000, "{name}: {} bytes", drawn.len());
    }
    let long = svg::timeline(&figures::long_run(), 1100, Theme::Page).unwrap();
    assert!(long.len() < 150_000, "{} bytes", long.len());
}

#[test]
fn nothing_to_draw_is_an_error() {
    let empty = Timeline { lines: Vec::new(), ..small_timeline() };
    assert!(matches!(svg::timeline(&empty, 760, Theme::Page), Err(ChartError::Empty)));
    assert!(matches!(svg::composition(&[], 760, Theme::Page), Err(ChartError::Empty)));
}
