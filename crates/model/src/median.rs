//! The one median of Rankscope: of figures, charts, tables and sentences. Knows no unit.

/// The middle value; of an even count the lower of the two, so that it is a value that some card really has and that of
/// two cards the emptier one is the yardstick. `None` when empty.
pub fn lower_median<T: Ord + Copy>(values: &[T]) -> Option<T> {
    let middle = values.len().checked_sub(1)? / 2;
    let mut values = values.to_vec();
    Some(*values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    #[test]
    fn of_an_even_count_the_lower_middle_is_taken() {
        assert_eq!(lower_median::<u64>(&[]), None);
        assert_eq!(lower_median(&[7]), Some(7));
        assert_eq!(lower_median(&[9, 5]), Some(5));
        assert_eq!(lower_median(&[1, 9, 5]), Some(5));
        assert_eq!(lower_median(&[Bytes(4), Bytes(1), Bytes(3), Bytes(2)]), Some(Bytes(2)));
    }
}
