//! The scales of a cache in e4m3.

use attention::decode::sm90::instances::TABLE;

use crate::error::Result;
use crate::memory::{DeviceView, same_length};
use crate::stream::Stream;
use crate::tensor::DType;

use super::super::OPERATION;
use super::super::backward::check_type;
use super::super::check::invalid;
use super::Decode;

/// Elements of a row of a cache in e4m3 come in so many: 16 bytes.
const ROW_UNIT: usize = 16;

/// The scales of keys and of values in e4m3, f32 `[kv heads]` each: an element stands for itself times its
/// head's scale. They are positive and finite. With a scale of 0 all that is read is 0, and zeros are stored;
/// others make the results of their heads meaningless, and do no harm otherwise.
#[derive(Debug, Clone, Copy)]
pub struct CacheScales<'a> {
    /// Of keys.
    pub keys: DeviceView<'a, f32>,
    /// Of values.
    pub values: DeviceView<'a, f32>,
}

impl CacheScales<'_> {
    pub(super) fn check_devices(&self, stream: &Stream) -> Result<()> {
        stream.same_device("the scales of the keys", self.keys.device())?;
        stream.same_device("the scales of the values", self.values.device())
    }
}

impl Decode<'_> {
    /// The cache has the queries' type, or is e4m3 with scales and rows that kernels have.
    pub(super) fn check_cache_type(&self) -> Result<()> {
        let [keys, values] = self.cache.rows();
        let wanted = match &self.scales {
            Some(_) => DType::F8E4M3,
            None => self.queries.dtype(),
        };
        for (argument, got) in [("the keys", keys.dtype()), ("the values", values.dtype())] {
            if self.scales.is_some() && got != wanted {
                let hint = "leave `scales` out, or convert the cache";
                return Err(invalid(
                    argument,
                    format!("of {got}"),
                    format!("{wanted}, as there are scales"),
                    hint,
                ));
            }
            if self.scales.is_none() && got == DType::F8E4M3 {
                let wanted = "scales of keys and values".to_owned();
                let hint = "add `scales`, one for each head of keys; ones for a cache as it is";
                return Err(invalid(argument, format!("of {got} without scales"), wanted, hint));
            }
        }
        let Some(scales) = &self.scales else {
            check_type("the keys", keys.dtype(), wanted)?;
            return check_type("the values", values.dtype(), wanted);
        };
        let [_, _, kv_heads, size] = keys.sides();
        same_length(OPERATION, "the scales of the keys", kv_heads, scales.keys.len())?;
        same_length(OPERATION, "the scales of the values", kv_heads, scales.values.len())?;
        let longest = TABLE.iter().map(|entry| entry.head).max();
        let longest = longest.unwrap_or_default();
        if size > longest as usize || !size.is_multiple_of(ROW_UNIT) {
            return Err(invalid(
                "the head size",
                format!("{size} of a cache in e4m3"),
                format!("a multiple of {ROW_UNIT} up to {longest}"),
                "keep the cache in the type of the queries for other head sizes",
            ));
        }
        Ok(())
    }
}
