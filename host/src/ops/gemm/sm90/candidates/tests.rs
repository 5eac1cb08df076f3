//! Rules by which kernels are offered.

use super::{
    Source, View, Work, box_of, f32_by_tma, in_parts, is_by_column, is_copied, is_plain, raster_group,
    resident, source,
};
use crate::ops::gemm::EpilogueDesc;
use crate::ops::gemm::config::{Candidate, Config, Kernel, Repack};
use crate::ops::gemm::problem::{Operand, Order, Precision, Problem};
use crate::ops::gemm::select::{All, DeviceCapabilities};
use crate::tensor::DType;
use gemm::epilogue::Activation;
use gemm::sm90::instances::{Entry, Kind, TABLE};

/// As many as the driver says of an H200.
#[test]
fn large_clusters_leave_multiprocessors_idle() {
    let one = TABLE.iter().find(|entry| entry.cluster == [1; 3]).unwrap();
    let of = |m, n, k| resident(&Entry { cluster: [m, n, k], ..*one }, &DeviceCapabilities::H200);
    assert_eq!([of(1, 1, 1), of(2, 1, 1), of(1, 1, 2), of(4, 1, 1), of(2, 2, 1)], [132, 66, 66, 30, 30]);
    assert_eq!([of(4, 2, 1), of(8, 1, 1)], [15, 15]);
}

#[test]
fn boxes_outside_are_left_out() {
    // A matrix that ends within the first tile has one box; whole tiles have one too.
    assert_eq!([box_of(3, 128, 1), box_of(72, 128, 1), box_of(128, 128, 1)], [8, 72, 128]);
    assert_eq!([box_of(512, 256, 1), box_of(512, 256, 2)], [256, 128]);
    // 16 of 256 columns in the second tile; of two blocks' parts of 128 each.
    assert_eq!([box_of(272, 256, 1), box_of(272, 256, 2), box_of(40, 256, 2)], [64, 32, 64]);
    // Halves will do for 128 rows; no third of 128 is a box; of many tiles the last is cheap.
    assert_eq!([box_of(384, 256, 1), box_of(200, 144, 1), box_of(20, 16, 1)], [128, 72, 16]);
    // Few rows outside are worth no box more.
    assert_eq!([box_of(1000, 64, 1), box_of(1000, 128, 2)], [64, 64]);
    assert_eq!([box_of(16 * 128 + 1, 128, 1), box_of(15 * 128 + 1, 128, 1)], [128, 32]);
}

#[test]
fn what_lies_as_c_does_comes_by_tma() {
    let c =
        Operand { dtype: DType::BF16, order: Order::Rows, leading: 64, batch_stride: 4096, alignment: 16 };
    let of = |c: Operand, epilogue: EpilogueDesc| {
        let precision = Precision::F32;
        source(&Problem { m: 64, n: 64, k: 64, batch: 2, a: c, b: c, c, precision, epilogue })
    };
    let with = |residual: Operand| EpilogueDesc { residual: Some(residual), ..EpilogueDesc::default() };
    let c_too = EpilogueDesc { source: true, ..EpilogueDesc::default() };
    assert_eq!(of(c, EpilogueDesc::default()), Source::Nothing);
    assert_eq!(of(c, c_too), Source::C);
    assert_eq!(of(c, with(c)), Source::Residual);
    assert_eq!(of(c, EpilogueDesc { source: true, ..with(c) }), Source::Residual);
    assert_eq!(of(c, with(Operand { leading: 72, batch_stride: 8192, ..c })), Source::Residual);
    for residual in [
        Operand { dtype: DType::F32, ..c },
        Operand { alignment: 8, ..c },
        Operand { leading: 0, ..c },
        Operand { batch_stride: 0, ..c },
    ] {
        assert_eq!(of(c, with(residual)), Source::Nothing, "{residual:?}");
    }
    assert_eq!(of(Operand { alignment: 8, ..c }, c_too), Source::Nothing);
    assert_eq!(of(Operand { dtype: DType::F32, ..c }, c_too), Source::Nothing);
    let halved = EpilogueDesc { activation: Activation::SwiGlu, ..with(c) };
    assert_eq!(of(c, halved), Source::Nothing);
}

#[test]
fn f32_that_is_the_product_is_copied_in_whole_units() {
    let c = Operand { dtype: DType::F32, order: Order::Rows, leading: 64, batch_stride: 4096, alignment: 16 };
    let by = |kind: Kind, c: Operand, n: u32, epilogue: EpilogueDesc| {
        let entry = TABLE.iter().find(|entry| entry.kind == kind).unwrap();
        let problem =
            Problem { m: 64, n, k: 64, batch: 2, a: c, b: c, c, precision: Precision::F32, epilogue };
        assert_eq!(is_copied(entry, &problem), f32_by_tma(entry, &problem));
        assert_eq!(is_plain(entry, &problem), f32_by_tma(entry, &problem));
        f32_by_tma(entry, &problem)
    };
    let none = EpilogueDesc::default();
    assert!(by(Kind::Dense, c, 64, none) && by(Kind::Direct, c, 60, none));
    let columns = Operand { order: Order::Columns, ..c };
    assert!(by(Kind::Dense, columns, 61, none), "lines of 64 rows");
    assert!(!by(Kind::Dense, c, 62, none), "rows of no whole units");
    assert!(!by(Kind::Dense, Operand { alignment: 8, ..c }, 64, none));
    assert!(!by(Kind::Grouped, c, 64, none));
    for epilogue in [
        EpilogueDesc { factor: true, ..none },
        EpilogueDesc { source: true, ..none },
        EpilogueDesc { bias: Some(DType::F32), ..none },
        EpilogueDesc { activation: Activation::Relu, ..none },
    ] {
        assert!(!by(Kind::Dense, c, 64, epilogue), "{epilogue:?}");
    }
}

#[test]
fn tiles_of_a_large_result_go_along_its_rows() {
    let lies = Operand { dtype: DType::BF16, order: Order::Rows, leading: 0, batch_stride: 0, alignment: 16 };
    let group = |transposed: bool, [m, n, k]: [u32; 3]| {
        let is_taken = |entry: &&Entry| entry.kind == Kind::Dense && entry.transposed == transposed;
        let entry = TABLE.iter().find(is_taken).unwrap();
        let (precision, epilogue) = (Precision::F32, EpilogueDesc::default());
        let problem = Problem { m, n, k, batch: 1, a: lies, b: lies, c: lies, precision, epilogue };
        let view = View::new(&problem, transposed);
        (raster_group(entry, entry.block[1], &problem, &view), view.m.div_ceil(entry.block[0]))
    };
    // 537 MB of C, 8 MB of A and B.
    let stores = [16_384, 16_384, 128];
    assert_eq!(group(false, stores).0, 1);
    let (of_transpose, all) = group(true, stores);
    assert_eq!(of_transpose, all, "columns of the kernel's tiles are rows of C");
    for [m, n, k] in [[16_384, 16_384, 4096], [1024, 1024, 8]] {
        assert!(group(false, [m, n, k]).0 > 1, "C is a small part, or stays in the cache: {m} x {n} x {k}");
    }
}

/// Whole tiles take the short way through an epilogue with everything that the copy engine brings, and with
/// nothing else that differs from element to element.
#[test]
fn what_is_brought_is_added_by_columns() {
    let c =
        Operand { dtype: DType::BF16, order: Order::Rows, leading: 64, batch_stride: 4096, alignment: 16 };
    let of = |epilogue: EpilogueDesc| {
        let precision = Precision::F32;
        is_by_column(&Problem { m: 64, n: 64, k: 64, batch: 2, a: c, b: c, c, precision, epilogue })
    };
    let bias = EpilogueDesc { bias: Some(DType::F32), ..EpilogueDesc::default() };
    let with = |residual: Operand| EpilogueDesc { residual: Some(residual), ..bias };
    assert!(of(bias) && of(with(c)) && of(EpilogueDesc { source: true, ..bias }));
    assert!(of(EpilogueDesc { activation: Activation::GeluTanh, ..with(c) }));
    // Threads read these.
    assert!(!of(with(Operand { dtype: DType::F32, ..c })));
    assert!(!of(with(Operand { alignment: 8, ..c })));
    // The copy engine brings the residual alone.
    assert!(!of(EpilogueDesc { source: true, ..with(c) }));
    assert!(!of(EpilogueDesc { activation: Activation::Gelu, ..with(c) }));
    assert!(!of(EpilogueDesc { amax: true, ..with(c) }));
}

/// A share without a stage of its own would add one of the next part's.
#[test]
fn parts_in_shares_have_a_stage_for_each() {
    let entry = TABLE.iter().find(|entry| entry.cluster[2] > 1 && entry.consumers > 1).unwrap();
    let lies = Operand { dtype: DType::BF16, order: Order::Rows, leading: 0, batch_stride: 0, alignment: 16 };
    let (precision, epilogue) = (Precision::F32, EpilogueDesc::default());
    let mut offered = 0;
    for stages in 2..=16 {
        let [block_m, width, block_k] = entry.block;
        let (m, k) = (16 * block_m, stages * block_k);
        let problem = Problem { m, n: width, k, batch: 1, a: lies, b: lies, c: lies, precision, epilogue };
        let (view, device) = (View::new(&problem, false), &DeviceCapabilities::H200);
        let work = Work { entry, width, view: &view, problem: &problem, copies: [Repack::No; 2], device };
        // No estimate keeps any of them away.
        let config = Config::new(Kernel::Sm90(0), entry.block, 1);
        let whole = Candidate { config, estimate_us: f64::INFINITY, why: "" };
        let mut all = All::default();
        in_parts(&whole, work, &mut all);
        for Candidate { config, .. } in &all.candidates {
            assert!(stages.div_ceil(config.split_k) >= entry.cluster[2], "{config} of {stages} stages");
        }
        offered += all.candidates.len();
    }
    assert!(offered > 0, "what the test is about");
}
