//! What a caller chooses about a drawing (colours, density, font), and what he learns from it.

use crate::palette::{Palette, Theme, Token};
use rankscope_model::SeriesAxis;

/// Colours, density and font of a drawing.
///
/// Charts are laid out in CSS pixels; `scale` says how many units of the backend make one. A canvas passes its
/// device pixel ratio.
#[derive(Debug, Clone, PartialEq)]
pub struct Style {
    pub(crate) palette: Palette,
    pub(crate) scale: f64,
    pub(crate) font: String,
    pub(crate) text_scale: f64,
    pub(crate) key: bool,
    reaches: u64,
}

impl Style {
    /// The fixed colours of a theme at one backend unit per CSS pixel.
    pub fn new(theme: Theme) -> Self {
        Self {
            palette: Palette::of(theme),
            scale: 1.0,
            font: "sans-serif".to_owned(),
            text_scale: PLOTTERS_EM,
            key: false,
            reaches: 0,
        }
    }

    /// Backend units per CSS pixel; kept between 0.25 and 64.
    #[must_use]
    pub fn with_scale(mut self, scale: f64) -> Self {
        self.scale = if scale.is_finite() { scale.clamp(0.25, 64.0) } else { 1.0 };
        self
    }

    /// Font family for backends that choose a font by name, such as a canvas.
    #[must_use]
    pub fn with_font(mut self, family: &str) -> Self {
        family.clone_into(&mut self.font);
        self
    }

    /// What a backend's font size must be multiplied with to give the em in units; plotters' own backends divide
    /// the size by 1.24, which is the default. A canvas that takes the size as it is passes 1.
    #[must_use]
    pub fn with_text_scale(mut self, text_scale: f64) -> Self {
        self.text_scale = if text_scale.is_finite() { text_scale.clamp(0.5, 2.0) } else { PLOTTERS_EM };
        self
    }

    /// Draws the colour key under the composition, for pictures that stand alone.
    #[must_use]
    pub fn with_key(mut self) -> Self {
        self.key = true;
        self
    }

    /// The axis of values goes at least so far, so that several drawings share a scale. Heeded by the peaks.
    #[must_use]
    pub fn reaching(mut self, value: u64) -> Self {
        self.reaches = value;
        self
    }

    pub(crate) fn reaches(&self) -> u64 {
        self.reaches
    }

    /// Other values for some colours, for a canvas that reads the page's own.
    #[must_use]
    pub fn with_color(mut self, token: Token, red: u8, green: u8, blue: u8) -> Self {
        self.palette.set(token, red, green, blue);
        self
    }

    #[cfg(feature = "native")]
    pub(crate) fn with_palette(mut self, palette: Palette) -> Self {
        self.palette = palette;
        self
    }
}

/// plotters means the height of a line by the size of a font, which it takes to be 1.24 em.
pub(crate) const PLOTTERS_EM: f64 = 1.24;

/// Where the data stand in a finished drawing, in CSS pixels, for hovering.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Geometry {
    /// Left edge of the data.
    pub left: f64,
    /// Right edge.
    pub right: f64,
    /// Upper edge.
    pub top: f64,
    /// Lower edge.
    pub bottom: f64,
    /// Value at the left edge; 0 for subjects.
    pub x_min: i64,
    /// Value at the right edge; the number of subjects less one for subjects, whose columns are equally wide.
    pub x_max: i64,
    /// Value at the upper edge (of a composition: at the right edge), in bytes; the other end is always 0.
    pub y_max: u64,
    /// What stands along the chart.
    pub axis: Axis,
}

/// What stands along a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Training steps.
    Step,
    /// Microseconds since the Unix epoch.
    UnixMicros,
    /// Microseconds since each subject's own recording began.
    SinceStart,
    /// Index of the event or row.
    Index,
    /// Ranks or devices by their place in the figure.
    Subject,
    /// Tokens or samples.
    Input,
}

impl Axis {
    /// `step`, `unix_micros`, `since_start`, `index`, `subject` or `input`.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::UnixMicros => "unix_micros",
            Self::SinceStart => "since_start",
            Self::Index => "index",
            Self::Subject => "subject",
            Self::Input => "input",
        }
    }
}

impl From<SeriesAxis> for Axis {
    fn from(axis: SeriesAxis) -> Self {
        match axis {
            SeriesAxis::Step => Self::Step,
            SeriesAxis::UnixMicros => Self::UnixMicros,
            SeriesAxis::SinceStart => Self::SinceStart,
            SeriesAxis::Index => Self::Index,
        }
    }
}
