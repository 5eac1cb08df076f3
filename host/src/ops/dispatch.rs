//! From a [`DType`] at run time to the kernel of that type.

use crate::tensor::{DType, TensorError};

/// Picks the arm of a type. An arm names one type or several, may have a condition, and gives a `Result`.
///
/// Without an arm the result is [`TensorError::DType`], which lists the types whose arms apply:
/// `$operation` and `$what` (the operand) go into it, and `$of` says for which function, if not for all.
macro_rules! by_dtype {
    ($dtype:expr, ($operation:expr, $what:expr, $of:expr), {
        $($($known:ident)|+ $(if $condition:expr)? => $run:expr,)+
    }) => {
        match $dtype {
            $($($crate::tensor::DType::$known)|+ $(if $condition)? => $run,)+
            got => Err($crate::ops::dispatch::unsupported(
                $operation,
                $what,
                got,
                &[$((&[$($crate::tensor::DType::$known),+], true $(&& $condition)?)),+],
                $of,
            )),
        }
    };
}

pub(crate) use by_dtype;

/// The error of a type without a kernel. `arms` are types, and whether they are supported.
pub(crate) fn unsupported(
    operation: &'static str,
    what: &'static str,
    got: DType,
    arms: &[(&[DType], bool)],
    of: Option<&dyn std::fmt::Debug>,
) -> crate::Error {
    let supported: Vec<String> =
        arms.iter().filter(|arm| arm.1).flat_map(|arm| arm.0).map(DType::to_string).collect();
    let mut wanted = match supported.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "no type".to_owned(),
    };
    if let Some(function) = of {
        wanted += &format!(" for {function:?}");
    }
    let hint = "convert the operand first (`ops::convert`)";
    TensorError::DType { operation, what, got, wanted, hint }.into()
}

#[cfg(test)]
mod tests {
    use crate::tensor::DType;

    fn pick(dtype: DType, floats: bool) -> crate::Result<u32> {
        by_dtype!(dtype, ("op", "x", Some(&"Add")), {
            F64 | F32 if floats => Ok(1),
            U8 => Ok(2),
        })
    }

    #[test]
    fn errors_list_the_types_whose_arms_apply() {
        assert_eq!(pick(DType::F32, true).unwrap(), 1);
        assert_eq!(pick(DType::U8, false).unwrap(), 2);
        let text = |dtype, floats| pick(dtype, floats).unwrap_err().to_string();
        assert!(text(DType::I32, true).contains("f64, f32 or u8 for \"Add\""), "{}", text(DType::I32, true));
        assert!(text(DType::F32, false).contains("u8 for"), "{}", text(DType::F32, false));
        assert!(!text(DType::F32, false).contains("f64"), "{}", text(DType::F32, false));
    }
}
