//! The transpose of a row-major matrix.

use basic::transpose as kernel;

use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceView, DeviceViewMut, same_length};
use crate::stream::Stream;

/// Queues `y[c][r] = x[r][c]` for `x: [rows, columns]` and `y: [columns, rows]`, both row-major and dense.
/// Sides may be 0.
///
/// Fastest when both sides are multiples of 4 and both vectors begin at a 16-byte boundary.
///
/// # Errors
/// [`Error::Length`] when a vector does not hold `rows * columns` elements, [`Error::InvalidArgument`] when a
/// side does not fit in 32 bits, [`Error::DeviceMismatch`], or the driver's error.
pub fn transpose<'x, 'y>(
    stream: &Stream,
    rows: usize,
    columns: usize,
    x: impl Into<DeviceView<'x, f32>>,
    y: impl Into<DeviceViewMut<'y, f32>>,
) -> Result<()> {
    let (x, y) = (x.into(), y.into());
    // A product that overflows equals no length.
    let elements = rows.saturating_mul(columns);
    same_length("transpose", "x", elements, x.len())?;
    same_length("transpose", "y", elements, y.len())?;
    if elements == 0 {
        return Ok(());
    }
    let (rows, columns) = (side("rows", rows)?, side("columns", columns)?);
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(kernel::tiles(rows, columns)).unwrap_or(u32::MAX);
    let config = LaunchConfig::new([blocks, 1, 1], [kernel::THREADS, 1, 1]);
    // SAFETY: both hold rows * columns elements, y is exclusively borrowed, and grid and block are what the
    // kernel asks for.
    unsafe { launch::<kernel::transpose>(stream, config, (rows, columns, x, y)) }
}

fn side(argument: &'static str, length: usize) -> Result<u32> {
    if length <= kernel::MAX_SIDE as usize {
        return Ok(length as u32);
    }
    Err(Error::InvalidArgument {
        operation: "transpose",
        argument,
        got: length.to_string(),
        wanted: format!("at most {}", kernel::MAX_SIDE),
        hint: "a matrix so thin is its own transpose but for the shape: copy it, or work on parts",
    })
}
