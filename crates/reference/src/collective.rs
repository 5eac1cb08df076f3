//! Oracles of collectives: what each of several ranks gets, from what all of them give.

/// The elements that have the same place on every rank, one group for each place: what a reduction combines.
///
/// # Panics
/// If ranks give different numbers of elements.
pub fn columns<T: Copy>(given: &[Vec<T>]) -> Vec<Vec<T>> {
    let count = given.first().map_or(0, Vec::len);
    assert!(given.iter().all(|of_rank| of_rank.len() == count), "ranks give as many elements each");
    (0..count).map(|place| given.iter().map(|of_rank| of_rank[place]).collect()).collect()
}

/// The result of an all-gather, on every rank.
pub fn gathered<T: Copy>(given: &[Vec<T>]) -> Vec<T> {
    given.iter().flatten().copied().collect()
}

/// The result of an all-to-all, on one rank.
pub fn exchanged<T: Copy>(given: &[Vec<T>], rank: usize) -> Vec<T> {
    let part = |of_rank: &Vec<T>| {
        let each = of_rank.len() / given.len();
        of_rank[rank * each..(rank + 1) * each].to_vec()
    };
    given.iter().flat_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::{columns, exchanged, gathered};

    #[test]
    fn by_hand() {
        let given = [vec![1, 2], vec![3, 4]];
        assert_eq!(columns(&given), [[1, 3], [2, 4]]);
        assert_eq!(gathered(&given), [1, 2, 3, 4]);
        assert_eq!([exchanged(&given, 0), exchanged(&given, 1)], [[1, 3], [2, 4]]);
    }
}
