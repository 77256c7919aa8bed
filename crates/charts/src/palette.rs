//! The colours by name, and which theme gives them which value. Knows no chart.
//!
//! The names are the CSS variables of the page, so that an inlined SVG follows the page between light and dark.

use plotters::style::RGBColor;
use rankscope_model::PartKind;

/// Where a picture will stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Theme {
    /// Fixed colours for light paper.
    Light,
    /// Fixed colours for dark paper.
    Dark,
    /// For inlining into the page: colours become CSS variables and the background stays transparent. In a PNG,
    /// which has no variables, the same as [`Theme::Light`].
    Page,
}

/// One colour by its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Token {
    /// Text that must be read.
    Ink,
    /// Ticks and remarks.
    Dim,
    /// Hairlines.
    Line,
    /// Links and the product's mark.
    Accent,
    /// The accusing colour.
    Hot,
    /// Everything ordinary.
    Rank,
    /// Passed.
    Ok,
    /// Suspect.
    Warn,
    /// Allocated memory.
    Alloc,
    /// Cached memory.
    Cached,
    /// Contexts and libraries.
    Ctx,
    /// Memory of somebody else.
    Foreign,
    /// Free memory, shaded phases.
    Free,
    /// The page behind the cards.
    Bg,
    /// The paper of a card.
    Card,
}

impl Token {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Ink,
        Self::Dim,
        Self::Line,
        Self::Accent,
        Self::Hot,
        Self::Rank,
        Self::Ok,
        Self::Warn,
        Self::Alloc,
        Self::Cached,
        Self::Ctx,
        Self::Foreign,
        Self::Free,
        Self::Bg,
        Self::Card,
    ];

    /// Name of the CSS variable: `--hot`.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Ink => "--ink",
            Self::Dim => "--dim",
            Self::Line => "--line",
            Self::Accent => "--accent",
            Self::Hot => "--hot",
            Self::Rank => "--rank",
            Self::Ok => "--ok",
            Self::Warn => "--warn",
            Self::Alloc => "--alloc",
            Self::Cached => "--cached",
            Self::Ctx => "--ctx",
            Self::Foreign => "--foreign",
            Self::Free => "--free",
            Self::Bg => "--bg",
            Self::Card => "--card",
        }
    }

    /// Its value in a theme; in [`Theme::Page`] that of [`Theme::Light`].
    pub fn color(self, theme: Theme) -> RGBColor {
        let value = match theme {
            Theme::Light | Theme::Page => self.light(),
            Theme::Dark => self.dark(),
        };
        let [_, red, green, blue] = value.to_be_bytes();
        RGBColor(red, green, blue)
    }

    fn light(self) -> u32 {
        match self {
            Self::Ink => 0x1b_1f24,
            Self::Dim => 0x5d_6672,
            Self::Line => 0xe4_e6ea,
            Self::Accent => 0x24_58c6,
            Self::Hot => 0xc8_401b,
            Self::Rank => 0x9a_a7b8,
            Self::Ok => 0x2f_7d4f,
            Self::Warn => 0xa8_6a00,
            Self::Alloc => 0x5b_7fb8,
            Self::Cached => 0xb9_c9e2,
            Self::Ctx => 0x4c_5868,
            Self::Foreign => 0xd9_663f,
            Self::Free => 0xee_f0f3,
            Self::Bg => 0xfb_fbfa,
            Self::Card => 0xff_ffff,
        }
    }

    fn dark(self) -> u32 {
        match self {
            Self::Ink => 0xe7_eaee,
            Self::Dim => 0x9a_a4b1,
            Self::Line => 0x2c_323b,
            Self::Accent => 0x8f_b2ff,
            Self::Hot => 0xff_8a5c,
            Self::Rank => 0x5c_6a7d,
            Self::Ok => 0x6f_c493,
            Self::Warn => 0xe0_b050,
            Self::Alloc => 0x5f_86c6,
            Self::Cached => 0x37_486a,
            Self::Ctx => 0xb6_c0cc,
            Self::Foreign => 0xe8_794f,
            Self::Free => 0x23_282f,
            Self::Bg => 0x14_171b,
            Self::Card => 0x1b_1f25,
        }
    }
}

/// The value of every [`Token`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Palette([RGBColor; Token::ALL.len()]);

impl Palette {
    /// The fixed colours of a theme; [`Theme::Page`] has those of [`Theme::Light`].
    pub fn of(theme: Theme) -> Self {
        Self(Token::ALL.map(|token| token.color(theme)))
    }

    /// Stand-in values that [`Palette::stand_in`] reads back; they never reach a picture.
    #[cfg(feature = "native")]
    pub(crate) fn stand_ins() -> Self {
        let mut number = 0;
        Self(Token::ALL.map(|_| {
            number += 1;
            RGBColor(0, 0, number)
        }))
    }

    /// The token that a stand-in value means.
    #[cfg(feature = "native")]
    pub(crate) fn stand_in(rgb: (u8, u8, u8)) -> Option<Token> {
        let (0, 0, number @ 1..) = rgb else { return None };
        Token::ALL.get(usize::from(number) - 1).copied()
    }

    /// Replaces one colour, for a canvas that reads the page's own values.
    pub fn set(&mut self, token: Token, red: u8, green: u8, blue: u8) {
        self.0[token as usize] = RGBColor(red, green, blue);
    }

    /// One colour.
    pub fn color(&self, token: Token) -> RGBColor {
        self.0[token as usize]
    }
}

/// How a part is told apart besides its colour: in print, and by colour-blind readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Plain colour.
    Plain,
    /// Stripes that rise to the right, in the colour of the card.
    Rising,
    /// Stripes that fall to the right, in the colour of the card.
    Falling,
    /// Level stripes, in the colour of the card: seen in the narrowest part too.
    Level,
    /// Upright stripes, in the colour of the card.
    Upright,
    /// Pale, with an outline.
    Outlined,
}

/// The CSS variable of a part's colour, for the key on the page.
pub fn part_token(kind: PartKind) -> &'static str {
    part_color(kind).variable()
}

/// The pattern of a part, for the key on the page.
pub fn part_pattern(kind: PartKind) -> Pattern {
    match kind {
        PartKind::OtherRanks => Pattern::Rising,
        PartKind::OtherProcesses => Pattern::Falling,
        PartKind::OutsidePytorch | PartKind::Waiting => Pattern::Level,
        PartKind::UnsizedProcesses => Pattern::Upright,
        PartKind::Unaccounted | PartKind::Untold => Pattern::Outlined,
        PartKind::Allocated | PartKind::Cached | PartKind::OwnProcess => Pattern::Plain,
    }
}

pub(crate) fn part_color(kind: PartKind) -> Token {
    match kind {
        PartKind::Allocated | PartKind::Waiting => Token::Alloc,
        PartKind::Cached => Token::Cached,
        PartKind::OwnProcess | PartKind::UnsizedProcesses | PartKind::Untold => Token::Rank,
        PartKind::OutsidePytorch => Token::Ctx,
        PartKind::OtherRanks | PartKind::OtherProcesses => Token::Foreign,
        PartKind::Unaccounted => Token::Dim,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_numbered_in_their_order() {
        for (number, token) in Token::ALL.into_iter().enumerate() {
            assert_eq!(token as usize, number);
        }
    }

    /// How light a colour is seen, 0 to 100 (CIE L*): what is left of a colour for those who see none, and in print.
    fn lightness(RGBColor(r, g, b): RGBColor) -> f64 {
        let part = |byte: u8| {
            let part = f64::from(byte) / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        let y = 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
        if y <= 0.008_856 { y * 903.3 } else { 116.0 * y.cbrt() - 16.0 }
    }

    #[test]
    fn no_two_parts_look_alike() {
        use PartKind::{OutsidePytorch, OwnProcess};
        let kinds = PartKind::ALL;
        for theme in [Theme::Light, Theme::Dark] {
            for (n, one) in kinds.into_iter().enumerate() {
                for other in kinds.into_iter().skip(n + 1) {
                    let colors = [one, other].map(|kind| lightness(part_color(kind).color(theme)));
                    let apart = (colors[0] - colors[1]).abs();
                    let patterns = part_pattern(one) != part_pattern(other);
                    // Plain parts are told by their colour alone, and not by its hue alone.
                    assert!(patterns || apart >= 7.0, "{one:?} and {other:?}: {apart:.1} apart in {theme:?}");
                }
            }
            let own = lightness(part_color(OwnProcess).color(theme));
            let outside = lightness(part_color(OutsidePytorch).color(theme));
            assert!((own - outside).abs() >= 20.0, "{theme:?}: two greys, {own:.1} and {outside:.1}");
        }
    }

    #[test]
    fn stand_ins_lead_back_to_their_token() {
        let palette = Palette::stand_ins();
        for token in Token::ALL {
            let RGBColor(r, g, b) = palette.color(token);
            assert_eq!(Palette::stand_in((r, g, b)), Some(token));
        }
        assert_eq!(Palette::stand_in((200, 64, 27)), None);
        assert_eq!(Palette::stand_in((0, 0, 0)), None);
    }
}
