//! The pictures: right size, right colours, readable by a decoder.
#![cfg(feature = "native")]

#[path = "../examples/gallery/figures.rs"]
#[allow(dead_code, missing_docs)]
mod figures;

use rankscope_charts::{ChartError, Theme, Token, png as pictures};
use rankscope_model::Figures;

struct Picture {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

fn decode(bytes: &[u8]) -> Picture {
    let mut reader = png::Decoder::new(bytes).read_info().expect("a PNG");
    let mut rgb = vec![0; reader.output_buffer_size()];
    let info = reader.next_frame(&mut rgb).expect("a whole PNG");
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
    Picture { width: info.width, height: info.height, rgb }
}

impl Picture {
    /// How many points have exactly this colour.
    fn count(&self, token: Token, theme: Theme) -> usize {
        let color = token.color(theme);
        self.rgb.chunks_exact(3).filter(|point| **point == [color.0, color.1, color.2]).count()
    }
}

#[test]
fn pictures_have_the_asked_size_and_the_hot_colour() {
    for density in [1, 2] {
        let picture = decode(&pictures::timeline(&figures::v100_run(), 760, Theme::Dark, density).unwrap());
        assert_eq!(picture.width, (760 + 24) * density);
        assert!(picture.height > 200 * density && picture.height < 500 * density);
        assert!(picture.count(Token::Hot, Theme::Dark) > 100);
        assert!(picture.count(Token::Card, Theme::Dark) > picture.rgb.len() / 3 / 2, "mostly paper");
    }
    let calm = decode(&pictures::peaks(&figures::peaks(8, &[]), 480, Theme::Light, 2).unwrap());
    assert_eq!(calm.count(Token::Hot, Theme::Light), 0, "nobody is accused");
    let rows = decode(&pictures::composition(&figures::v100_cards(), 480, Theme::Light, 1).unwrap());
    assert!(rows.count(Token::Foreign, Theme::Light) > 100);
}

#[test]
fn a_preview_is_a_card_of_the_usual_size() {
    let mut report = figures::report();
    let picture = decode(&pictures::preview(&report).unwrap());
    assert_eq!((picture.width, picture.height), pictures::PREVIEW_SIZE);
    let bar = picture.count(Token::Hot, Theme::Light) - 12 * 630;
    assert!(bar > 5000, "the accused bar is hot: {bar}");

    report.diagnosis.summary = "GPU 0 is fuller than the median card, and this is said at length. ".repeat(12);
    let of_many_words = decode(&pictures::preview(&report).unwrap());
    assert!(of_many_words.count(Token::Hot, Theme::Light) - 12 * 630 > 5000, "many words leave room for the bars");

    report.figures.peaks = None;
    let with_timeline = decode(&pictures::preview(&report).unwrap());
    report.figures = Figures::default();
    report.diagnosis.summary = "很长 ".repeat(200);
    let words_only = decode(&pictures::preview(&report).unwrap());
    assert!(with_timeline.rgb != words_only.rgb);
}

#[test]
fn nothing_to_draw_is_an_error() {
    assert!(matches!(pictures::composition(&[], 480, Theme::Light, 1), Err(ChartError::Empty)));
}
