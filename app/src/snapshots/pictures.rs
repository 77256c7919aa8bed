//! The page's drawings as files, for the rank that is looked at. Knows figures and names, no address but its own.

use super::over_time::{describe, line, only_here};
use super::subjects::{Subject, Wanted, subjects};
use crate::backend::NamedSnapshot;
use crate::words;
use leptos::prelude::*;
use rankscope_charts::{BandsFigure, ChartError, Theme, png, svg};

/// What can be had as a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Picture {
    /// Live memory over the recording, by line of code.
    OverTime,
    /// How full the segments are.
    Segments,
}

impl Picture {
    /// As the address writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OverTime => "over-time",
            Self::Segments => "segments",
        }
    }

    /// By the name in an address.
    pub fn named(name: &str) -> Option<Self> {
        [Self::OverTime, Self::Segments].into_iter().find(|picture| picture.name() == name)
    }

    fn words(self) -> &'static str {
        match self {
            Self::OverTime => "Live memory by line of code",
            Self::Segments => "Segments",
        }
    }
}

/// How it is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    /// CSS pixels.
    pub width: u32,
    /// Colours.
    pub theme: Theme,
    /// Picture points of a PNG for each CSS pixel; `None` for an SVG.
    pub density: Option<u32>,
}

/// The picture of the rank that is asked for, or of the fullest one.
///
/// Errors: [`ChartError::Empty`] where the snapshots have nothing for it.
pub fn picture(
    snapshots: &[NamedSnapshot],
    wanted: &Wanted,
    which: Picture,
    drawn: Drawn,
) -> Result<Vec<u8>, ChartError> {
    let Drawn { width, theme, density } = drawn;
    let found = subjects(snapshots, wanted).ok_or(ChartError::Empty)?;
    let picked = found.picked();
    match which {
        Picture::OverTime => {
            let bands = picked.device.bands.as_ref().ok_or(ChartError::Empty)?;
            let accused = only_here(&found, bands);
            let names: Vec<String> = bands.sites.iter().map(|site| line(site.frame.as_ref())).collect();
            let peak = picked.device.peak.as_ref().and_then(|peak| peak.x);
            let figure = BandsFigure { bands, accused: &accused, peak, names: &names };
            match density {
                Some(density) => png::bands(figure, width, theme, density),
                None => svg::bands(figure, &describe(picked), width, theme).map(String::into_bytes),
            }
        }
        Picture::Segments => {
            let map = picked.device.map.as_ref().filter(|map| !map.segments.is_empty()).ok_or(ChartError::Empty)?;
            match density {
                Some(density) => png::segments(map, width, theme, density),
                None => svg::segments(map, width, theme).map(String::into_bytes),
            }
        }
    }
}

/// Links to both files of a picture.
pub fn links(run: &str, subject: &Subject<'_>, picture: Picture) -> AnyView {
    let link = |format: &str, kind: &'static str| {
        let (name, key) = (picture.name(), &subject.key);
        let address = format!("/api/v1/runs/{run}/snapshots/charts/{name}.{format}?rank={}", words::encoded(key));
        let file = format!("rankscope-{name}-{key}.{format}");
        view! { <a href=address download=file aria-label=format!("{} as {kind}", picture.words())>{kind}</a> }
    };
    view! { <span class="chart-files">{link("svg", "SVG")}{link("png", "PNG")}</span> }.into_any()
}
