use kernels as _;

pub static PTX: &str = include_str!("../../resources/kernels.ptx");
pub type Outcome = Result<(), Box<dyn std::error::Error>>;
