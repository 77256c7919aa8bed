//! Writes every chart in many situations to a folder, for looking at: `index.html` with the drawings inlined as on
//! the page, light and dark, desktop and phone, and the pictures as PNG files beside it.
//!
//! `cargo run -p rankscope-charts --features native --example gallery -- FOLDER`

mod figures;

use figures::{
    all_bands, all_peaks, compositions, every_kind, heatmaps, peaks, report, scatters, segments, timelines, v100_cards,
    v100_run,
};
use rankscope_charts::{BandsFigure, Theme, Token, png, svg};
use rankscope_model::{Figures, Verdict};
use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: gallery FOLDER")?);
    std::fs::create_dir_all(&folder)?;
    for (name, theme) in [("light", Theme::Light), ("dark", Theme::Dark)] {
        std::fs::write(folder.join(format!("{name}.html")), page(theme)?)?;
    }
    let report = report();
    std::fs::write(folder.join("preview.png"), png::preview(&report)?)?;
    let mut no_chart = report.clone();
    no_chart.figures = Figures::default();
    no_chart.diagnosis.verdict = Verdict::Inconclusive;
    "Nothing is settled yet: the log names no rank.".clone_into(&mut no_chart.diagnosis.summary);
    std::fs::write(folder.join("preview-words.png"), png::preview(&no_chart)?)?;
    std::fs::write(folder.join("timeline.png"), png::timeline(&v100_run(), 760, Theme::Light, 2)?)?;
    std::fs::write(folder.join("timeline-dark.png"), png::timeline(&v100_run(), 760, Theme::Dark, 2)?)?;
    std::fs::write(folder.join("peaks.png"), png::peaks(&peaks(8, &[0]), 760, Theme::Light, 2)?)?;
    std::fs::write(folder.join("composition.png"), png::composition(&v100_cards(), 760, Theme::Light, 2)?)?;
    std::fs::write(folder.join("timeline.svg"), svg::timeline(&v100_run(), 760, Theme::Light)?)?;
    std::fs::write(folder.join("composition.svg"), svg::composition(&every_kind(), 760, Theme::Dark)?)?;
    for (name, figure) in heatmaps() {
        println!("{name}: {}", rankscope_charts::describe_heatmap(&figure));
    }
    std::fs::write(folder.join("heatmap.png"), png::heatmap(&heatmaps()[0].1, 760, Theme::Light, 2)?)?;
    std::fs::write(folder.join("scatter.png"), png::scatter(&scatters()[0].1, 760, Theme::Dark, 2)?)?;
    println!("{}", folder.display());
    let long = figures::long_run();
    let points: usize = long.lines.iter().map(|line| line.x.len()).sum();
    let start = Instant::now();
    svg::timeline(&long, 1100, Theme::Page)?;
    println!("timeline of {points} points: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn page(theme: Theme) -> Result<String, Box<dyn Error>> {
    let mut variables = String::new();
    for token in Token::ALL {
        let plotters::style::RGBColor(r, g, b) = token.color(theme);
        write!(variables, "{}:#{r:02x}{g:02x}{b:02x};", token.variable())?;
    }
    let mut page = format!(
        "<!doctype html><meta charset=utf-8><title>Charts</title><style>:root{{{variables}}}\
         body{{background:var(--bg);color:var(--ink);font:15px/1.5 Inter,system-ui,sans-serif;margin:20px}}\
         .row{{display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start;margin:0 0 22px}}\
         .card{{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px}}\
         h2{{font-size:14px;margin:0 0 6px}}svg{{display:block}}</style>"
    );
    for (name, figure) in timelines() {
        row(&mut page, name, &[320, 760, 1100], |width| svg::timeline(&figure, width, Theme::Page))?;
    }
    for (name, figure) in heatmaps() {
        row(&mut page, name, &[320, 760, 1100], |width| svg::heatmap(&figure, width, Theme::Page))?;
    }
    for (name, figure) in scatters() {
        row(&mut page, name, &[320, 760, 1100], |width| svg::scatter(&figure, width, Theme::Page))?;
    }
    for (name, bands, accused) in all_bands() {
        let figure = BandsFigure { bands: &bands, accused: &accused, peak: bands.x.last().copied(), names: &[] };
        row(&mut page, name, &[320, 760, 1100], |width| svg::bands(figure, name, width, Theme::Page))?;
    }
    row(&mut page, "segments", &[320, 760, 1100], |width| svg::segments(&segments(30), width, Theme::Page))?;
    for (name, figure) in all_peaks() {
        row(&mut page, name, &[320, 760, 1100], |width| svg::peaks(&figure, width, Theme::Page))?;
    }
    for (name, figure) in compositions() {
        row(&mut page, name, &[320, 760, 1100], |width| svg::composition(&figure, width, Theme::Page))?;
    }
    Ok(page)
}

fn row<E: Error + 'static>(
    page: &mut String,
    name: &str,
    widths: &[u32],
    draw: impl Fn(u32) -> Result<String, E>,
) -> Result<(), Box<dyn Error>> {
    write!(page, "<h2>{name}</h2><div class=row>")?;
    for width in widths {
        write!(page, "<div class=card>{}</div>", draw(*width)?)?;
    }
    page.push_str("</div>");
    Ok(())
}
