//! A lent buffer exchanged for one of cust's, which would then free memory of ours.
use ironwarp::{DeviceBuffer, Result};

fn wrong(ours: &mut DeviceBuffer<f32>, mut theirs: cust::memory::DeviceBuffer<f32>) -> Result<()> {
    let mut loan = ours.lend_to_cust()?;
    std::mem::swap(&mut *loan, &mut theirs);
    Ok(())
}

fn main() {}
