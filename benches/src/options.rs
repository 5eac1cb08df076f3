//! The command line of a bench program.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::{Drawn, Fused, Types};

/// The options on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Few samples and small inputs. Shows whether the code runs, not how fast.
    pub quick: bool,
    /// Few and short samples, and a short search of the peer: for hundreds of shapes.
    pub brief: bool,
    /// The folder for the samples.
    pub out: Option<PathBuf>,
    /// Only rows whose name contains one of these comma-separated texts.
    pub only: Option<String>,
    /// Shows every configuration of a row instead of the table, in programs that have several.
    pub every: bool,
    /// So many shapes drawn at random instead of the program's own, in programs that draw.
    pub random: Option<usize>,
    /// The seed of that draw; without it one of the clock.
    pub seed: Option<u64>,
    /// Seconds of the program after which no drawn shape begins.
    pub within: Option<u64>,
    /// These products instead of the program's own rows, in the program that has products.
    pub named: Vec<Drawn>,
}

const USAGE: &str = "usage: PROGRAM [--quick] [--brief] [--out DIR] [--only TEXT,..] [--every]
  --brief   for hundreds of shapes: a row has ten samples in 40 ms, and cuBLASLt's algorithms are searched for 300 ms
  --random N [--seed S] [--within SECONDS]
            shapes drawn at random in place of the program's own: `gemm`, `rows`, `attention`, `conv`; none begins
            after so many seconds
  products in place of the rows of `gemm`:
    --shape [BATCHx]MxNxK,.. [--type bf16|f16|tf32|f32|e4m3|e4m3_e4m3] [--order nt|nn|tn|tt]
            [--epilogue none|bias|bias_gelu|bias_residual]
      the order says how A and B lie: `n` as [m, k] and [k, n], `t` transposed; without these: bf16, nt
  gemm --shape 8x467x83,16x9664x2904 --type tf32 --order nn --every";

/// An invalid argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// An unknown option.
    #[error("unknown argument {0:?}\n{USAGE}")]
    Unknown(OsString),
    /// An option whose value is no text in UTF-8.
    #[error("the value {0:?} is no text in UTF-8")]
    NoText(OsString),
    /// An option with an empty value.
    #[error("`{0}` has an empty value\n{USAGE}")]
    Empty(&'static str),
    /// A value that is no number.
    #[error("`{option}` needs a number, not {value:?}")]
    NoNumber {
        /// The option.
        option: &'static str,
        /// Its value.
        value: OsString,
    },
    /// A seed or a time, and nothing that is drawn.
    #[error("`{0}` is for `--random N`")]
    NothingDrawn(&'static str),
    /// A program without products has nothing to draw or to name.
    #[error(
        "this program has no products and draws no shapes; `gemm --random N` and `gemm --shape MxNxK` are for those, `--random N` for `rows`, `attention` and `conv` too"
    )]
    NoProducts,
    /// A shape that is none, or too large.
    #[error("`--shape` needs [BATCHx]MxNxK, as in 8x467x83, of two billion elements at most, not {0:?}")]
    NoShape(OsString),
    /// A word that is none of those for an option.
    #[error("`{option}` has no word {value:?}\n{USAGE}")]
    NoWord {
        /// The option.
        option: &'static str,
        /// Its value.
        value: OsString,
    },
    /// A type or an order, and no shape.
    #[error("`{0}` is for `--shape MxNxK`")]
    NothingNamed(&'static str),
    /// Products that are drawn, and named ones.
    #[error("`--random` and `--shape` are two lists of products: take one of them")]
    TwoLists,
    /// An option without its value.
    #[error("`{0}` needs a value\n{USAGE}")]
    NoValue(&'static str),
    /// A part of `--only` that no row's name contains.
    #[error("--only {part:?}: no row of this program has that in its name; its rows are {}", .names.join(", "))]
    NoRow {
        /// The part.
        part: String,
        /// The rows' names.
        names: Vec<String>,
    },
}

impl Options {
    /// Parses the arguments after the program's name. Ignores `--bench`, which cargo adds. `--test`, which
    /// `cargo test --benches` adds, means `--quick`.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, OptionsError> {
        let mut options = Options::default();
        let (mut shapes, mut types, mut order, mut epilogue) = (None, None, None, None);
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--bench") => {}
                Some("--quick" | "--test") => options.quick = true,
                Some("--brief") => options.brief = true,
                Some("--every") => options.every = true,
                Some("--out") => options.out = Some(value("--out", arguments.next())?.into()),
                Some("--only") => {
                    let only = value("--only", arguments.next())?;
                    options.only = Some(only.into_string().map_err(OptionsError::NoText)?);
                }
                Some("--random") => options.random = Some(number("--random", arguments.next())?),
                Some("--seed") => options.seed = Some(number("--seed", arguments.next())?),
                Some("--within") => options.within = Some(number("--within", arguments.next())?),
                Some("--shape") => shapes = Some(value("--shape", arguments.next())?),
                Some("--type") => types = Some(word("--type", arguments.next(), Types::of)?),
                Some("--order") => order = Some(word("--order", arguments.next(), order_of)?),
                Some("--epilogue") => {
                    epilogue = Some(word("--epilogue", arguments.next(), Fused::of)?);
                }
                _ => return Err(OptionsError::Unknown(argument)),
            }
        }
        let needless = types.map(|_| "--type").or(order.map(|_| "--order"));
        let needless = needless.or(epilogue.map(|_| "--epilogue"));
        match (shapes, needless) {
            (None, Some(option)) => return Err(OptionsError::NothingNamed(option)),
            (None, None) => {}
            (Some(_), _) if options.random.is_some() => return Err(OptionsError::TwoLists),
            (Some(shapes), _) => {
                let (types, order) = (types.unwrap_or(Types::Bf16), order.unwrap_or([false, true]));
                let epilogue = epilogue.unwrap_or(Fused::None);
                let of = |text: &str| Drawn::named(text, types, order, epilogue);
                let named = |text: &str| text.split(',').map(of).collect::<Option<_>>();
                options.named = shapes.to_str().and_then(named).ok_or(OptionsError::NoShape(shapes))?;
            }
        }
        let of_drawn = options.seed.map(|_| "--seed").or(options.within.map(|_| "--within"));
        match of_drawn {
            Some(option) if options.random.is_none() => Err(OptionsError::NothingDrawn(option)),
            _ => Ok(options),
        }
    }

    /// Whether products are wanted that are no rows of the program.
    pub fn has_products(&self) -> bool {
        self.random.is_some() || !self.named.is_empty()
    }

    /// Whether `--only` selects a row of this name.
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.split(',').any(|part| name.contains(part)))
    }

    /// Whether rows of this name may be selected, by some of their shapes.
    pub fn wants_some(&self, name: &str) -> bool {
        let of_name = |part: &str| {
            name.contains(part) || part.split_once('/').is_some_and(|(of, _)| name.ends_with(of))
        };
        self.only.as_ref().is_none_or(|only| only.split(',').any(of_name))
    }
}

fn value(option: &'static str, value: Option<OsString>) -> Result<OsString, OptionsError> {
    match value.ok_or(OptionsError::NoValue(option))? {
        empty if empty == OsStr::new("") => Err(OptionsError::Empty(option)),
        value => Ok(value),
    }
}

fn number<T: std::str::FromStr>(option: &'static str, text: Option<OsString>) -> Result<T, OptionsError> {
    let value = value(option, text)?;
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or(OptionsError::NoNumber { option, value })
}

fn word<T>(
    option: &'static str,
    text: Option<OsString>,
    known: impl Fn(&str) -> Option<T>,
) -> Result<T, OptionsError> {
    let value = value(option, text)?;
    value.to_str().and_then(known).ok_or(OptionsError::NoWord { option, value })
}

/// Whether A lies as `[k, m]`, and B as `[n, k]`.
fn order_of(word: &str) -> Option<[bool; 2]> {
    match word {
        "nn" => Some([false, false]),
        "nt" => Some([false, true]),
        "tn" => Some([true, false]),
        "tt" => Some([true, true]),
        _ => None,
    }
}

/// The rows that a program has asked about, each as `NAME` or `NAME/SHAPE`.
#[derive(Debug, Default)]
pub struct Seen(Vec<String>);

impl Seen {
    /// Records a row.
    pub fn note(&mut self, row: &str) {
        if !self.0.iter().any(|seen| seen == row) {
            self.0.push(row.to_owned());
        }
    }

    /// Checks that every part of `--only` is in some row's name. Called when all rows are known.
    ///
    /// # Errors
    /// [`OptionsError::NoRow`].
    pub fn check(&self, options: &Options) -> Result<(), OptionsError> {
        let mut parts = options.only.iter().flat_map(|only| only.split(','));
        let Some(part) = parts.find(|part| !self.0.iter().any(|row| row.contains(part))) else {
            return Ok(());
        };
        let mut names: Vec<String> = Vec::new();
        for row in &self.0 {
            let name = row.split('/').next().unwrap_or(row);
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Err(OptionsError::NoRow { part: part.to_owned(), names })
    }
}

#[cfg(test)]
mod tests {
    use super::{Options, OptionsError, Seen};
    use crate::{Drawn, Types};

    fn parse(line: &str) -> Result<Options, OptionsError> {
        Options::parse(line.split_whitespace().map(Into::into))
    }

    #[test]
    fn known_arguments() {
        let options = parse("--bench --quick --out here --only saxpy --every").unwrap();
        let (out, only) = (Some("here".into()), Some("saxpy".into()));
        assert_eq!(options, Options { quick: true, out, only, every: true, ..Options::default() });
        let drawn = parse("--random 40 --seed 7 --brief --within 90").unwrap();
        assert_eq!((drawn.random, drawn.seed, drawn.within), (Some(40), Some(7), Some(90)));
        assert!(drawn.brief && !drawn.quick);
        assert_eq!(parse("").unwrap(), Options::default());
        assert!(parse("--test").unwrap().quick);
    }

    #[test]
    fn products_can_be_named() {
        let named = |line: &str| {
            let options = parse(line).unwrap();
            assert!(options.has_products());
            let of = |product: &Drawn| (product.types, product.trans_a, product.trans_b, product.sides);
            options.named.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(named("--shape 8x467x83"), [(Types::Bf16, false, true, (8, 467, 83))]);
        let two = named("--every --type tf32 --shape 8x467x83,16x9664x2904 --order tn");
        let tf32 = |sides| (Types::Tf32, true, false, sides);
        assert_eq!(two, [tf32((8, 467, 83)), tf32((16, 9664, 2904))]);
        assert!(!parse("--every").unwrap().has_products());
    }

    #[test]
    fn rows_are_picked_by_parts_of_their_names() {
        let wants = |line: &str, name: &str| parse(line).unwrap().wants(name);
        assert!(wants("", "gemm"));
        assert!(wants("--only gemm_f16/1x,copy", "gemm_f16/1x8") && wants("--only gemm_f16/1x,copy", "copy"));
        assert!(!wants("--only gemm_f16/1x,copy", "gemm_f16/2x8"));
        let wants_some = |line: &str, name: &str| parse(line).unwrap().wants_some(name);
        assert!(
            wants_some("--only gemm_f16/1x,copy", "gemm_f16") && !wants_some("--only f16/1x", "gemm_f32")
        );
        assert!(wants_some("--only f16/1x", "gemm_f16") && !wants_some("--only f16/1x", "gemm_f16_small"));
        assert!(wants_some("--only f16", "gemm_f16_small") && wants_some("", "gemm"));
    }

    #[test]
    fn parts_that_pick_no_row_are_named() {
        let mut seen = Seen::default();
        ["copy/8 bytes", "gemm_f16/1x8", "gemm_f16/2x8", "saxpy"].into_iter().for_each(|row| seen.note(row));
        for line in ["", "--only gemm_f16/2", "--only saxpy,copy"] {
            assert_eq!(seen.check(&parse(line).unwrap()), Ok(()), "{line}");
        }
        let names = ["copy", "gemm_f16", "saxpy"].map(String::from).to_vec();
        let error = Err(OptionsError::NoRow { part: "gemv".into(), names });
        assert_eq!(seen.check(&parse("--only saxpy,gemv").unwrap()), error);
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("--fast"), Err(OptionsError::Unknown("--fast".into())));
        assert_eq!(parse("--quick --out"), Err(OptionsError::NoValue("--out")));
        let no_number = OptionsError::NoNumber { option: "--random", value: "some".into() };
        assert_eq!(parse("--random some"), Err(no_number));
        assert_eq!(parse("--seed 3"), Err(OptionsError::NothingDrawn("--seed")));
        assert_eq!(parse("--within 3 --shape 8x8x8"), Err(OptionsError::NothingDrawn("--within")));
        assert_eq!(parse("--type f16"), Err(OptionsError::NothingNamed("--type")));
        assert_eq!(parse("--epilogue bias"), Err(OptionsError::NothingNamed("--epilogue")));
        assert_eq!(parse("--order nn"), Err(OptionsError::NothingNamed("--order")));
        assert_eq!(parse("--random 3 --shape 8x8x8"), Err(OptionsError::TwoLists));
        assert_eq!(parse("--shape 8x8x8,8"), Err(OptionsError::NoShape("8x8x8,8".into())));
        let no_word = OptionsError::NoWord { option: "--order", value: "tnt".into() };
        assert_eq!(parse("--shape 8x8x8 --order tnt"), Err(no_word));
    }
}
