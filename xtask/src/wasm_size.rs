//! What a file weighs: as it is, and as it travels.

use anyhow::Result;
use std::fmt;
use std::io::Write;
use std::ops::AddAssign;

/// Bytes raw, gzipped and brotli-compressed, each at the best setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    raw: usize,
    gzip: usize,
    brotli: usize,
}

impl Weight {
    /// Compresses `content` in memory both ways.
    pub fn of(content: &[u8]) -> Result<Self> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(content)?;
        let mut brotli = Vec::new();
        let best = brotli::enc::BrotliEncoderParams { quality: 11, lgwin: 22, ..Default::default() };
        brotli::BrotliCompress(&mut &*content, &mut brotli, &best)?;
        Ok(Self { raw: content.len(), gzip: gzip.finish()?.len(), brotli: brotli.len() })
    }
}

impl Weight {
    /// Bytes as they travel, brotli-compressed.
    pub fn brotli(self) -> usize {
        self.brotli
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Self) {
        self.raw += other.raw;
        self.gzip += other.gzip;
        self.brotli += other.brotli;
    }
}

/// `243.0 kB, 79.1 kB gzip, 66.0 kB brotli`; kB is 1000 bytes, as the bundle's bar is given.
impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kb = |bytes: usize| bytes as f64 / 1000.0;
        write!(f, "{:.1} kB, {:.1} kB gzip, {:.1} kB brotli", kb(self.raw), kb(self.gzip), kb(self.brotli))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_weighs_little_on_the_wire() {
        let weight = Weight::of(&b"rank 0 ".repeat(1000)).unwrap();
        assert_eq!(weight.raw, 7000);
        assert!(weight.gzip < 200 && weight.brotli < 100, "{weight}");
    }

    #[test]
    fn weights_add_up_and_read_well() {
        let mut total = Weight { raw: 1500, gzip: 500, brotli: 400 };
        total += Weight { raw: 500, gzip: 100, brotli: 50 };
        assert_eq!(total.to_string(), "2.0 kB, 0.6 kB gzip, 0.5 kB brotli");
    }
}
