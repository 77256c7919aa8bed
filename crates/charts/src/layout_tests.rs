//! Draws on a backend that only remembers, and checks what a reader would stumble over: text outside the picture,
//! text over text, text too small.

#[path = "../examples/gallery/figures.rs"]
#[allow(dead_code, missing_docs)]
mod figures;

use crate::ink::Frame;
use crate::style::PLOTTERS_EM;
use crate::{
    BandsFigure, ChartError, Geometry, Style, Theme, bands_height, composition_height, draw_bands, draw_composition,
    draw_heatmap, draw_peaks, draw_scatter, draw_segments, draw_timeline, heatmap_height, peaks_height, scatter_height,
    segments_height, text, timeline_height,
};
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea};
use plotters_backend::text_anchor::HPos;
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontStyle,
};
use proptest::prelude::*;
use rankscope_model::{
    Bytes, Composition, Part, PartKind, PeakBar, Peaks, Phase, PhaseSpan, Quantity, Rank, Scatter, ScatterCloud,
    ScatterFit, SeriesAxis, Subject, Timeline, TimelineLine, TimelineMark,
};
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

/// Backend units per CSS pixel.
const UNITS: f64 = 8.0;
const HOT: (u8, u8, u8) = (0xc8, 0x40, 0x1b);

#[derive(Debug, Clone)]
struct Written {
    text: String,
    size: f64,
    is_bold: bool,
    rgb: (u8, u8, u8),
    frame: Frame,
}

#[derive(Debug, Default)]
struct Record {
    texts: Vec<Written>,
    /// All corners of lines and shapes, in CSS pixels.
    corners: Vec<(f64, f64)>,
    /// Hot shapes and lines.
    hot: usize,
}

struct Recorder {
    size: (u32, u32),
    record: Rc<RefCell<Record>>,
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

fn pixels(at: BackendCoord) -> (f64, f64) {
    (f64::from(at.0) / UNITS, f64::from(at.1) / UNITS)
}

impl Recorder {
    fn note(&mut self, corners: impl IntoIterator<Item = BackendCoord>, color: BackendColor) {
        let mut record = self.record.borrow_mut();
        record.corners.extend(corners.into_iter().map(pixels));
        record.hot += usize::from(color.rgb == HOT);
    }
}

impl DrawingBackend for Recorder {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, at: BackendCoord, color: BackendColor) -> Drawn {
        self.note([at], color);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.note([from, to], style.color());
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(&mut self, a: BackendCoord, b: BackendCoord, style: &S, _: bool) -> Drawn {
        self.note([a, b], style.color());
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        self.note(path, style.color());
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(&mut self, center: BackendCoord, _: u32, style: &S, _: bool) -> Drawn {
        self.note([center], style.color());
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        self.note(path, style.color());
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, content: &str, style: &S, at: BackendCoord) -> Drawn {
        let size = style.size() / PLOTTERS_EM / UNITS;
        let is_bold = matches!(style.style(), FontStyle::Bold);
        let width = text::width(content, size, is_bold);
        let (x, y) = pixels(at);
        let left = match style.anchor().h_pos {
            HPos::Left => x,
            HPos::Center => x - width / 2.0,
            HPos::Right => x - width,
        };
        // Capitals and digits; descenders of one row may reach into the leading of the next.
        let half = size * 0.42;
        let frame = Frame { left, right: left + width, top: y - half, bottom: y + half };
        let written = Written { text: content.to_owned(), size, is_bold, rgb: style.color().rgb, frame };
        self.record.borrow_mut().texts.push(written);
        Ok(())
    }
}

fn record(
    (width, height): (u32, u32),
    draw: impl FnOnce(&DrawingArea<Recorder, Shift>, &Style) -> Result<Geometry, ChartError>,
) -> Result<(Record, Geometry), ChartError> {
    let record = Rc::new(RefCell::new(Record::default()));
    let units = |pixels: u32| pixels * 8;
    let recorder = Recorder { size: (units(width), units(height)), record: Rc::clone(&record) };
    let style = Style::new(Theme::Light).with_scale(UNITS);
    let geometry = draw(&recorder.into_drawing_area(), &style)?;
    Ok((record.take(), geometry))
}

/// Everything that must hold for any picture.
fn check(what: &str, (width, height): (u32, u32), record: &Record, geometry: &Geometry) {
    let (width, height) = (f64::from(width), f64::from(height));
    for written in &record.texts {
        let Frame { left, top, right, bottom } = written.frame;
        assert!(
            left >= -0.2 && top >= -0.2 && right <= width + 0.2 && bottom <= height + 0.2,
            "{what}: {written:?} leaves the {width} by {height} picture"
        );
        assert!(written.size >= 11.0, "{what}: {written:?} is too small");
        assert!(!written.text.contains("NaN") && !written.text.contains("inf"), "{what}: {written:?}");
    }
    for (index, a) in record.texts.iter().enumerate() {
        for b in &record.texts[index + 1..] {
            let apart = a.frame.right <= b.frame.left + 0.2
                || b.frame.right <= a.frame.left + 0.2
                || a.frame.bottom <= b.frame.top + 0.2
                || b.frame.bottom <= a.frame.top + 0.2;
            assert!(apart, "{what} at {width}: {a:?} over {b:?}");
        }
    }
    for (x, y) in &record.corners {
        let inside = *x >= -1.0 && *y >= -1.0 && *x <= width + 1.0 && *y <= height + 1.0;
        assert!(inside, "{what}: {x}, {y} outside {width} by {height}");
    }
    assert!(geometry.left < geometry.right && geometry.top < geometry.bottom, "{what}: {geometry:?}");
    assert!(geometry.right <= width && geometry.bottom <= height, "{what}: {geometry:?}");
}

const WIDTHS: [u32; 4] = [320, 480, 760, 1100];

#[test]
fn timelines_are_free_of_overlaps() {
    for (name, figure) in figures::timelines() {
        for width in WIDTHS {
            let size = (width, timeline_height(&figure, width));
            let (record, geometry) = record(size, |area, style| draw_timeline(area, &figure, style)).unwrap();
            check(name, size, &record, &geometry);
            let is_accusing = figure.lines.iter().any(|line| line.accused) || !figure.marks.is_empty();
            assert_eq!(record.hot > 0, is_accusing, "{name}: hot is for the accused");
            if let Some(capacity) = figure.capacity {
                let is_told = record.texts.iter().any(|written| written.text.starts_with("capacity "));
                assert!(is_told, "{name} at {width} does not tell the capacity {capacity}");
            }
        }
    }
}

#[test]
fn heatmaps_are_free_of_overlaps() {
    for (name, figure) in figures::heatmaps() {
        for width in WIDTHS {
            let size = (width, heatmap_height(&figure, width));
            let (record, geometry) = record(size, |area, style| draw_heatmap(area, &figure, style)).unwrap();
            check(name, size, &record, &geometry);
            assert!(record.hot > 0, "{name}: somebody is far above");
        }
    }
}

#[test]
fn scatters_are_free_of_overlaps() {
    for (name, figure) in figures::scatters() {
        for width in WIDTHS {
            let size = (width, scatter_height(&figure, width));
            let (record, geometry) = record(size, |area, style| draw_scatter(area, &figure, style)).unwrap();
            check(name, size, &record, &geometry);
        }
    }
}

#[test]
fn bands_and_segments_are_free_of_overlaps() {
    for (name, bands, accused) in figures::all_bands() {
        for width in WIDTHS {
            for peak in [None, bands.x.first().copied(), bands.x.last().copied()] {
                let names: Vec<String> =
                    (0..bands.sites.len()).map(|n| format!("train.py:{n} a_function_with_a_long_name")).collect();
                for names in [&names[..], &[]] {
                    let figure = BandsFigure { bands: &bands, accused: &accused, peak, names };
                    let size = (width, bands_height(figure, width));
                    let (record, geometry) = record(size, |area, style| draw_bands(area, figure, style)).unwrap();
                    check(name, size, &record, &geometry);
                    // The drawing has every number of the key, once in the plot and once in a key of its own.
                    for number in 1..=bands.sites.len() {
                        let found = record.texts.iter().filter(|written| written.text == number.to_string());
                        let in_plot = found.filter(|written| {
                            written.frame.top < geometry.bottom && written.frame.left > geometry.left
                        });
                        assert_eq!(in_plot.count(), 1, "{name}: {number} at {width}");
                    }
                    let rest = record.texts.iter().filter(|written| written.text.starts_with("all other")).count();
                    assert_eq!(
                        rest > 0,
                        !figure.names.is_empty() && bands.rest.iter().any(|bytes| *bytes > 0),
                        "{name}"
                    );
                }
            }
        }
    }
    for count in [1, 5, 48] {
        let map = figures::segments(count);
        for width in WIDTHS {
            let size = (width, segments_height(&map));
            let (record, geometry) = record(size, |area, style| draw_segments(area, &map, style)).unwrap();
            check("segments", size, &record, &geometry);
        }
    }
}

#[test]
fn peaks_are_free_of_overlaps() {
    for (name, figure) in figures::all_peaks() {
        for width in WIDTHS {
            let size = (width, peaks_height(&figure, width));
            let (record, geometry) = record(size, |area, style| draw_peaks(area, &figure, style)).unwrap();
            check(name, size, &record, &geometry);
            let accused = figure.bars.iter().filter(|bar| bar.accused);
            let named = record.texts.iter().filter(|written| written.rgb == HOT && written.is_bold).count();
            assert_eq!(accused.count() > 0, named > 0, "{name}: who stands out has a word");
            assert!(record.texts.iter().any(|written| written.text == "median"), "{name}");
        }
    }
}

fn texts(record: &Record) -> Vec<&str> {
    record.texts.iter().map(|written| written.text.as_str()).collect()
}

#[test]
fn neighbours_that_stand_out_share_a_flag_and_a_name() {
    let mut figure = figures::peaks(64, &[0, 1, 2, 3, 30, 60, 61, 62, 63]);
    for bar in &mut figure.bars {
        bar.subject = Subject::Rank(Rank(bar.subject.device().unwrap()));
    }
    for width in [760, 1100] {
        let size = (width, peaks_height(&figure, width));
        let (record, geometry) = record(size, |area, style| draw_peaks(area, &figure, style)).unwrap();
        check("ends of a pipeline", size, &record, &geometry);
        let texts = texts(&record);
        for name in ["0\u{2013}3", "30", "60\u{2013}63"] {
            assert!(texts.contains(&name), "{width}: {name} is not below the bars: {texts:?}");
        }
        for part in ["1", "2", "61", "62"] {
            assert!(!texts.contains(&part), "{width}: {part} is a part of a span: {texts:?}");
        }
        for flag in ["ranks 0 to 3: up to 31.", "rank 30: 31.", "ranks 60 to 63: up to 31."] {
            assert!(texts.iter().any(|text| text.starts_with(flag)), "{width}: {flag}: {texts:?}");
        }
        assert!(!texts.iter().any(|text| text.ends_with("stand out")), "all of them are named");
    }
    // With its value below it each bar has its own name.
    let few = figures::peaks(8, &[2, 3]);
    let (record, _) = record((760, peaks_height(&few, 760)), |area, style| draw_peaks(area, &few, style)).unwrap();
    assert!(texts(&record).contains(&"2") && texts(&record).contains(&"3"));
}

#[test]
fn names_below_the_bars_keep_clear_of_each_other() {
    for heavy in 0..64 {
        let figure = figures::peaks(64, &[heavy]);
        for width in WIDTHS {
            let size = (width, peaks_height(&figure, width));
            let (record, geometry) = record(size, |area, style| draw_peaks(area, &figure, style)).unwrap();
            let names = record.texts.iter().filter(|written| written.frame.top > geometry.bottom);
            let mut frames: Vec<Frame> =
                names.filter(|written| written.text.parse::<u32>().is_ok()).map(|written| written.frame).collect();
            frames.sort_by(|a, b| a.left.total_cmp(&b.left));
            for pair in frames.windows(2) {
                let gap = pair[1].left - pair[0].right;
                assert!(gap >= 7.0, "heavy {heavy} at {width}: {gap} between {pair:?}");
            }
        }
    }
}

#[test]
fn rows_of_a_heatmap_say_what_they_are_and_neighbours_share_a_name() {
    let line = |rank: u32| TimelineLine {
        subject: Subject::Rank(Rank(rank)),
        x: (0..20).collect(),
        y: vec![if rank >= 60 { 30 << 30 } else { 20 << 30 }; 20],
        accused: rank >= 60,
    };
    let figure = Timeline {
        quantity: Quantity::PeakAllocated,
        axis: SeriesAxis::Step,
        lines: (0..64).map(line).collect(),
        capacity: None,
        phases: vec![],
        marks: vec![],
    };
    for width in WIDTHS {
        let size = (width, heatmap_height(&figure, width));
        let (record, geometry) = record(size, |area, style| draw_heatmap(area, &figure, style)).unwrap();
        check("four heavy neighbours", size, &record, &geometry);
        let texts = texts(&record);
        assert!(texts.contains(&"rank") && texts.contains(&"60\u{2013}63"), "{texts:?}");
        assert!(!texts.contains(&"62"), "{texts:?}");
    }
}

#[test]
fn compositions_are_free_of_overlaps() {
    for (name, rows) in figures::compositions() {
        for width in WIDTHS {
            for has_key in [false, true] {
                let size = (width, composition_height(&rows, width, has_key));
                let draw = |area: &DrawingArea<Recorder, Shift>, style: &Style| {
                    let style = if has_key { style.clone().with_key() } else { style.clone() };
                    draw_composition(area, &rows, &style)
                };
                let (record, geometry) = record(size, draw).unwrap();
                check(name, size, &record, &geometry);
            }
        }
    }
}

#[test]
fn empty_figures_and_tiny_areas_are_errors() {
    let mut timeline = figures::v100_run();
    let draw = |size, figure: &Timeline| record(size, |area, style| draw_timeline(area, figure, style));
    assert!(matches!(draw((120, 300), &timeline), Err(ChartError::TooSmall { width: 120, height: 300 })));
    assert!(matches!(draw((700, 80), &timeline), Err(ChartError::TooSmall { .. })));
    for line in &mut timeline.lines {
        line.y.clear();
    }
    assert_eq!(timeline_height(&timeline, 760), 0);
    assert!(matches!(draw((700, 300), &timeline), Err(ChartError::Empty)));

    let peaks = Peaks { bars: Vec::new(), ..figures::peaks(1, &[]) };
    assert!(matches!(record((700, 300), |area, style| draw_peaks(area, &peaks, style)), Err(ChartError::Empty)));
    assert!(matches!(record((700, 300), |area, style| draw_composition(area, &[], style)), Err(ChartError::Empty)));
}

#[test]
fn geometry_matches_the_data() {
    let figure = figures::v100_run();
    let size = (760, timeline_height(&figure, 760));
    let (record, geometry) = record(size, |area, style| draw_timeline(area, &figure, style)).unwrap();
    assert_eq!((geometry.x_min, geometry.x_max), (figure.lines[0].x[0], *figure.lines[0].x.last().unwrap()));
    // The last dot of rank 0 stands where its value says.
    let value = *figure.lines[0].y.last().unwrap() as f64;
    let y = geometry.bottom - value / geometry.y_max as f64 * (geometry.bottom - geometry.top);
    let is_there =
        record.corners.iter().any(|corner| (corner.0 - geometry.right).abs() < 0.2 && (corner.1 - y).abs() < 0.2);
    assert!(is_there, "no point at {}, {y}", geometry.right);
}

fn any_value() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), 0..1u64 << 20, 0..1u64 << 37, any::<u64>()]
}

fn any_x() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(i64::MIN),
        Just(i64::MAX),
        -5..5000i64,
        1_700_000_000_000_000..1_700_000_900_000_000i64,
        any::<i64>()
    ]
}

fn any_subject() -> impl Strategy<Value = Subject> {
    prop_oneof![
        (0..2000u32).prop_map(|rank| Subject::Rank(Rank(rank))),
        any::<u32>().prop_map(Subject::Device),
        (0..8u32, 0..14u32, 0..7u32).prop_map(|(device, gpu_instance, compute_instance)| Subject::MigSlice {
            device,
            gpu_instance,
            compute_instance
        }),
    ]
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    prop_oneof![Just(Quantity::DeviceUsed), Just(Quantity::PeakAllocated), Just(Quantity::BatchTokens)]
}

prop_compose! {
    fn any_line()(
        subject in any_subject(),
        x in prop::collection::vec(any_x(), 0..30),
        y in prop::collection::vec(any_value(), 0..30),
        accused in any::<bool>(),
        is_sorted in any::<bool>(),
    ) -> TimelineLine {
        let mut x = x;
        if is_sorted {
            x.sort_unstable();
        }
        TimelineLine { subject, x, y, accused }
    }
}

prop_compose! {
    fn any_timeline()(
        quantity in any_quantity(),
        axis in prop_oneof![Just(SeriesAxis::Step), Just(SeriesAxis::UnixMicros), Just(SeriesAxis::Index)],
        lines in prop::collection::vec(any_line(), 0..40),
        capacity in prop::option::of(any_value().prop_map(Bytes)),
        phases in prop::collection::vec((any_x(), any_x()), 0..6),
        marks in prop::collection::vec((any_x(), ".{0,60}"), 0..6),
    ) -> Timeline {
        let words = [Phase::Init, Phase::Train, Phase::Eval, Phase::Save, Phase::Resume];
        let phases = phases.into_iter().zip(words).map(|((from, to), phase)| PhaseSpan { phase, from, to }).collect();
        let marks = marks.into_iter().map(|(x, text)| TimelineMark { x, text }).collect();
        Timeline { quantity, axis, lines, capacity, phases, marks }
    }
}

prop_compose! {
    fn any_peaks()(
        quantity in any_quantity(),
        bars in prop::collection::vec((any_subject(), any_value(), any::<bool>()), 0..150),
        median in any_value(),
        capacity in prop::option::of(any_value().prop_map(Bytes)),
        per_node in prop::option::of(0..40u32),
        at in prop::option::of("at step [0-9]{1,6}"),
    ) -> Peaks {
        let bars = bars.into_iter().map(|(subject, peak, accused)| PeakBar { subject, peak: Bytes(peak), accused });
        Peaks { quantity, bars: bars.collect(), median: Bytes(median), capacity, per_node, at }
    }
}

prop_compose! {
    fn any_cloud()(
        subject in any_subject(),
        x in prop::collection::vec(any_value(), 0..30),
        y in prop::collection::vec(any_value(), 0..30),
        accused in any::<bool>(),
    ) -> ScatterCloud {
        ScatterCloud { subject, x, y, accused }
    }
}

prop_compose! {
    fn any_scatter()(
        clouds in prop::collection::vec(any_cloud(), 0..20),
        capacity in prop::option::of(any_value().prop_map(Bytes)),
        fit in prop::option::of((-1.0..1.0f64, any::<f64>(), any::<f64>())),
        input in prop_oneof![Just(Quantity::BatchTokens), Just(Quantity::BatchSamples)],
        quantity in any_quantity(),
    ) -> Scatter {
        let fit = fit.map(|(r, intercept, slope)| ScatterFit { r, intercept, slope });
        Scatter { input, quantity, clouds, capacity, fit }
    }
}

prop_compose! {
    fn any_row()(
        subject in any_subject(),
        capacity in prop::option::of(any_value().prop_map(Bytes)),
        parts in prop::collection::vec((0..PartKind::ALL.len(), any_value()), 0..PartKind::ALL.len() + 1),
        accused in any::<bool>(),
    ) -> Composition {
        let kinds = PartKind::ALL;
        let parts = parts.into_iter().map(|(kind, bytes)| Part { kind: kinds[kind], bytes: Bytes(bytes) }).collect();
        Composition { subject, capacity, parts, source: String::new(), accused }
    }
}

/// Draws and checks; only emptiness and lack of room may refuse.
fn check_any(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<Recorder, Shift>, &Style) -> Result<Geometry, ChartError>,
) {
    match record(size, draw) {
        Ok((record, geometry)) => check("any", size, &record, &geometry),
        Err(ChartError::Empty | ChartError::TooSmall { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_timeline_is_drawn_or_refused(figure in any_timeline(), width in 200..1200u32) {
        check_any((width, timeline_height(&figure, width)), |area, style| draw_timeline(area, &figure, style));
    }

    #[test]
    fn any_heatmap_is_drawn_or_refused(figure in any_timeline(), width in 200..1200u32) {
        check_any((width, heatmap_height(&figure, width)), |area, style| draw_heatmap(area, &figure, style));
    }

    #[test]
    fn any_scatter_is_drawn_or_refused(figure in any_scatter(), width in 200..1200u32) {
        check_any((width, scatter_height(&figure, width)), |area, style| draw_scatter(area, &figure, style));
    }

    #[test]
    fn any_peaks_are_drawn_or_refused(figure in any_peaks(), width in 200..1200u32) {
        check_any((width, peaks_height(&figure, width)), |area, style| draw_peaks(area, &figure, style));
    }

    #[test]
    fn any_composition_is_drawn_or_refused(
        rows in prop::collection::vec(any_row(), 0..90),
        width in 200..1200u32,
    ) {
        let size = (width, composition_height(&rows, width, false));
        check_any(size, |area, style| draw_composition(area, &rows, style));
    }
}
