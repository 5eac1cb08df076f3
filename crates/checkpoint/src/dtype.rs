//! Types of elements, by safetensors' names.

use serde::{Deserialize, Serialize};

/// The type of a tensor's elements, by safetensors' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are safetensors'")]
#[expect(non_camel_case_types, reason = "the names are safetensors'")]
pub enum DType {
    BOOL,
    U8,
    I8,
    F8_E4M3,
    F8_E5M2,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    I64,
    U64,
    F64,
}

impl DType {
    /// The bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::BOOL | Self::U8 | Self::I8 | Self::F8_E4M3 | Self::F8_E5M2 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}
