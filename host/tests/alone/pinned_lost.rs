//! Copies of page-locked memory that the driver neither marks nor waits for. A process of its own, since its
//! rules hold for the whole process.

use crate::common::{Bench, is_cached};
use driver::code;
use driver::fault::{Rule, Scope, Times, scoped};
use ironwarp::{DeviceBuffer, PinnedBuffer, Result, Stream};

const LEN: usize = 1000;

/// These functions fail.
fn failing(functions: &[&str]) -> Scope {
    let rule = |&function| Rule { function, nth: 1, code: code::OUT_OF_MEMORY, times: Times::Always };
    scoped(&functions.iter().map(rule).collect::<Vec<_>>()).expect("rules that fit")
}

/// A buffer with a copy under way, without a mark for the end of the copy.
fn lost(stream: &Stream, from: &DeviceBuffer<u32>) -> Result<PinnedBuffer<u32>> {
    let mut to = PinnedBuffer::zeroed(stream.device(), LEN)?;
    let _failing = failing(&["cuEventRecord", "cuStreamSynchronize"]);
    from.copy_into_pinned(stream, &mut to).expect_err("no mark");
    Ok(to)
}

#[test]
fn a_copy_without_a_mark_is_waited_for_all_the_same() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    let from = DeviceBuffer::from_slice(&stream, &[7u32; LEN])?;

    let to = lost(&stream, &from)?;
    {
        let _failing = failing(&["cuCtxSynchronize"]);
        to.as_slice().expect_err("nobody knows whether the copy is done");
    }
    assert_eq!(to.as_slice()?, [7; LEN]);
    // The copy is over, so nothing waits any more.
    let _failing = failing(&["cuCtxSynchronize"]);
    assert_eq!(to.as_slice()?, [7; LEN]);
    drop((to, _failing));

    // A later copy replaces its entry.
    let mut to = lost(&stream, &from)?;
    from.copy_into_pinned(&stream, &mut to)?;
    {
        let _failing = failing(&["cuCtxSynchronize"]);
        assert_eq!(to.as_slice()?, [7; LEN]);
    }

    // A dropped buffer keeps its memory while the end of its copy is unknown.
    let to = lost(&stream, &from)?;
    let address = {
        let address = to.as_slice()?.as_ptr();
        drop(to);
        address
    };
    if is_cached() {
        let again = PinnedBuffer::<u32>::zeroed(&device, LEN)?;
        assert_eq!(again.as_slice()?.as_ptr(), address, "the pool's first choice");
    }
    let to = lost(&stream, &from)?;
    {
        let _failing = failing(&["cuCtxSynchronize"]);
        drop(to);
    }
    let others = (0..4).map(|_| PinnedBuffer::<u32>::zeroed(&device, LEN)).collect::<Result<Vec<_>>>()?;
    for other in others.iter().filter(|_| is_cached()) {
        assert_ne!(other.as_slice()?.as_ptr(), address);
    }
    Ok(())
}
