//! Layouts against a model that lists every element's place. No device.

use ironwarp::{Layout, Shape};
use testkit::Random;

/// The places of a tensor's elements in order, with its sides.
#[derive(Debug, Clone)]
struct Model {
    sides: Vec<usize>,
    places: Vec<usize>,
}

impl Model {
    fn contiguous(sides: &[usize]) -> Self {
        Model { sides: sides.to_vec(), places: (0..sides.iter().product()).collect() }
    }

    /// The places that `pick` chooses, for every index of `sides`.
    fn picked(&self, sides: Vec<usize>, pick: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let places = indices(&sides).iter().map(|index| self.places[self.linear(&pick(index))]).collect();
        Model { sides, places }
    }

    fn linear(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.sides).fold(0, |linear, (i, side)| linear * side + i)
    }

    /// The strides that make these places under `sides`, if there are any.
    fn strides(&self, sides: &[usize]) -> Option<Vec<usize>> {
        let along = |axis: usize| {
            let inner: usize = sides[axis + 1..].iter().product();
            self.places.get(inner).map_or(0, |place| place.wrapping_sub(self.places[0]))
        };
        let strides: Vec<usize> =
            (0..sides.len()).map(|axis| if sides[axis] > 1 { along(axis) } else { 0 }).collect();
        let made = indices(sides).into_iter().map(|index| {
            let along = index.iter().zip(&strides).map(|(i, stride)| i.wrapping_mul(*stride));
            along.fold(self.places[0], usize::wrapping_add)
        });
        made.eq(self.places.iter().copied()).then_some(strides)
    }
}

/// Every index of a shape, in order.
fn indices(sides: &[usize]) -> Vec<Vec<usize>> {
    sides.iter().fold(vec![Vec::new()], |prefixes, &side| {
        let longer =
            |prefix: &Vec<usize>| (0..side).map(|i| [&prefix[..], &[i]].concat()).collect::<Vec<_>>();
        prefixes.iter().flat_map(longer).collect()
    })
}

fn shape(sides: &[usize]) -> Shape {
    Shape::new(sides).unwrap()
}

fn same(layout: &Layout, model: &Model, history: &[String]) {
    assert_eq!(layout.shape().sides(), model.sides, "{history:?}");
    let places: Vec<usize> = indices(&model.sides).iter().map(|index| layout.place(index).unwrap()).collect();
    assert_eq!(places, model.places, "{history:?}");
    let span = places.iter().max().map_or(0, |max| max + 1 - places.iter().min().unwrap());
    assert_eq!(layout.span(), span, "{history:?}");
    let dense = places.windows(2).all(|pair| pair[1] == pair[0] + 1);
    assert_eq!(layout.is_contiguous(), dense, "{history:?}: {layout:?}");
    let mut sorted = places.clone();
    sorted.sort_unstable();
    let overlap = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    assert_eq!(layout.may_overlap(), overlap, "{history:?}: {layout:?}");
}

fn below(random: &mut Random, end: usize) -> usize {
    random.integer(0, end as i64 - 1) as usize
}

/// One random view of both, and what it was.
fn step(random: &mut Random, layout: &Layout, model: &Model) -> Option<(Layout, Model, String)> {
    let rank = model.sides.len();
    match random.integer(0, 5) {
        0 if rank > 0 => {
            let mut axes: Vec<usize> = (0..rank).collect();
            (1..rank).for_each(|i| axes.swap(i, below(random, i + 1)));
            let sides = axes.iter().map(|&axis| model.sides[axis]).collect();
            let pick = |index: &[usize]| {
                let mut source = vec![0; rank];
                axes.iter().zip(index).for_each(|(&axis, &i)| source[axis] = i);
                source
            };
            Some((layout.permute(&axes).unwrap(), model.picked(sides, pick), format!("permute {axes:?}")))
        }
        1 if rank > 0 => {
            let axis = below(random, rank);
            let start = below(random, model.sides[axis] + 1);
            let end = start + below(random, model.sides[axis] - start + 1);
            let by = 1 + below(random, 3);
            let mut sides = model.sides.clone();
            sides[axis] = (start..end).step_by(by).count();
            let pick = |index: &[usize]| {
                let mut source = index.to_vec();
                source[axis] = start + index[axis] * by;
                source
            };
            let what = format!("slice {axis}: {start}..{end} by {by}");
            Some((layout.slice(axis, start..end, by).unwrap(), model.picked(sides, pick), what))
        }
        2 if rank > 0 => {
            let axis = below(random, rank);
            let index = (model.sides[axis] > 0).then(|| below(random, model.sides[axis]))?;
            let mut sides = model.sides.clone();
            sides.remove(axis);
            let pick = |at: &[usize]| {
                let mut source = at.to_vec();
                source.insert(axis, index);
                source
            };
            Some((
                layout.select(axis, index).unwrap(),
                model.picked(sides, pick),
                format!("select {axis}: {index}"),
            ))
        }
        3 if rank < 6 => {
            let axis = below(random, rank + 1);
            let mut sides = model.sides.clone();
            sides.insert(axis, 1);
            let pick = |index: &[usize]| {
                let mut source = index.to_vec();
                source.remove(axis);
                source
            };
            Some((layout.unsqueeze(axis).unwrap(), model.picked(sides, pick), format!("unsqueeze {axis}")))
        }
        4 if rank < 6 && model.places.len() < 200 => {
            let mut sides = model.sides.clone();
            sides.iter_mut().filter(|side| **side == 1).for_each(|side| *side = below(random, 4));
            let front = random.integer(0, 1) == 1;
            if front {
                sides.insert(0, 2);
            }
            let pick = |index: &[usize]| {
                let own = &index[usize::from(front)..];
                own.iter().zip(&model.sides).map(|(&i, &side)| if side == 1 { 0 } else { i }).collect()
            };
            let what = format!("broadcast to {sides:?}");
            Some((layout.broadcast_to(&shape(&sides)).unwrap(), model.picked(sides, pick), what))
        }
        5 => {
            let sides = factors(random, model.places.len());
            let what = format!("reshape to {sides:?}");
            let reshaped = layout.reshape(shape(&sides)).unwrap();
            let possible = model.places.is_empty() || model.strides(&sides).is_some();
            assert_eq!(reshaped.is_some(), possible, "{what} of {layout:?}");
            Some((reshaped?, Model { sides, places: model.places.clone() }, what))
        }
        _ => None,
    }
}

/// Sides whose product is `elements`, with ones strewn in.
fn factors(random: &mut Random, elements: usize) -> Vec<usize> {
    if elements == 0 {
        return vec![3, 0];
    }
    let (mut left, mut sides) = (elements, Vec::new());
    for divisor in [2, 3, 5, 7, 2, 3] {
        if left.is_multiple_of(divisor) && random.integer(0, 1) == 1 {
            sides.push(divisor);
            left /= divisor;
        }
    }
    sides.insert(below(random, sides.len() + 1), left);
    if sides.len() < 6 && random.integer(0, 2) == 0 {
        sides.insert(below(random, sides.len() + 1), 1);
    }
    sides
}

#[test]
fn random_views_agree_with_the_model() {
    let mut random = Random::new(11);
    for round in 0..3000 {
        let rank = below(&mut random, 5);
        let sides: Vec<usize> = (0..rank).map(|_| [0, 1, 1, 2, 3, 4, 5, 6][below(&mut random, 8)]).collect();
        let (mut layout, mut model) = (Layout::contiguous(shape(&sides)), Model::contiguous(&sides));
        let mut history = vec![format!("round {round}: {sides:?}")];
        for _ in 0..6 {
            if let Some((next_layout, next_model, what)) = step(&mut random, &layout, &model) {
                (layout, model) = (next_layout, next_model);
                history.push(what);
                same(&layout, &model, &history);
            }
        }
    }
}

#[test]
fn padded_rows_begin_at_multiples() {
    let layout = Layout::padded(shape(&[2, 3, 5]), 8).unwrap();
    assert_eq!((layout.strides(), layout.span()), (&[24, 8, 1][..], 2 * 24 - 8 + 5));
    assert!(!layout.is_contiguous() && !layout.may_overlap());
    let vector = Layout::padded(shape(&[5]), 8).unwrap();
    assert_eq!((vector.strides(), vector.span(), vector.is_contiguous()), (&[1][..], 5, true));
    assert!(Layout::padded(shape(&[2, 8]), 8).unwrap().is_contiguous());
    assert!(Layout::padded(shape(&[2, 8]), 0).is_err());
    assert!(Layout::padded(shape(&[2, 3]), usize::MAX).is_err());
}

#[test]
fn places_beyond_32_bits() {
    let layout = Layout::contiguous(shape(&[3, 1 << 20, 1 << 20]));
    assert_eq!(layout.elements(), 3 << 40);
    let column = layout.select(2, 7).unwrap().slice(1, 5.., 3).unwrap();
    assert_eq!(column.place(&[2, 1000]), Some((2 << 40) + (3005 << 20) + 7));
    assert_eq!(column.place(&[3, 0]), None);
    let wide = Layout::contiguous(shape(&[1])).broadcast_to(&shape(&[1 << 40])).unwrap();
    assert_eq!((wide.elements(), wide.span()), (1 << 40, 1));
}
