//! Which engine a norm takes, and the engine with rows in registers by plans of its own: norms that the rule
//! does not give it, any number of rows a block, and rows that blocks draw.

use crate::common::{Outcome, is_hopper, stream, tests};
use crate::lying::exact;
use crate::norms::{EPS, plain};
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use ironwarp::graph::Graph;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{Norm, NormKind};
use ironwarp::tensor::Element;
use ironwarp::{DType, DeviceBuffer, LaunchConfig, Stream, Tensor, launch};
use reference::row::{Row, find};
use rows::norm::{Norm as Function, NormArgs};
use rows::plan::{CLUSTER_PLACES, Drawing, KEPT_RESIDENT, KEPT_WARPS, Plan, Shape};
use rows::sm90::kernels;
use testkit::{Family, compare, input, tolerance};

/// Sides, type, and the first element of the weight in its buffer.
type Case = ([usize; 2], DType, usize);

/// The kernel of a norm with what it is handed, by a capture.
fn kernel(norm: Norm<'_>, (has_weight, has_bias): (bool, bool), case: Case) -> Outcome<String> {
    let (stream, ([rows, columns], dtype, first)) = (stream()?, case);
    let x = Tensor::zeros(&stream, &[rows, columns], dtype)?;
    let shared = Tensor::zeros(&stream, &[columns + first], dtype)?.slice(0, first..)?;
    let of = |is_there: bool| is_there.then_some(&shared);
    let norm = Norm { weight: of(has_weight), bias: of(has_bias), ..norm };
    let graph = Graph::capture(&stream, (), |stream, ()| norm.run(stream, &x))?;
    let launches = graph.launches();
    assert_eq!(launches.len(), 1, "a norm is a launch");
    Ok(launches[0].kernel.to_string())
}

#[test]
fn norms_take_the_engine_that_was_measured_to_be_faster() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let (layer, rms) = (plain(NormKind::Layer), plain(NormKind::Rms));
    let gelu = Norm { activation: Activation::GeluTanh, ..layer };
    let (both, weight, none) = ((true, true), (true, false), (false, false));
    let bf16 = |columns| ([8, columns], DType::BF16, 0);
    // One row more than run at once, or one row, which does. Most blocks of these lengths have eight warps.
    let warps = stream()?.device().properties().sm_count * KEPT_RESIDENT * KEPT_WARPS;
    let many = |columns: usize, dtype| ([warps as usize / columns.div_ceil(1024) + 1, columns], dtype, 0);
    let one = |columns| ([1, columns], DType::BF16, 0);
    for (norm, shared, case, wanted) in [
        (layer, both, bf16(4096), "norm_kept_bf16"),
        (layer, both, one(16_384), "norm_kept_bf16"),
        (layer, both, bf16(5000), "norm_kept_part_bf16"),
        (layer, both, ([8, 4096], DType::F16, 0), "norm_kept_f16"),
        (layer, both, ([8, 5000], DType::F16, 0), "norm_kept_part_f16"),
        (layer, both, ([8, 4096], DType::F32, 0), "norm_kept_f32"),
        (layer, both, ([8, 5000], DType::F32, 0), "norm_kept_part_f32"),
        (layer, both, ([8, 4096], DType::F64, 0), "norm_f64"),
        (layer, both, bf16(768), "norm_kept_fewer_bf16"),
        (gelu, both, bf16(768), "norm_kept_fewer_bf16"),
        (layer, both, ([8, 2304], DType::F16, 0), "norm_kept_fewer_f16"),
        (layer, both, ([8, 3840], DType::F16, 0), "norm_kept_part_f16"),
        (layer, both, ([8, 768], DType::F32, 0), "norm_kept_part_f32"),
        // Vectors must be whole.
        (layer, both, bf16(4100), "norm_held_bf16"),
        (layer, both, ([1, 4099], DType::BF16, 0), "norm_held_bf16"),
        // A weight that does not begin at a vector.
        (layer, both, ([8, 4096], DType::BF16, 1), "norm_held_bf16"),
        (layer, both, ([8, 4096], DType::BF16, 8), "norm_kept_bf16"),
        // Less than both where that was faster.
        (layer, weight, bf16(4096), "norm_kept_bf16"),
        (layer, weight, one(16_384), "norm_held_bf16"),
        (layer, none, bf16(4096), "norm_kept_bf16"),
        (layer, none, bf16(768), "norm_held_bf16"),
        (rms, weight, bf16(4096), "norm_kept_bf16"),
        (rms, weight, one(65_536), "norm_kept_bf16"),
        (rms, weight, one(32_768), "norm_held_bf16"),
        (rms, weight, ([8, 4096], DType::F32, 0), "norm_kept_f32"),
        (rms, both, bf16(4096), "norm_held_bf16"),
        (rms, none, bf16(4096), "norm_held_bf16"),
        // Rows that blocks draw.
        (layer, both, many(8192, DType::BF16), "norm_drawn_shared_bf16"),
        (layer, both, many(16_384, DType::F16), "norm_drawn_shared_f16"),
        (layer, both, many(14_000, DType::BF16), "norm_kept_part_bf16"),
        (gelu, both, many(2048, DType::BF16), "norm_kept_bf16"),
        (gelu, both, many(2304, DType::BF16), "norm_kept_fewer_bf16"),
        (gelu, both, many(4096, DType::F16), "norm_drawn_shared_f16"),
        (gelu, both, many(8192, DType::BF16), "norm_drawn_shared_bf16"),
        (gelu, both, many(16_384, DType::BF16), "norm_drawn_bf16"),
        (gelu, both, many(16_384, DType::F16), "norm_drawn_f16"),
        (gelu, both, many(16_384, DType::F32), "norm_drawn_f32"),
        (layer, both, many(65_536, DType::F32), "norm_kept_f32"),
        (rms, weight, many(8192, DType::BF16), "norm_drawn_shared_bf16"),
        (rms, weight, many(32_768, DType::F32), "norm_drawn_f32"),
        (rms, none, many(16_384, DType::BF16), "norm_held_bf16"),
    ] {
        let got = kernel(norm, shared, case)?;
        assert!(got.ends_with(wanted), "{norm:?} {shared:?} {case:?}: {got}, not {wanted}");
    }
    Ok(())
}

/// Parameters of the engine's kernels.
type Parameters<T> = (Value<Plan>, Value<Function>, Ptr<T>, Ptr<T>, Ptr<T>, PtrMut<T>, PtrMut<T>);
/// Of those whose blocks draw rows.
type DrawnParameters<T> = (Value<Plan>, Value<Function>, Ptr<T>, Ptr<T>, PtrMut<u32>, PtrMut<T>, PtrMut<T>);

/// An element type, and the engine's kernels for it.
trait Known: Element + testkit::Element + Into<f64> + bytemuck::Pod {
    /// For rows that all threads have as much of.
    type Full: Kernel<Params = Parameters<Self>>;
    /// For others.
    type Part: Kernel<Params = Parameters<Self>>;
    /// For rows of which all threads have as much, but fewer vectors; the same kernel where there is none.
    type Fewer: Kernel<Params = Parameters<Self>>;
    /// For rows that blocks draw.
    type Drawn: Kernel<Params = DrawnParameters<Self>>;
    /// The same with weights in shared memory; the same kernel where there is none.
    type DrawnShared: Kernel<Params = DrawnParameters<Self>>;
}

macro_rules! known {
    ($($ty:ty: $full:ident, $part:ident, $fewer:ident, $drawn:ident, $shared:ident;)*) => { $(
        impl Known for $ty {
            type Full = kernels::$full;
            type Part = kernels::$part;
            type Fewer = kernels::$fewer;
            type Drawn = kernels::$drawn;
            type DrawnShared = kernels::$shared;
        }
    )* };
}

known! {
    f32: norm_kept_f32, norm_kept_part_f32, norm_kept_part_f32, norm_drawn_f32, norm_drawn_f32;
    f16: norm_kept_f16, norm_kept_part_f16, norm_kept_fewer_f16, norm_drawn_f16, norm_drawn_shared_f16;
    bf16: norm_kept_bf16, norm_kept_part_bf16, norm_kept_fewer_bf16, norm_drawn_bf16, norm_drawn_shared_bf16;
}

/// Results, sums, and moments.
type Results<T> = (Vec<T>, Vec<T>, Vec<f32>);

/// Rows, a residual, and a weight, where there are such.
struct Given<'a, T> {
    sides: [usize; 2],
    kind: NormKind,
    x: &'a [T],
    residual: Option<&'a [T]>,
    weight: Option<&'a [T]>,
}

impl<T: Known> Given<'_, T> {
    fn shape(&self) -> Shape {
        let [rows, columns] = self.sides;
        let strides = columns as u64;
        Shape {
            rows: rows as u64,
            columns: columns as u32,
            size: size_of::<T>(),
            inputs: 1 + u32::from(self.residual.is_some()),
            shared: self.weight.is_some().into(),
            input_strides: [strides; 3],
            output_strides: [strides; 2],
        }
    }

    /// Results, sums, and moments, with so many rows a block.
    fn by(&self, stream: &Stream, turns: u32) -> Outcome<Results<T>> {
        let columns = self.sides[1];
        // One multiprocessor has few rows at once, so blocks take as many as they are asked to.
        let plan = Plan::in_registers(&self.shape(), turns, 1).ok_or("rows that fit")?;
        let is_left = turns == 5 && [5120, 9208, 16_384].contains(&columns);
        assert!(
            !is_left || (plan.tile, plan.step) == (5, 1) && plan.tiles > 0,
            "two kinds of blocks: {plan:?}"
        );
        self.planned(stream, plan, None)
    }

    /// The same of one multiprocessor's blocks, which draw rows.
    fn drawn(&self, stream: &Stream, how: Drawing) -> Outcome<Results<T>> {
        let plan = Plan::drawing(&self.shape(), how, 1).ok_or("more rows than run at once")?;
        self.planned(stream, plan, Some(how))
    }

    fn planned(&self, stream: &Stream, plan: Plan, how: Option<Drawing>) -> Outcome<Results<T>> {
        let [rows, columns] = self.sides;
        let (x, residual) = (self.x, self.residual.unwrap_or(self.x));
        let x = DeviceBuffer::from_slice(stream, x)?;
        let residual = DeviceBuffer::from_slice(stream, residual)?;
        let weight =
            self.weight.map(|weight| DeviceBuffer::from_slice(stream, bytemuck::cast_slice::<T, u8>(weight)));
        let weight = weight.transpose()?;
        let mut moments = DeviceBuffer::<f32>::zeroed(stream, 2 * rows)?;
        let (mut y, mut sum) = (
            DeviceBuffer::<T>::zeroed(stream, rows * columns)?,
            DeviceBuffer::<T>::zeroed(stream, rows * columns)?,
        );
        let function = NormArgs {
            weight: weight.as_ref(),
            bias: None::<&DeviceBuffer<u8>>,
            moments: &mut moments,
            rows: rows as u64,
            eps: EPS,
            is_centered: u32::from(self.kind == NormKind::Layer),
            has_residual: u32::from(self.residual.is_some()),
            activation: Activation::None as u32,
            rest: 0,
        };
        let config = LaunchConfig::new([plan.blocks, 1, 1], [plan.consumers, 1, 1])
            .cluster([plan.cluster, 1, 1])
            .with_shared(plan.shared);
        let (function, nothing) = (function.pass(), None::<&DeviceBuffer<T>>);
        let mut counter = DeviceBuffer::<u32>::zeroed(stream, 1)?;
        // SAFETY: the plan is the engine's for these rows, all of which are there, and the counter is 0.
        unsafe {
            match how {
                None if plan.has_fewer(size_of::<T>()) => launch::<T::Fewer>(
                    stream,
                    config,
                    (plan, function, &x, &residual, nothing, &mut y, &mut sum),
                )?,
                None if plan.is_full(size_of::<T>()) => launch::<T::Full>(
                    stream,
                    config,
                    (plan, function, &x, &residual, nothing, &mut y, &mut sum),
                )?,
                None => launch::<T::Part>(
                    stream,
                    config,
                    (plan, function, &x, &residual, nothing, &mut y, &mut sum),
                )?,
                Some(Drawing::Plain) => {
                    let arguments = (plan, function, &x, &residual, &mut counter, &mut y, &mut sum);
                    launch::<T::Drawn>(stream, config, arguments)?
                }
                Some(Drawing::Shared) => {
                    let arguments = (plan, function, &x, &residual, &mut counter, &mut y, &mut sum);
                    launch::<T::DrawnShared>(stream, config, arguments)?
                }
            }
        }
        assert_eq!(counter.to_vec(stream)?, [0], "the counter behind {plan:?}");
        Ok((y.to_vec(stream)?, sum.to_vec(stream)?, moments.to_vec(stream)?))
    }

    /// The results beside those of f64.
    fn agree(&self, what: &str, y: &[T]) {
        let columns = self.sides[1];
        let sum = |(x, residual): (&T, &T)| {
            let (x, residual): (f64, f64) = ((*x).into(), (*residual).into());
            T::from_f64(x + residual)
        };
        let added = self.residual.map(|residual| self.x.iter().zip(residual).map(sum).collect::<Vec<T>>());
        let (mut want, mut scale) = (Vec::new(), Vec::new());
        let weight = self.weight.map(exact);
        for x in exact(added.as_deref().unwrap_or(self.x)).chunks(columns) {
            let row = Row { x, weight: weight.as_deref(), bias: None, eps: EPS };
            let of_row = find(self.kind.name())(&row);
            want.extend(of_row.value);
            scale.extend(of_row.magnitude);
        }
        let limit = format!("{} {}", self.kind.name(), <T as Element>::DTYPE);
        let limit = tolerance::find(&limit).for_terms(columns);
        compare::accumulated(what, y, &want, &scale, &self.sides, limit).unwrap();
    }
}

/// Rows and columns: a warp that is full and ones that are not, of which some of 16 bits have three vectors a
/// thread, several warps, clusters, of whose blocks the last has less. Of 5120 and more, five rows a block
/// make a wave on one multiprocessor, and a row is left.
const SHAPES: [[usize; 2]; 9] =
    [[7, 1024], [7, 768], [5, 1000], [6, 2048], [9, 2304], [21, 5120], [11, 9208], [6, 16_384], [3, 65_528]];

/// Rows of a family, but the second is one number, the third one huge number in the last place and tiny ones.
fn hostile<T: Known>(family: Family, [rows, columns]: [usize; 2]) -> Vec<T> {
    let mut values: Vec<T> = input(family, 3, rows * columns);
    values[columns..2 * columns].fill(T::from_f64(3.0));
    let third = &mut values[2 * columns..3 * columns];
    third.iter_mut().enumerate().for_each(|(i, x)| *x = T::from_f64(1e-3 * (1 + i % 3) as f64));
    third[columns - 1] = T::from_f64(6e4);
    if family == Family::Normal {
        // Two rows behind each other whose mean is far from 0, then one whose mean is not.
        for (_, row) in values.chunks_mut(columns).enumerate().filter(|(row, _)| *row > 2 && row % 3 != 2) {
            row.iter_mut().enumerate().for_each(|(i, x)| *x = T::from_f64(1024.0 + 8.0 * (i * 5 % 7) as f64));
        }
    }
    values
}

fn agrees<T: Known>() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = stream()?;
    for sides @ [rows, columns] in SHAPES {
        let weight: Vec<T> = input(Family::Normal, 1, columns);
        for family in [Family::Normal, Family::Special, Family::Cancelling, Family::Subnormal] {
            let x = hostile::<T>(family, sides);
            let residual: Vec<T> = input(Family::Normal, 2, rows * columns);
            for (kind, has_weight, has_residual) in [
                (NormKind::Rms, true, false),
                (NormKind::Rms, false, false),
                (NormKind::Layer, true, false),
                (NormKind::Layer, false, false),
                (NormKind::Rms, true, true),
                (NormKind::Layer, true, true),
            ] {
                if has_residual && family != Family::Normal {
                    continue;
                }
                let weight = has_weight.then_some(&weight[..]);
                let residual = has_residual.then_some(&residual[..]);
                let given = Given { sides, kind, x: &x, residual, weight };
                let what = format!("{kind:?} {family:?} {sides:?} {has_weight} {has_residual}");
                let (y, sum, moments) = given.by(&stream, 1)?;
                given.agree(&what, &y);
                if kind == NormKind::Rms {
                    assert_eq!(moments[..rows], vec![0.0; rows], "{what}: nothing is subtracted");
                }
                // Five rows a block, of which a row is left, show in every family whether a row leaves
                // anything behind for the next. Fewer are other plans for the same code.
                let others: &[u32] = if family == Family::Normal { &[2, 3, 5] } else { &[5] };
                for &turns in others {
                    let other = given.by(&stream, turns)?;
                    compare::bitwise_equal(&what, &y, &other.0)?;
                    compare::bitwise_equal(&what, &sum, &other.1)?;
                    compare::bitwise_equal(&what, &moments, &other.2)?;
                }
            }
        }
    }
    Ok(())
}

tests!(agrees: f32_agrees = f32, f16_agrees = f16, bf16_agrees = bf16);

/// Rows and columns: a warp and several a row, of one multiprocessor's blocks several at once; then clusters
/// alone there, which end before their first barrier, between an arrival at one and its wait, and behind
/// those at which places are used again.
const DRAWN_SHAPES: [[usize; 2]; 6] = [
    [50, 1024],
    [19, 5120],
    [9, 10_240],
    [CLUSTER_PLACES as usize - 2, 16_384],
    [CLUSTER_PLACES as usize + 3, 16_384],
    [CLUSTER_PLACES as usize * 3 / 2 - 11, 16_384],
];

fn are_the_same_drawn<T: Known>() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = stream()?;
    let hows = if size_of::<T>() == 4 { &[Drawing::Plain][..] } else { &[Drawing::Plain, Drawing::Shared] };
    for sides @ [rows, columns] in DRAWN_SHAPES {
        let weight: Vec<T> = input(Family::Normal, 1, columns);
        let x = hostile::<T>(Family::Normal, sides);
        let residual: Vec<T> = input(Family::Normal, 2, rows * columns);
        for (kind, has_weight, has_residual) in [
            (NormKind::Layer, true, false),
            (NormKind::Rms, true, false),
            (NormKind::Layer, false, true),
            (NormKind::Rms, false, true),
        ] {
            if has_residual && rows > 20 {
                continue;
            }
            let (weight, residual) =
                (has_weight.then_some(&weight[..]), has_residual.then_some(&residual[..]));
            let given = Given { sides, kind, x: &x, residual, weight };
            let want = given.by(&stream, 1)?;
            for &how in hows {
                let what = format!("{kind:?} {sides:?} {has_weight} {has_residual} {how:?}");
                let got = given.drawn(&stream, how)?;
                compare::bitwise_equal(&what, &got.0, &want.0)?;
                compare::bitwise_equal(&what, &got.1, &want.1)?;
                compare::bitwise_equal(&what, &got.2, &want.2)?;
            }
        }
    }
    Ok(())
}

tests!(are_the_same_drawn: f32_is_the_same_drawn = f32, f16_is_the_same_drawn = f16, bf16_is_the_same_drawn = bf16);
