//! Positions, warps, shared memory and atomics.

use cuda_std::atomic::{AtomicF32, AtomicF64, SystemAtomicF32, SystemAtomicF64};
use simt::LaunchConfig;
use simt::memory::Tracked;

use super::{Argument, launch, launch_ok, map, outputs};

fn shape(grid: [u32; 3], block: [u32; 3]) -> LaunchConfig {
    LaunchConfig { grid, block, ..LaunchConfig::default() }
}

/// Ordinary numbers, of which some repeat.
fn words(len: u32) -> Vec<u32> {
    (0..len).map(|i| i * 29 % 50 + 1).collect()
}

fn signed(len: u32) -> Vec<i32> {
    words(len).into_iter().map(|v| v as i32 - 20).collect()
}

#[test]
fn positions() {
    let all = |name: &str, config: LaunchConfig, len: usize, extra: &[u32]| {
        outputs::<u32>(name, config, len, |out| {
            [Argument::of(out)].into_iter().chain(extra.iter().map(|&v| Argument::of(v))).collect()
        })
    };
    let counted: Vec<u32> = (0..192).collect();
    assert_eq!(all("place_1d", LaunchConfig::linear(3, 64), 192, &[]), counted);
    assert_eq!(all("place_any", shape([2, 3, 2], [4, 2, 2]), 192, &[]), counted);
    let flat: Vec<u32> = (0..6).flat_map(|y| (0..8).map(move |x| y << 16 | x)).collect();
    assert_eq!(all("place_2d", shape([2, 3, 1], [4, 2, 1]), 48, &[8]), flat);
    let solid = (0..4u32).flat_map(|z| (0..6).flat_map(move |y| (0..8).map(move |x| z << 16 | y << 8 | x)));
    assert_eq!(all("place_3d", shape([2, 3, 2], [4, 2, 2]), 192, &[8, 6]), solid.collect::<Vec<u32>>());
}

#[test]
fn every_axis() {
    let (grid, block) = ([2u32, 3, 2], [4u32, 2, 2]);
    let config = shape(grid, block);
    let mut expected = Vec::new();
    for b in 0..12 {
        for t in 0..16 {
            let at =
                |i: u32, sides: [u32; 3]| [i % sides[0], i / sides[0] % sides[1], i / sides[0] / sides[1]];
            expected.push([at(t, block), at(b, grid), block, grid].concat());
        }
    }
    for name in ["place_vectors", "place_axes"] {
        let got = outputs::<[u32; 12]>(name, config, 192, |out| vec![Argument::of(out)]);
        assert!(got.iter().zip(&expected).all(|(got, want)| got[..] == want[..]), "{name}");
    }
    assert_eq!(outputs::<u32>("count_first", config, 1, |count| vec![Argument::of(count)]), [1]);
}

#[test]
fn blocks_work_together() {
    let x = words(512);
    let sums: Vec<u32> = x.chunks(128).map(|block| block.iter().sum()).collect();
    assert_eq!(map::<_, u32>("tree_sum", LaunchConfig::linear(4, 128), &x, &[], 4), sums);
    let votes: Vec<[u32; 3]> = [vec![1u32; 64], vec![2; 64], (0..64).collect()]
        .concat()
        .chunks(64)
        .map(|block| {
            let odd = block.iter().filter(|v| **v % 2 == 1).count() as u32;
            [odd, (odd == 64) as u32, (odd > 0) as u32]
        })
        .collect();
    let x = [vec![1u32; 64], vec![2; 64], (0..64).collect()].concat();
    assert_eq!(map::<_, [u32; 3]>("block_votes", LaunchConfig::linear(3, 64), &x, &[], 3), votes);

    let floats: Vec<f32> = (0..300).map(|i| i as f32).collect();
    let doubled: Vec<f32> = floats.iter().map(|x| x * 2.0).collect();
    assert_eq!(
        map::<_, f32>("grid_stride", LaunchConfig::linear(2, 64), &floats, &[Argument::of(2.0f32)], 300),
        doubled
    );
}

#[test]
fn blocks_hand_over() {
    let mut x = words(128);
    let total: u32 = x.iter().sum();
    let x = Tracked::new(&mut x, "x");
    let got = outputs::<u32>("last_block_sums", LaunchConfig::linear(4, 32), 6, |out| {
        // Four sums, a counter and the total.
        let [parts, done, all] = [0, 4, 5].map(|at| Argument::of(out.wrapping_add(at)));
        vec![Argument::of(x.as_ptr()), Argument::of(128usize), parts, done, all]
    });
    assert_eq!(got[4..], [4, total]);
    let got = outputs::<u32>("hand_over", LaunchConfig::linear(2, 1), 3, |out| {
        [0, 1, 2].map(|at| Argument::of(out.wrapping_add(at))).into()
    });
    assert_eq!(got, [42, 1, 42 + 32]);

    let mut words = [0u32; 3];
    {
        let words = Tracked::new(&mut words, "words");
        let arguments = [0, 1, 2].map(|at| Argument::of(words.as_ptr().wrapping_add(at)));
        launch_ok("hand_over_by_core", LaunchConfig::linear(2, 1), 0, &arguments);
    }
    assert_eq!(words, [42, 1, 42]);
}

#[test]
fn warps() {
    let config = LaunchConfig::linear(2, 32);
    let places: Vec<[u32; 3]> = (0..64).map(|i| [i % 32, 32, 32]).collect();
    assert_eq!(outputs::<[u32; 3]>("lane_places", config, 64, |out| vec![Argument::of(out)]), places);

    let x = words(64);
    let scan = |warp: &[u32]| {
        warp.iter()
            .scan(0, |sum, v| {
                *sum += v;
                Some(*sum)
            })
            .collect::<Vec<u32>>()
    };
    assert_eq!(
        map::<_, u32>("warp_scan", config, &x, &[], 64),
        x.chunks(32).flat_map(scan).collect::<Vec<_>>()
    );
    let x: Vec<f64> = (0..64).map(f64::from).collect();
    let reversed: Vec<f64> = x.chunks(32).flat_map(|warp| warp.iter().rev().copied()).collect();
    assert_eq!(map::<_, f64>("warp_reverse", config, &x, &[], 64), reversed);
    let x = signed(64);
    let most: Vec<i32> = x.chunks(8).flat_map(|group| [*group.iter().max().unwrap(); 8]).collect();
    assert_eq!(map::<_, i32>("butterfly_max", config, &x, &[], 64), most);
    let x: Vec<f32> = (0..64u8).map(f32::from).collect();
    let next: Vec<f32> = (0..64u8).map(|i| if i % 16 == 15 { -1.0 } else { f32::from(i) + 1.0 }).collect();
    assert_eq!(map::<_, f32>("shift_down", config, &x, &[], 64), next);

    let half = 1.0 + 5.0 / 1024.0;
    let types = [
        5.0,
        5.0,
        5.0,
        5.0 * 2f64.powi(40),
        5.0,
        -5.0,
        -5.0,
        -5.0,
        -5.0 * 2f64.powi(40),
        -5.0,
        2.5,
        1.25,
        half,
        1.0 + 5.0 / 128.0,
    ];
    let got =
        outputs::<[f64; 14]>("shuffle_types", LaunchConfig::linear(1, 32), 32, |out| vec![Argument::of(out)]);
    assert_eq!(got, [types; 32]);

    let x = signed(64);
    let votes: Vec<[u32; 3]> = x
        .chunks(32)
        .flat_map(|warp| {
            let even = (0..32).filter(|&i| warp[i] % 2 == 0).fold(0, |mask, i| mask | 1 << i);
            [[warp.iter().all(|v| *v > 0) as u32, warp.iter().any(|v| *v < 0) as u32, even]; 32]
        })
        .collect();
    assert_eq!(map::<_, [u32; 3]>("warp_votes", config, &x, &[], 64), votes);
    let compact: Vec<i32> = x
        .chunks(32)
        .flat_map(|warp| {
            let mut kept: Vec<i32> = warp.iter().copied().filter(|v| *v > 0).collect();
            kept.resize(32, 0);
            kept
        })
        .collect();
    assert_eq!(map::<_, i32>("warp_compact", config, &x, &[], 64), compact);
}

#[test]
fn warps_match_and_reduce() {
    let x: Vec<u32> = (0..32).map(|i| i * i % 7).collect();
    let matches: Vec<[u32; 8]> = x
        .iter()
        .map(|v| {
            let same = (0..32).filter(|&i| x[i] == *v).fold(0, |mask, i| mask | 1 << i);
            [same, same, same, same, same, same, 0, u32::MAX]
        })
        .collect();
    assert_eq!(map::<_, [u32; 8]>("warp_matches", LaunchConfig::linear(1, 32), &x, &[], 32), matches);

    let x = signed(64);
    let reductions: Vec<[i32; 12]> = x
        .chunks(32)
        .flat_map(|warp| {
            let bits = || warp.iter().copied();
            let unsigned = || warp.iter().map(|v| *v as u32);
            let [and, or, xor] =
                [bits().fold(-1, |a, b| a & b), bits().fold(0, |a, b| a | b), bits().fold(0, |a, b| a ^ b)];
            let sum = bits().sum();
            let (low, high) = (bits().min().unwrap(), bits().max().unwrap());
            let (least, most) = (unsigned().min().unwrap() as i32, unsigned().max().unwrap() as i32);
            [[sum, low, high, and, or, xor, sum, least, most, and, or, xor]; 32]
        })
        .collect();
    assert_eq!(map::<_, [i32; 12]>("warp_reductions", LaunchConfig::linear(2, 32), &x, &[], 64), reductions);
}

#[test]
fn shared_memory() {
    let x: Vec<f32> = (0..48 * 48).map(|i| i as f32).collect();
    let transposed: Vec<f32> = (0..48 * 48).map(|i| (i % 48 * 48 + i / 48) as f32).collect();
    let config = shape([3, 3, 1], [16, 16, 1]);
    assert_eq!(map::<_, f32>("transpose_tiles", config, &x, &[Argument::of(48usize)], 48 * 48), transposed);

    let x: Vec<f32> = (0..192).map(|i| (i * i % 31) as f32).collect();
    let at = |i: i32| usize::try_from(i).ok().and_then(|i| x.get(i)).copied().unwrap_or(0.0);
    let means: Vec<f32> = (0..192).map(|i| (at(i - 1) + at(i) + at(i + 1)) / 3.0).collect();
    assert_eq!(map::<_, f32>("stencil", LaunchConfig::linear(3, 64), &x, &[], 192), means);

    let x = words(128);
    let sums: Vec<u32> = (1..=128).map(|n| x[..n].iter().sum()).collect();
    assert_eq!(map::<_, u32>("block_scan", LaunchConfig::linear(1, 128), &x, &[], 128), sums);

    let x: Vec<f32> = (0..100).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
    let ends = [x.iter().copied().fold(f32::MAX, f32::min), x.iter().copied().fold(f32::MIN, f32::max)];
    assert_eq!(map::<_, [f32; 2]>("extremes", LaunchConfig::linear(1, 32), &x, &[], 1), [ends]);

    let sizes = outputs::<[u32; 3]>("smem_sizes", LaunchConfig::linear(1, 32).shared(128), 1, |out| {
        vec![Argument::of(out)]
    });
    assert_eq!(sizes, [[128, 1, 93]]);
    let helped: Vec<u32> = (0..96).map(|i| i / 32 * 100 + i % 32).collect();
    assert_eq!(
        outputs::<u32>("calls_helpers", LaunchConfig::linear(3, 32), 96, |out| vec![Argument::of(out)]),
        helped
    );

    let arguments = [Argument::of(std::ptr::null_mut::<u32>())];
    let fault = launch("calls_gpu_only", LaunchConfig::linear(1, 1), 0, &arguments).unwrap_err();
    assert!(fault.to_string().contains("`lane_of_gpu` runs on the GPU only"), "{fault}");

    let mut values: Vec<i32> = signed(64);
    let mut sorted = values.clone();
    sorted.sort_unstable();
    {
        let values = Tracked::new(&mut values, "values");
        launch_ok("bitonic_sort", LaunchConfig::linear(1, 64), 3, &[Argument::of(values.as_ptr())]);
    }
    assert_eq!(values, sorted);
}

#[test]
fn float_atomics() {
    let (mut single, mut double) = ([AtomicF32::new(0.0)], [AtomicF64::new(0.0)]);
    let (single, double) = (Tracked::new(&mut single, "single"), Tracked::new(&mut double, "double"));
    let got = outputs::<[f64; 14]>("device_floats", LaunchConfig::linear(1, 1), 1, |out| {
        vec![Argument::of(single.as_ptr()), Argument::of(double.as_ptr()), Argument::of(out)]
    });
    let steps = [8.0, 10.0, 5.0, 5.0, 5.0, -5.0, 1.5];
    assert_eq!(got[0], [steps, steps].concat()[..]);

    let x: Vec<f32> = (0..64).map(|i| i as f32 * 0.5).collect();
    let sums = [0, 32].map(|at| x[at..at + 32].iter().map(|v| f64::from(*v)).sum::<f64>());
    let got = map::<_, [f64; 2]>("block_floats", LaunchConfig::linear(2, 32), &x, &[], 2);
    assert_eq!(got, sums.map(|sum| [sum, -sum]));

    let (mut x, total) = (x, sums[0] + sums[1]);
    let (mut single, mut double) = ([SystemAtomicF32::new(1.0)], [SystemAtomicF64::new(1.0)]);
    {
        let (x, single, double) = (
            Tracked::new(&mut x, "x"),
            Tracked::new(&mut single, "single"),
            Tracked::new(&mut double, "double"),
        );
        let arguments = [
            Argument::of(x.as_ptr()),
            Argument::of(64usize),
            Argument::of(single.as_ptr()),
            Argument::of(double.as_ptr()),
        ];
        launch_ok("system_floats", LaunchConfig::linear(2, 32), 1, &arguments);
    }
    assert_eq!(
        (single.map(|v| f64::from(v.into_inner())), double.map(SystemAtomicF64::into_inner)),
        ([total + 1.0], [total + 1.0])
    );
}

#[test]
fn integer_atomics() {
    let mut x = signed(64);
    let (sum, most) = (x.iter().sum::<i32>(), x.iter().map(|v| v.unsigned_abs()).max().unwrap());
    let x = Tracked::new(&mut x, "x");
    let got = outputs::<u64>("core_atomics", LaunchConfig::linear(2, 32), 3, |out| {
        let [sum, all, most] = [0, 1, 2].map(|at| Argument::of(out.wrapping_add(at)));
        vec![Argument::of(x.as_ptr()), Argument::of(64usize), sum, all, most]
    });
    assert_eq!((got[0] as i32, got[1] as u32, got[2]), (sum, u32::MAX, u64::from(most)));

    let got = outputs::<u64>("spin_lock", LaunchConfig::linear(5, 4), 2, |out| {
        vec![Argument::of(out), Argument::of(out.wrapping_add(1)), Argument::of(7u64)]
    });
    assert_eq!(got, [0, 35]);

    let orders = outputs::<u64>("orders", LaunchConfig::linear(1, 256), 3, |out| {
        [0, 1, 2].map(|at| Argument::of(out.wrapping_add(at))).into()
    });
    assert_eq!((orders[0], orders[1] as i64, f64::from_bits(orders[2])), (3 * 256, -512, 128.0));
}

/// The old values that a kernel writes, and the word's last one. The word begins with `start`.
fn steps<T: Copy + Default + PartialEq + std::fmt::Debug>(name: &str, start: T, len: usize) -> Vec<T> {
    let (mut word, mut out) = ([start], vec![T::default(); len]);
    {
        let (word, out) = (Tracked::new(&mut word, "word"), Tracked::new(&mut out, "out"));
        let arguments = [Argument::of(word.as_ptr()), Argument::of(out.as_ptr())];
        launch_ok(name, LaunchConfig::linear(1, 1), 0, &arguments);
    }
    assert_eq!(out[len - 1], word[0], "{name}");
    out
}

#[test]
fn atomics_by_name() {
    // Add, subtract, and, or, exclusive or, exchange, least, most; then up and down around 10.
    assert_eq!(steps("words_u32", 12u32, 11), [12, 22, 12, 8, 10, 0, 10, 10, 10, 0, 10]);
    let and = 12 & -10;
    let or = and | -10;
    assert_eq!(steps("words_i32", 12i32, 9), [12, 2, 12, and, or, or ^ -10, -10, -10, -10]);
    let wide = |v: u64| v << 33;
    assert_eq!(steps("words_u64", wide(12), 9), [12, 22, 12, 8, 10, 0, 10, 10, 10].map(wide));
    let by = -(10i64 << 33);
    let start = 12i64 << 33;
    let and = start & by;
    assert_eq!(
        steps("words_i64", start, 9),
        [start, start + by, start, and, and | by, (and | by) ^ by, by, by, by]
    );
    let bits = |a: f32, b: f32, f: fn(u32, u32) -> u32| f32::from_bits(f(a.to_bits(), b.to_bits()));
    let and = bits(12.0, 2.5, |a, b| a & b);
    let or = bits(and, 2.5, |a, b| a | b);
    assert_eq!(steps("words_f32", 12.0f32, 7), [12.0, 14.5, 12.0, and, or, bits(or, 2.5, |a, b| a ^ b), 2.5]);
    let bits = |a: f64, b: f64, f: fn(u64, u64) -> u64| f64::from_bits(f(a.to_bits(), b.to_bits()));
    let and = bits(12.0, 2.5, |a, b| a & b);
    let or = bits(and, 2.5, |a, b| a | b);
    assert_eq!(steps("words_f64", 12.0f64, 7), [12.0, 14.5, 12.0, and, or, bits(or, 2.5, |a, b| a ^ b), 2.5]);
}

#[test]
fn words_are_swapped_loaded_and_stored() {
    let (mut single, mut double) = ([5u32, 0], [5u64]);
    let mut swapped = [[0u32; 6]];
    let mut loaded = [[0u64; 6]];
    {
        let (single, double) = (Tracked::new(&mut single, "single"), Tracked::new(&mut double, "double"));
        let (swapped, loaded) = (Tracked::new(&mut swapped, "swapped"), Tracked::new(&mut loaded, "loaded"));
        for (name, out) in [
            ("compare_and_swap", Argument::of(swapped.as_ptr())),
            ("loads_and_stores", Argument::of(loaded.as_ptr())),
        ] {
            let arguments = [Argument::of(single.as_ptr()), Argument::of(double.as_ptr()), out];
            launch_ok(name, LaunchConfig::linear(1, 1), 0, &arguments);
        }
    }
    assert_eq!(swapped, [[5, 5, u32::MAX, 5, 6, 7]]);
    let one = u64::from(1f32.to_bits());
    assert_eq!(loaded, [[one, one, 1f64.to_bits(), 21, 22, 31 << 32 | 32]]);
}
