//! Matrix products that are no rows of the program: drawn at random, a list of shapes that nobody has tuned
//! for, or named on the command line.

use testkit::Random;

/// A product that is drawn or named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// Types of the operands and of the result.
    pub types: Types,
    /// m, n, k.
    pub sides: (usize, usize, usize),
    /// Products of the batch.
    pub batch: usize,
    /// A lies as `[k, m]`, else as `[m, k]`.
    pub trans_a: bool,
    /// B lies as `[n, k]`, else as `[k, n]`.
    pub trans_b: bool,
    /// The function of the result.
    pub epilogue: Fused,
    /// Named on the command line.
    pub is_named: bool,
}

/// Types of a product. 8-bit operands are E4M3, with a result in bf16 or 8 bits; others have one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Types {
    Bf16,
    F16,
    Tf32,
    F32,
    E4m3,
    E4m3ToE4m3,
}

impl Types {
    /// The word for each on the command line, and names of rows: drawn, and named.
    const WORDS: [(&str, Types, [&str; 2]); 6] = [
        ("bf16", Types::Bf16, ["random_bf16", "gemm_bf16"]),
        ("f16", Types::F16, ["random_f16", "gemm_f16"]),
        ("tf32", Types::Tf32, ["random_tf32", "gemm_tf32"]),
        ("f32", Types::F32, ["random_f32", "gemm_f32"]),
        ("e4m3", Types::E4m3, ["random_e4m3", "gemm_e4m3"]),
        ("e4m3_e4m3", Types::E4m3ToE4m3, ["random_e4m3_e4m3", "gemm_e4m3_e4m3"]),
    ];

    /// The types of this word.
    pub fn of(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, ..)| *known == word).map(|(_, types, _)| *types)
    }

    fn row(self, is_named: bool) -> &'static str {
        let known = Self::WORDS.iter().find(|(_, types, _)| *types == self);
        known.map_or("", |(.., names)| names[usize::from(is_named)])
    }
}

/// The epilogue of a product, in the peers' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Fused {
    None,
    Bias,
    BiasGelu,
    BiasResidual,
}

impl Fused {
    /// The word for each on the command line, which peers use too.
    const WORDS: [(&str, Fused); 4] = [
        ("none", Fused::None),
        ("bias", Fused::Bias),
        ("bias_gelu", Fused::BiasGelu),
        ("bias_residual", Fused::BiasResidual),
    ];

    /// The epilogue of this word.
    pub fn of(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, epilogue)| *epilogue)
    }
}

/// How often types are drawn, of 20.
const TYPES: [(Types, u32); 6] = [
    (Types::Bf16, 8),
    (Types::F16, 4),
    (Types::E4m3, 3),
    (Types::Tf32, 2),
    (Types::F32, 2),
    (Types::E4m3ToE4m3, 1),
];
/// Sides, log-uniform: m from 1, n and k from 64.
const LONGEST: f64 = 32_768.0;
const SHORTEST: [f64; 3] = [1.0, 64.0, 64.0];
/// Of five sides four are multiples of this. The others are odd.
const USUAL_MULTIPLE: usize = 8;
/// Peers take 8-bit operands only with n and k in multiples of this.
const NARROW_MULTIPLE: usize = 16;
/// Of 16-bit products without a batch, one in four has an epilogue; of all, one in eight is a batch.
const FUSED: f64 = 0.25;
const BATCHED: f64 = 0.125;
const LARGEST_BATCH: i64 = 16;
/// Operations at most, on tensor cores and without: some 50 ms on an H200. Longer products are drawn again.
const MOST_FLOPS: [f64; 2] = [2e13, 1e12];
/// Elements of operands and results together, at most.
const MOST_ELEMENTS: f64 = 2e9;

/// So many products. The same seed gives the same ones, and the first ones of a longer draw.
pub fn products(count: usize, seed: u64) -> Vec<Drawn> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|_| {
            loop {
                let drawn = draw(&mut random);
                if drawn.is_affordable() {
                    return drawn;
                }
            }
        })
        .collect()
}

/// One of these.
pub fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.integer(0, of.len() as i64 - 1) as usize]
}

/// A side that is as often short as long.
pub fn spread(random: &mut Random, least: f64, most: f64) -> usize {
    random.uniform(least.ln(), most.ln()).exp() as usize
}

/// Elements of drawn rows together, about: 64 MiB of bf16.
const ROW_ELEMENTS: usize = 1 << 25;
/// Lengths of drawn rows.
const ROW_LENGTHS: [f64; 2] = [768.0, 65_536.0];

/// So many shapes of rows, with lengths that are as often short as long; of five, four are multiples of 8.
pub fn rows(count: usize, seed: u64) -> Vec<[usize; 2]> {
    let mut random = Random::new(seed);
    let [shortest, longest] = ROW_LENGTHS;
    let mut draw = || {
        let columns = spread(&mut random, shortest, longest);
        let is_usual = random.unit() < 0.8;
        let columns = if is_usual { columns.next_multiple_of(USUAL_MULTIPLE) } else { columns | 1 };
        [ROW_ELEMENTS / columns, columns]
    };
    (0..count).map(|_| draw()).collect()
}

fn draw(random: &mut Random) -> Drawn {
    let types = types(random);
    let [m, n, k] = SHORTEST.map(|shortest| {
        let side = spread(random, shortest, LONGEST);
        let is_usual = random.unit() < 0.8;
        if is_usual { side.next_multiple_of(USUAL_MULTIPLE) } else { side | 1 }
    });
    let batch = if random.unit() < BATCHED { random.integer(2, LARGEST_BATCH) as usize } else { 1 };
    let (trans_a, trans_b) = (random.unit() < 0.5, random.unit() < 0.5);
    let epilogue = [Fused::Bias, Fused::BiasGelu, Fused::BiasResidual][random.integer(0, 2) as usize];
    let is_fused = random.unit() < FUSED;
    let is_16_bit = matches!(types, Types::Bf16 | Types::F16);
    let epilogue = if is_fused && is_16_bit && batch == 1 { epilogue } else { Fused::None };
    if matches!(types, Types::E4m3 | Types::E4m3ToE4m3) {
        let [n, k] = [n, k].map(|side| side.next_multiple_of(NARROW_MULTIPLE));
        let (batch, trans_a, trans_b) = (1, false, true);
        return Drawn { types, sides: (m, n, k), batch, trans_a, trans_b, epilogue, is_named: false };
    }
    Drawn { types, sides: (m, n, k), batch, trans_a, trans_b, epilogue, is_named: false }
}

fn types(random: &mut Random) -> Types {
    let mut ticket = random.integer(0, i64::from(TYPES.iter().map(|(_, weight)| weight).sum::<u32>()) - 1);
    for (types, weight) in TYPES {
        ticket -= i64::from(weight);
        if ticket < 0 {
            return types;
        }
    }
    Types::Bf16
}

impl Drawn {
    /// The product of `text`, such as `8x467x83`, or `16x1024x1024x64` for a batch of 16. None where `text`
    /// is no such thing, or the product does not fit in memory.
    pub fn named(text: &str, types: Types, [trans_a, trans_b]: [bool; 2], epilogue: Fused) -> Option<Self> {
        let sides: Vec<usize> = text.split('x').map(|side| side.parse().ok()).collect::<Option<_>>()?;
        let (batch, sides) = match sides[..] {
            [m, n, k] => (1, (m, n, k)),
            [batch, m, n, k] => (batch, (m, n, k)),
            _ => return None,
        };
        let named = Drawn { types, sides, batch, trans_a, trans_b, epilogue, is_named: true };
        let is_empty = [batch, sides.0, sides.1, sides.2].contains(&0);
        (!is_empty && named.elements() <= MOST_ELEMENTS).then_some(named)
    }

    /// Elements of operands and results together.
    fn elements(&self) -> f64 {
        let (m, n, k) = (self.sides.0 as f64, self.sides.1 as f64, self.sides.2 as f64);
        self.batch as f64 * (m * k + k * n + m * n)
    }

    fn is_affordable(&self) -> bool {
        let (m, n, k) = (self.sides.0 as f64, self.sides.1 as f64, self.sides.2 as f64);
        let most = MOST_FLOPS[usize::from(self.types == Types::F32)];
        2.0 * self.batch as f64 * m * n * k <= most && self.elements() <= MOST_ELEMENTS
    }

    /// Its row's name.
    pub fn name(&self) -> &'static str {
        self.types.row(self.is_named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_products() {
        let few = products(20, 7);
        assert_eq!(few[..], products(50, 7)[..20]);
        assert_ne!(few, products(20, 8));
    }

    #[test]
    fn products_are_named_by_their_sides() {
        let named = |text| Drawn::named(text, Types::F16, [false, true], Fused::None);
        let product = named("8x467x83").unwrap();
        assert_eq!((product.batch, product.sides, product.name()), (1, (8, 467, 83), "gemm_f16"));
        assert!(!product.trans_a && product.trans_b);
        let batch = named("16x1024x512x64").unwrap();
        assert_eq!((batch.batch, batch.sides), (16, (1024, 512, 64)));
        let none = ["", "8", "8x467", "8x467x", "1x2x3x4x5", "8x467x0", "8x-1x3", "8X4X2"];
        for text in none.into_iter().chain(["1000000x1000000x8", "99999999999999999999x1x1"]) {
            assert_eq!(named(text), None, "{text}");
        }
        for (word, types, [drawn, named]) in Types::WORDS {
            assert_eq!(Types::of(word), Some(types));
            assert!(drawn.ends_with(word) && named.ends_with(word));
        }
        assert_eq!(Types::of("f64"), None);
        assert_eq!(Fused::of("bias_gelu"), Some(Fused::BiasGelu));
        assert_eq!(Fused::of("gelu_bias"), None);
    }

    #[test]
    fn a_draw_is_as_described() {
        let all = products(2000, 1);
        let share = |holds: &dyn Fn(&Drawn) -> bool| {
            all.iter().filter(|drawn| holds(drawn)).count() as f64 / all.len() as f64
        };
        for (types, weight) in TYPES {
            let share = share(&|drawn| drawn.types == types);
            // Products that are drawn again shift the shares a little.
            assert!((share - f64::from(weight) / 20.0).abs() < 0.05, "{types:?}: {share}");
        }
        assert!(all.iter().all(|&Drawn { sides: (m, n, k), .. }| {
            (1..=32_768).contains(&m) && (64..=32_768).contains(&n) && (64..=32_768).contains(&k)
        }));
        let wide = |drawn: &Drawn| !matches!(drawn.types, Types::E4m3 | Types::E4m3ToE4m3);
        let odd = share(&|drawn| wide(drawn) && drawn.sides.2 % 2 == 1) / share(&wide);
        assert!((odd - 0.2).abs() < 0.05, "{odd}");
        let batches = share(&|drawn| drawn.batch > 1);
        assert!((0.03..0.13).contains(&batches), "{batches}");
        let is_16_bit = |drawn: &Drawn| matches!(drawn.types, Types::Bf16 | Types::F16) && drawn.batch == 1;
        let fused = share(&|drawn| drawn.epilogue != Fused::None) / share(&is_16_bit);
        assert!((fused - FUSED).abs() < 0.06, "{fused}");
        for orders in [(false, false), (false, true), (true, false), (true, true)] {
            assert!(share(&|drawn| wide(drawn) && (drawn.trans_a, drawn.trans_b) == orders) > 0.1);
        }
        // Log-uniform: as many between 64 and 1448 as beyond.
        let below = share(&|drawn| drawn.sides.1 < 1448);
        assert!((below - 0.5).abs() < 0.1, "{below}");
    }
}
