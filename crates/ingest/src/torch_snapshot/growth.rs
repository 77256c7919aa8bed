//! Growth of large tables by a quarter instead of to the double, so that their unused tail stays small; and what they
//! take.

/// A table that may become large.
pub(super) trait Lean<T> {
    /// Makes room for `additional` rows.
    fn reserve_lean(&mut self, additional: usize);
    /// Appends a row.
    fn push_lean(&mut self, row: T);
}

impl<T> Lean<T> for Vec<T> {
    #[inline]
    fn reserve_lean(&mut self, additional: usize) {
        if self.capacity().saturating_sub(self.len()) < additional {
            self.reserve_exact(additional.max(self.len() / 4).max(1024));
        }
    }

    #[inline]
    fn push_lean(&mut self, row: T) {
        self.reserve_lean(1);
        self.push(row);
    }
}

/// Bytes of so many rows.
pub(super) fn bytes_of<T>(rows: usize) -> usize {
    rows.saturating_mul(size_of::<T>())
}
