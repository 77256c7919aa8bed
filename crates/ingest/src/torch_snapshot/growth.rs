//! Growth of large tables by a quarter instead of to the double, so that their unused tail stays small.

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
        if self.capacity() - self.len() < additional {
            self.reserve_exact(additional.max(self.len() / 4).max(1024));
        }
    }

    #[inline]
    fn push_lean(&mut self, row: T) {
        self.reserve_lean(1);
        self.push(row);
    }
}
