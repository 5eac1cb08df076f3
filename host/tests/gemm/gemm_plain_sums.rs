//! The kernel of `gemm::sm90::plain_sums` by itself, on integers that every order of additions gives alike:
//! each way of its threads to share the parts, numbers of parts that no slice divides, lines with gaps.

use gemm::element::{Layout, Type};
use gemm::sm90::plain_sums::{PlainSumsArgs, Sharing, THREADS, gemm_sum_parts_plain};
use half::{bf16, f16};
use ironwarp::{Device, DeviceBuffer, DevicePtr, LaunchConfig, Stream, launch};
use num::{E4M3, E5M2};

use crate::gemm_case::{Number, Outcome};

/// Matrices, and lines of each.
const BATCH: u32 = 2;
const LINES: u32 = 9;
/// Elements of C behind each line, and behind each matrix.
const GAP: u32 = 4;
const BEHIND: u32 = 8;

/// The sum that an element of a part has.
fn part(part: u32, element: u32) -> f32 {
    ((7 * part + 3 * element) % 5) as f32 - 2.0
}

/// C before, an element by its place.
fn before(place: u32) -> f64 {
    f64::from(place % 3) - 1.0
}

/// A case: parts, how they are shared out, elements of a line, whether its elements lie a line apart.
#[derive(Debug, Clone, Copy)]
struct Case {
    count: u32,
    sharing: Sharing,
    length: u32,
    down: bool,
    /// No factors on the device, and a C of NaN that is not added.
    bare: bool,
}

impl Case {
    fn layout(self, ty: Type) -> Layout {
        let (row, column) = if self.down { (1, LINES + GAP) } else { (self.length + GAP, 1) };
        Layout { ty: ty as u32, row: row.into(), column: column.into(), batch: self.matrix().into() }
    }

    /// Elements from a matrix of C to the next.
    fn matrix(self) -> u32 {
        (self.length + GAP) * (LINES + GAP) + BEHIND
    }

    /// C before.
    fn before(self) -> Vec<f64> {
        (0..BATCH * self.matrix()).map(|place| if self.bare { f64::NAN } else { before(place) }).collect()
    }

    /// C afterwards: `2 * 0.25 * 4 * sum - C`, then `0.5` of it, where there are elements.
    fn wanted(self) -> Vec<f64> {
        let mut c = self.before();
        let Layout { row, column, batch, .. } = self.layout(Type::F32);
        for element in 0..BATCH * LINES * self.length {
            let [index, line, along] =
                [element / (LINES * self.length), element / self.length % LINES, element % self.length]
                    .map(u64::from);
            let sum: f64 = (0..self.count).map(|number| f64::from(part(number, element))).sum();
            let x = &mut c[(index * batch + line * row + along * column) as usize];
            *x = if self.bare { 2.0 * sum } else { 0.5 * (2.0 * sum - *x) };
        }
        c
    }

    fn check<T: Number>(self, stream: &Stream, ty: Type) -> Outcome {
        let Case { count, sharing, length, .. } = self;
        let elements = LINES * length;
        let parts: Vec<f32> = (0..count)
            .flat_map(|number| (0..BATCH * elements).map(move |element| part(number, element)))
            .collect();
        let sums = DeviceBuffer::from_slice(stream, &parts)?;
        let source: Vec<T> = self.before().into_iter().map(T::from_f64).collect();
        let c = DeviceBuffer::from_slice(stream, &source)?;
        let [scale_a, scale_b, scale_c] = [0.25f32, 4.0, 0.5].map(|x| DeviceBuffer::from_slice(stream, &[x]));
        let (scale_a, scale_b, scale_c) = (scale_a?, scale_b?, scale_c?);
        let of = PlainSumsArgs {
            count,
            each: count.div_ceil(sharing.count()),
            sharing: sharing.code(),
            length,
            elements,
            batch: BATCH,
            alpha: 2.0,
            beta: if self.bare { 0.0 } else { -1.0 },
            c: self.layout(ty),
            scale_a: (!self.bare).then(|| scale_a.view()),
            scale_b: (!self.bare).then(|| scale_b.view()),
            scale_c: (!self.bare).then(|| scale_c.view()),
        };
        let grid = [elements.div_ceil(sharing.elements()), 1, BATCH];
        let config = LaunchConfig::new(grid, [THREADS, 1, 1]).overlapping_previous();
        let to = DevicePtr::<u8>::from_raw(c.as_ptr().raw());
        // SAFETY: `sums` has the parts, C the elements that its layout says, which do not overlap; grid and
        // block are what the kernel asks for.
        unsafe { launch::<gemm_sum_parts_plain>(stream, config, (of.pass(), &sums, to))? };
        let got: Vec<T> = c.to_vec(stream)?;
        for (place, (got, wanted)) in got.into_iter().zip(self.wanted()).enumerate() {
            let (got, wanted) = (got.to_f64(), T::from_f64(wanted).to_f64());
            let is_same = got == wanted || got.is_nan() && wanted.is_nan();
            assert!(is_same, "{self:?} {} at {place}: got {got}, wanted {wanted}", T::NAME);
        }
        Ok(())
    }
}

/// A stream of a device of the kernel's compute capability.
fn open() -> Outcome<Option<Stream>> {
    let device = Device::open(0)?;
    if device.arch().is_hopper() {
        return Ok(Some(device.stream()?));
    }
    testkit::skip(&format!("{} is no Hopper", device.name()));
    Ok(None)
}

#[test]
fn slices_add_every_part_once() -> Outcome {
    let Some(stream) = open()? else { return Ok(()) };
    for slices in [1, 2, 4, Sharing::MOST_SLICES] {
        let sharing = Sharing::slices(slices);
        // Fewer than there are slices, what one round has, more than that, and what no slice divides.
        for count in [1, 3, 8, 17, 33, 70] {
            let case = Case { count, sharing, length: 37, down: false, bare: false };
            case.check::<f32>(&stream, Type::F32)?;
            Case { bare: true, ..case }.check::<f32>(&stream, Type::F32)?;
        }
        let case = Case { count: 19, sharing, length: 37, down: false, bare: false };
        Case { down: true, ..case }.check::<bf16>(&stream, Type::Bf16)?;
        case.check::<f16>(&stream, Type::F16)?;
    }
    Ok(())
}

#[test]
fn neighbours_add_every_part_once() -> Outcome {
    let Some(stream) = open()? else { return Ok(()) };
    for count in 1..=9 {
        let case = Case { count, sharing: Sharing::WIDE, length: 120, down: false, bare: false };
        case.check::<f32>(&stream, Type::F32)?;
        Case { bare: true, ..case }.check::<f32>(&stream, Type::F32)?;
        case.check::<bf16>(&stream, Type::Bf16)?;
        case.check::<f16>(&stream, Type::F16)?;
        // Sums of more parts are no numbers of these types.
        if count <= 4 {
            case.check::<E4M3>(&stream, Type::E4m3)?;
            case.check::<E5M2>(&stream, Type::E5m2)?;
        }
    }
    Ok(())
}
