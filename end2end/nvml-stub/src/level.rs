//! An amount of memory over time: steady, on its way to another, and with a wave on top.

/// Bytes as a function of the scenario's seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Level {
    from: u64,
    to: u64,
    begins: f64,
    over: f64,
    wave: u64,
    period: f64,
}

impl Level {
    /// Always the same.
    pub fn steady(bytes: u64) -> Self {
        Self { from: bytes, to: bytes, ..Self::default() }
    }

    /// Swings between itself and `wave` more within `period` seconds.
    pub fn with_wave(self, wave: u64, period: f64) -> Self {
        Self { wave, period, ..self }
    }

    /// From nothing to itself within `over` seconds.
    pub fn growing(self, over: f64) -> Self {
        Self { from: if over > 0.0 { 0 } else { self.to }, over, ..self }
    }

    /// The same from another moment on.
    pub fn beginning(self, now: f64) -> Self {
        Self { begins: now, ..self }
    }

    /// On its way to `bytes` from now on.
    pub fn towards(self, bytes: u64, now: f64, over: f64) -> Self {
        Self { from: self.without_wave(now), to: bytes, begins: now, over, ..self }
    }

    /// Bytes at that second.
    pub fn at(self, now: f64) -> u64 {
        let swing = if self.wave == 0 || self.period <= 0.0 {
            0.0
        } else {
            // A triangle: up in the first half of the period, down in the second.
            let phase = (now / self.period).fract();
            self.wave as f64 * (1.0 - (2.0 * phase - 1.0).abs())
        };
        self.without_wave(now) + whole(swing)
    }

    fn without_wave(self, now: f64) -> u64 {
        if now >= self.begins + self.over {
            return self.to;
        }
        let part = ((now - self.begins) / self.over).max(0.0);
        whole(self.from as f64 + (self.to as f64 - self.from as f64) * part)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // memory sizes: positive, far below 2^53
fn whole(bytes: f64) -> u64 {
    bytes.max(0.0) as u64
}
