//! `GroupedMatmul` against the oracle: every kernel that can do a case does it. Groups of every size around a
//! tile's, wrong offsets, rows of no group, epilogues of each group's own, wrong calls.

use crate::gemm_case::{Number, Outcome, device};
use half::{bf16, f16};
use ironwarp::ops::gemm::{Activation, GroupedMatmul, Matrix, MatrixMut};
use ironwarp::{DeviceBuffer, Error, Stream};
use num::{E4M3, E5M2};
use reference::matmul::{Epilogue, Strided, matmul};
use testkit::{Family, Tolerance, compare, input, tolerance};

/// A product of groups.
#[derive(Debug, Clone)]
struct Case {
    offsets: Vec<i64>,
    /// Rows of A, n, k.
    sides: [usize; 3],
    family: Family,
    /// Rows of a matrix of B lie along k.
    along_k: bool,
    /// Offsets of 64 bits.
    wide: bool,
    alpha: f32,
    beta: f32,
    activation: Activation,
    bias: bool,
    residual: bool,
    scales: bool,
    /// Elements beyond the end of each row of A, B and C.
    gap: usize,
}

impl Case {
    fn new(offsets: &[i64], sides: [usize; 3]) -> Self {
        Case {
            offsets: offsets.to_vec(),
            sides,
            family: Family::Normal,
            along_k: true,
            wide: false,
            alpha: 1.0,
            beta: 0.0,
            activation: Activation::None,
            bias: false,
            residual: false,
            scales: false,
            gap: 0,
        }
    }

    fn groups(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Rows of the groups, as the op takes them: no less than what came before, no more than there are.
    fn rows(&self) -> Vec<(usize, usize)> {
        let mut last = 0;
        let mut taken = self.offsets.iter().map(|offset| {
            last = (*offset).clamp(0, self.sides[0] as i64).max(last);
            last as usize
        });
        let first = taken.next().unwrap_or(0);
        taken.scan(first, |begin, end| Some((std::mem::replace(begin, end), end))).collect()
    }
}

/// A case's operands.
struct Setup<T, C> {
    case: Case,
    a: Vec<T>,
    b: Vec<T>,
    /// C before the product.
    c: Vec<C>,
    residual: Vec<C>,
    bias: Vec<C>,
    scales: [Vec<f32>; 2],
    on_device: (DeviceBuffer<T>, DeviceBuffer<T>, DeviceBuffer<C>, DeviceBuffer<C>),
    scales_on_device: [DeviceBuffer<f32>; 2],
    offsets: (DeviceBuffer<i32>, DeviceBuffer<i64>),
}

impl<T: Number, C: Number> Setup<T, C> {
    fn new(case: Case, stream: &Stream) -> Outcome<Self> {
        let [m, n, k] = case.sides;
        let (groups, gap, family) = (case.groups(), case.gap, case.family);
        let width = n / case.activation.columns() as usize;
        let (lines, length) = if case.along_k { (n, k) } else { (k, n) };
        let a: Vec<T> = input(family, 1, m * (k + gap));
        let b: Vec<T> = input(family, 2, groups * lines * (length + gap));
        let c: Vec<C> = input(family, 3, m * (width + gap));
        let residual: Vec<C> = input(family, 4, m * width);
        let bias: Vec<C> = input(family, 5, groups * n);
        let scales =
            [3, 5].map(|step| (0..groups).map(|group| 0.5 + (group % step) as f32).collect::<Vec<_>>());
        let upload = |numbers: &[f32]| DeviceBuffer::from_slice(stream, numbers);
        let narrow: Vec<i32> = case.offsets.iter().map(|offset| *offset as i32).collect();
        Ok(Setup {
            on_device: (
                DeviceBuffer::from_slice(stream, &a)?,
                DeviceBuffer::from_slice(stream, &b)?,
                DeviceBuffer::from_slice(stream, &residual)?,
                DeviceBuffer::from_slice(stream, &bias)?,
            ),
            scales_on_device: [upload(&scales[0])?, upload(&scales[1])?],
            offsets: (
                DeviceBuffer::from_slice(stream, &narrow)?,
                DeviceBuffer::from_slice(stream, &case.offsets)?,
            ),
            case,
            a,
            b,
            c,
            residual,
            bias,
            scales,
        })
    }

    fn product<'x>(&'x self, c: &'x mut DeviceBuffer<C>) -> GroupedMatmul<'x> {
        let Case { sides: [m, n, k], gap, .. } = self.case;
        let (a, b, residual, bias) = &self.on_device;
        let width = n / self.case.activation.columns() as usize;
        let a = Matrix::new::<T>(a, m, k).leading(k + gap);
        let b = if self.case.along_k {
            Matrix::new::<T>(b, n, k).leading(k + gap).batch(self.case.groups()).transposed()
        } else {
            Matrix::new::<T>(b, k, n).leading(n + gap).batch(self.case.groups())
        };
        let c = MatrixMut::new::<C>(c, m, width).leading(width + gap);
        let product = if self.case.wide {
            GroupedMatmul::new::<i64>(a, b, &self.offsets.1, c)
        } else {
            GroupedMatmul::new::<i32>(a, b, &self.offsets.0, c)
        };
        let product = product.alpha(self.case.alpha).beta(self.case.beta).activation(self.case.activation);
        let product = if self.case.bias { product.bias::<C>(bias) } else { product };
        let product = match &self.scales_on_device {
            [a, b] if self.case.scales => product.scales(a, b),
            _ => product,
        };
        if self.case.residual { product.residual(Matrix::new::<C>(residual, m, width)) } else { product }
    }

    fn run(&self, stream: &Stream, kernel: &str) -> Outcome<Vec<C>> {
        let mut c = DeviceBuffer::from_slice(stream, &self.c)?;
        self.product(&mut c).run_with(stream, kernel)?;
        Ok(c.to_vec(stream)?)
    }

    /// Compares C with the oracle: each group's rows agree with it, and all else is as it was.
    fn compare(&self, got: &[C], kernel: &str) -> Outcome {
        let Case { sides: [m, n, k], gap, .. } = self.case;
        let width = n / self.case.activation.columns() as usize;
        let pitch = width + gap;
        let mut written = vec![false; got.len()];
        for (group, (begin, end)) in self.case.rows().into_iter().enumerate() {
            let what = format!("{kernel}, group {group} of {:?}", self.case);
            let want = self.oracle(group, begin, end - begin);
            let places = || (begin..end).flat_map(|row| (0..width).map(move |column| row * pitch + column));
            let elements: Vec<C> = places().map(|place| got[place]).collect();
            places().for_each(|place| written[place] = true);
            let limit = self.tolerance(kernel, k);
            compare::rounded(&what, &elements, &want.value, &want.magnitude, &[end - begin, width], limit)?;
        }
        let is_kept = |place: usize| written[place] || got[place].bits() == self.c[place].bits();
        assert!((0..m * pitch).all(is_kept), "{kernel} wrote outside of the groups of {:?}", self.case);
        Ok(())
    }

    /// The product of `rows` rows from `first` on with matrix `group` of B.
    fn oracle(&self, group: usize, first: usize, rows: usize) -> reference::Accumulated {
        let Case { sides: [_, n, k], gap, alpha, beta, .. } = self.case;
        let width = n / self.case.activation.columns() as usize;
        let scale = match &self.scales {
            [a, b] if self.case.scales => f64::from(a[group]) * f64::from(b[group]),
            _ => 1.0,
        };
        let dense = |data, row| Strided { data, row, column: 1, matrix: 0 };
        #[allow(clippy::needless_update, reason = "inputs to come need no edit here")]
        let epilogue = Epilogue {
            alpha: f64::from(alpha) * scale,
            beta: beta.into(),
            c: dense(&self.c[first * (width + gap)..], width + gap),
            bias: self.case.bias.then_some(&self.bias[group * n..]),
            activation: reference::matmul::Activation::named(self.case.activation.name()),
            residual: self.case.residual.then_some(dense(&self.residual[first * width..], width)),
            ..Epilogue::NONE
        };
        let (row, column, lines) = if self.case.along_k { (1, k + gap, n) } else { (n + gap, 1, k) };
        let b = &self.b[group * lines * row.max(column)..];
        let a = Strided { data: &self.a[first * (k + gap)..], row: k + gap, column: 1, matrix: 0 };
        matmul([1, rows, n, k], a, Strided { data: b, row, column, matrix: 0 }, epilogue)
    }

    fn tolerance(&self, kernel: &str, k: usize) -> Tolerance {
        if self.case.family == Family::SmallIntegers {
            return Tolerance::EXACT;
        }
        match (kernel.ends_with("any"), size_of::<T>()) {
            (true, _) => tolerance::GEMM_F32.for_terms(k + 4),
            (false, 1) => tolerance::GEMM_TENSOR_FP8.for_terms(k + 4),
            (false, _) => tolerance::GEMM_TENSOR.for_terms(k + 4),
        }
    }
}

/// Every kernel that can do the case does it twice, with the same bits, as the oracle has them. How many did.
fn check<T: Number, C: Number>(case: &Case) -> Outcome<usize> {
    let stream = device()?.stream()?;
    let setup = Setup::<T, C>::new(case.clone(), &stream)?;
    let kernels = setup.product(&mut DeviceBuffer::from_slice(&stream, &setup.c)?).kernels(&stream)?;
    for kernel in &kernels {
        let got = setup.run(&stream, kernel)?;
        setup.compare(&got, kernel)?;
        compare::bitwise_equal(kernel, &got, &setup.run(&stream, kernel)?)?;
    }
    Ok(kernels.len())
}

/// As [`check`], of a case that Hopper's tensor cores take.
fn check_fast<T: Number, C: Number>(case: &Case) -> Outcome {
    let device = device()?;
    let is_hopper = device.arch().is_hopper();
    let kernels = check::<T, C>(case)?;
    assert!(kernels > usize::from(is_hopper), "{kernels} kernels for {case:?}");
    Ok(())
}

/// Offsets of groups of these sizes, from `first` on.
fn offsets(first: i64, sizes: &[i64]) -> Vec<i64> {
    let mut offsets = vec![first];
    offsets.extend(sizes.iter().scan(first, |end, size| {
        *end += size;
        Some(*end)
    }));
    offsets
}

/// Sizes around those of a tile and of its halves; none; at the beginning and the end too.
#[test]
fn groups_of_every_size() -> Outcome {
    let sizes = [0, 1, 63, 0, 0, 64, 65, 127, 128, 129, 7, 0];
    let case = Case::new(&offsets(0, &sizes), [584, 264, 72]);
    check_fast::<bf16, bf16>(&case)?;
    check_fast::<f16, f16>(&Case { along_k: false, wide: true, ..case.clone() })?;
    // More tiles than multiprocessors: blocks walk over groups.
    let many: Vec<i64> = (0..40).map(|group| group * 7 % 5).collect();
    let rows = many.iter().sum::<i64>() as usize;
    check_fast::<bf16, f32>(&Case::new(&offsets(0, &many), [rows, 520, 16]))
}

#[test]
fn rows_of_no_group_stay() -> Outcome {
    let case = Case::new(&offsets(5, &[3, 130, 60]), [210, 40, 64]);
    check_fast::<bf16, bf16>(&case)?;
    check_fast::<E4M3, bf16>(&Case { family: Family::SmallIntegers, ..case.clone() })?;
    // One group, and no row at all.
    check_fast::<f16, f16>(&Case::new(&[0, 33], [33, 16, 24]))?;
    check::<f16, f16>(&Case::new(&[0, 0, 0], [0, 16, 24]))?;
    check::<f16, f16>(&Case::new(&[0, 9], [9, 16, 0]))?;
    Ok(())
}

/// They count as the module says, and nothing outside of C is touched, which the checker would see.
#[test]
fn wrong_offsets_do_no_harm() -> Outcome {
    for wrong in [
        vec![-70, 30, 20, 1000, 5],
        vec![90, 0, 0, 0, 0],
        vec![i64::from(i32::MIN), i64::from(i32::MAX), 0, 3, 4],
    ] {
        let case = Case { family: Family::SmallIntegers, ..Case::new(&wrong, [100, 72, 40]) };
        check_fast::<bf16, bf16>(&case)?;
    }
    let wide = Case { wide: true, ..Case::new(&[i64::MIN, 1 << 40, -1, i64::MAX], [100, 72, 40]) };
    check_fast::<bf16, bf16>(&wide)
}

#[test]
fn epilogues_of_each_group() -> Outcome {
    let case = Case { alpha: 0.75, ..Case::new(&offsets(2, &[40, 0, 130]), [180, 80, 48]) };
    for (index, &activation) in Activation::ALL.iter().enumerate() {
        // Every input appears with several activations and without others.
        let [bias, residual, scales] = [index % 2 == 0, index % 3 != 0, index % 4 >= 2];
        check_fast::<bf16, bf16>(&Case { activation, bias, residual, scales, ..case.clone() })?;
    }
    let rest = Case { beta: -0.5, bias: true, scales: true, ..case };
    check_fast::<f16, f32>(&rest)?;
    // A bias of 20 bytes: not every group's begins at a 16-byte boundary.
    check_fast::<f16, f16>(&Case { sides: [180, 10, 48], ..rest })
}

#[test]
fn the_largest_magnitude_is_of_all_groups() -> Outcome {
    let stream = device()?.stream()?;
    // Rows of no group do not count.
    let case = Case { family: Family::SmallIntegers, ..Case::new(&[4, 40, 140], [150, 24, 32]) };
    let setup = Setup::<bf16, f32>::new(case, &stream)?;
    let kernels = setup.product(&mut DeviceBuffer::from_slice(&stream, &setup.c)?).kernels(&stream)?;
    let (first, second) = (setup.oracle(0, 4, 36), setup.oracle(1, 40, 100));
    let largest = first.value.iter().chain(&second.value).fold(0.0f64, |largest, x| largest.max(x.abs()));
    for kernel in kernels {
        let (mut c, mut amax) =
            (DeviceBuffer::from_slice(&stream, &setup.c)?, DeviceBuffer::zeroed(&stream, 1)?);
        setup.product(&mut c).amax(&mut amax).run_with(&stream, kernel)?;
        assert_eq!(f64::from(amax.to_vec(&stream)?[0]), largest, "{kernel}");
    }
    Ok(())
}

/// Operands that the tensor cores cannot address are copied; other types go the general way.
#[test]
fn any_strides_and_types() -> Outcome {
    let case = Case { gap: 1, ..Case::new(&offsets(0, &[30, 70]), [100, 35, 41]) };
    check_fast::<bf16, bf16>(&case)?;
    check_fast::<E4M3, f32>(&Case { along_k: false, family: Family::SmallIntegers, ..case.clone() })?;
    check::<E5M2, E5M2>(&Case { family: Family::SmallIntegers, ..case.clone() })?;
    check::<f32, f32>(&case)?;
    Ok(())
}

/// The offsets may come from work that is queued before.
#[test]
fn offsets_that_a_kernel_makes() -> Outcome {
    let stream = device()?.stream()?;
    let setup = Setup::<bf16, bf16>::new(Case::new(&[0, 50, 90], [90, 16, 32]), &stream)?;
    let mut c = DeviceBuffer::from_slice(&stream, &setup.c)?;
    let mut offsets = DeviceBuffer::<i32>::zeroed(&stream, 3)?;
    offsets.copy_from_device(&stream, &setup.offsets.0)?;
    let (a, b, ..) = &setup.on_device;
    let b = Matrix::new::<bf16>(b, 16, 32).batch(2).transposed();
    let c_matrix = MatrixMut::new::<bf16>(&mut c, 90, 16);
    let product = GroupedMatmul::new::<i32>(Matrix::new::<bf16>(a, 90, 32), b, &offsets, c_matrix);
    let kernel = product.kernels(&stream)?[0];
    product.run(&stream)?;
    setup.compare(&c.to_vec(&stream)?, kernel)
}

#[test]
fn wrong_calls_say_what_is_wrong() -> Outcome {
    let stream = device()?.stream()?;
    let numbers = DeviceBuffer::<bf16>::zeroed(&stream, 3 * 8 * 8)?;
    let good = DeviceBuffer::<i32>::zeroed(&stream, 4)?;
    let floats = DeviceBuffer::<f32>::zeroed(&stream, 4)?;
    let mut c = DeviceBuffer::<bf16>::zeroed(&stream, 8 * 8)?;
    let a = || numbers.slice(..64).map(|a| Matrix::new::<bf16>(a, 8, 8));
    let b = || Matrix::new::<bf16>(&numbers, 8, 8).batch(3);
    let invalid = |result: ironwarp::Result<()>, name: &str| {
        assert!(
            matches!(&result, Err(Error::InvalidArgument { argument, .. }) if *argument == name),
            "{name}: {result:?}"
        );
    };
    let length = |result: ironwarp::Result<()>, name: &str| {
        assert!(matches!(&result, Err(Error::Length { what, .. }) if *what == name), "{name}: {result:?}");
    };
    fn c_matrix(c: &mut DeviceBuffer<bf16>) -> MatrixMut<'_> {
        MatrixMut::new::<bf16>(c, 8, 8)
    }
    GroupedMatmul::new::<i32>(a()?, b(), &good, c_matrix(&mut c)).run(&stream)?;
    let of_floats = GroupedMatmul::new::<f32>(a()?, b(), &floats, c_matrix(&mut c));
    invalid(of_floats.run(&stream), "the offsets");
    let short = GroupedMatmul::new::<i32>(a()?, b(), good.slice(1..)?, c_matrix(&mut c));
    length(short.run(&stream), "the offsets");
    let wide = b().transposed();
    let narrow = Matrix::new::<bf16>(numbers.slice(..3 * 7 * 8)?, 7, 8).batch(3);
    invalid(GroupedMatmul::new::<i32>(a()?, narrow, &good, c_matrix(&mut c)).run(&stream), "B");
    let bias = numbers.slice(..8)?;
    let one_bias = GroupedMatmul::new::<i32>(a()?, wide, &good, c_matrix(&mut c)).bias::<bf16>(bias);
    length(one_bias.run(&stream), "the bias");
    let scales = GroupedMatmul::new::<i32>(a()?, b(), &good, c_matrix(&mut c)).scales(&floats, &floats);
    length(scales.run(&stream), "the scale");
    let two = MatrixMut::new::<bf16>(&mut c, 4, 8).batch(2);
    invalid(GroupedMatmul::new::<i32>(a()?, b(), &good, two).run(&stream), "C");
    let unknown = GroupedMatmul::new::<i32>(a()?, b(), &good, c_matrix(&mut c)).run_with(&stream, "gemm");
    invalid(unknown, "the kernel");
    Ok(())
}
