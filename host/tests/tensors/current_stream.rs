//! The current stream: what tensor methods queue on, by thread and by scope.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ironwarp::graph::Graph;
use ironwarp::{DType, Device, Error, Result, Tensor};

type Outcome = std::result::Result<(), Box<dyn StdError>>;

#[test]
fn scopes_nest_and_end() -> Outcome {
    let device = Device::open(0)?;
    let default = device.current_stream()?;
    assert_eq!(default, device.current_stream()?);
    let (outer, inner) = (device.stream()?, device.stream()?);
    outer.scope(|scope| {
        assert_eq!(device.current_stream()?, outer);
        inner.scope(|_| {
            assert_eq!(device.current_stream()?, inner);
            Ok(())
        })?;
        assert_eq!(device.current_stream()?, outer);
        let forked = scope.fork()?;
        assert_eq!(device.current_stream()?, outer, "a fork is not entered by itself");
        forked.scope(|_| {
            assert_eq!(device.current_stream()?, forked);
            Ok(())
        })
    })?;
    assert_eq!(device.current_stream()?, default);
    Ok(())
}

#[test]
fn an_error_and_a_panic_end_a_scope() -> Outcome {
    let device = Device::open(0)?;
    let (default, stream) = (device.current_stream()?, device.stream()?);
    let failed: Result<()> = stream.scope(|_| Err(Error::NoSuchDevice { ordinal: 9, count: 1 }));
    assert!(failed.is_err());
    assert_eq!(device.current_stream()?, default);
    let panicked =
        catch_unwind(AssertUnwindSafe(|| -> Result<()> { stream.scope(|_| panic!("on purpose")) }));
    assert!(panicked.is_err());
    assert_eq!(device.current_stream()?, default);
    Ok(())
}

#[test]
fn threads_have_streams_of_their_own_and_share_the_default() -> Outcome {
    let device = Device::open(0)?;
    let (default, stream) = (device.current_stream()?, device.stream()?);
    let x = Tensor::arange(&device, 0, 1000, 1, DType::F32)?;
    stream.scope(|_| {
        std::thread::scope(|threads| {
            let seen = threads.spawn(|| device.current_stream()).join().expect("no panic")?;
            assert_eq!(seen, default, "a scope is its thread's own");
            Ok(())
        })
    })?;
    // Each thread on a stream of its own, all reading one tensor.
    let sums = stream.parallel((0..4).map(|thread| {
        let (x, device) = (&x, &device);
        move |own: &ironwarp::Stream| {
            assert_eq!(device.current_stream()?, *own);
            let mut total = x.copy()?;
            for _ in 0..10 {
                total = (&total + thread)?;
            }
            total.sum_all()?.item::<f32>()
        }
    }))?;
    let want: Vec<f32> = (0..4).map(|thread| 499_500.0 + 10_000.0 * thread as f32).collect();
    assert_eq!(sums, want);
    Ok(())
}

#[test]
fn work_of_several_current_streams_stays_in_order() -> Outcome {
    let device = Device::open(0)?;
    let (one, two) = (device.stream()?, device.stream()?);
    let mut x = Tensor::zeros(&device, &[10_000], DType::F32)?;
    for _ in 0..5 {
        one.scope(|_| x.add_(1))?;
        two.scope(|_| x.mul_(2))?;
        x.sub_(1)?;
    }
    // x -> 2 (x + 1) - 1 = 2 x + 1, five times.
    assert_eq!(x.tolist::<f32>()?, vec![31.0; 10_000]);
    Ok(())
}

#[test]
fn methods_are_captured() -> Outcome {
    let device = Device::open(0)?;
    let stream = device.stream()?;
    let input = Tensor::zeros(&stream, &[3], DType::F32)?;
    let mut graph = Graph::capture(&stream, input, |captured, x| {
        assert_eq!(x.device().current_stream()?, *captured);
        (&(&*x + 1.0)? * &Tensor::full(x.device(), &[], 3.0, DType::F32)?)?.relu()
    })?;
    assert_ne!(device.current_stream()?, stream);
    for step in [1.0f32, -2.0] {
        graph.inputs_mut().fill_(f64::from(step))?;
        graph.replay(&stream)?;
        assert_eq!(graph.outputs().to_vec::<f32>(&stream)?, [(3.0 * (step + 1.0)).max(0.0); 3]);
    }
    Ok(())
}

#[test]
fn the_default_stream_does_not_keep_the_device_open() -> Outcome {
    let device = Device::open(0)?;
    let x = Tensor::ones(&device, &[3], DType::F32)?;
    let stream = device.current_stream()?;
    drop(stream);
    // Kept by the tensor's memory.
    assert_eq!((&x + 1)?.tolist::<f32>()?, [2.0; 3]);
    drop(x);
    // With nothing left it is made anew.
    assert_eq!(Tensor::ones(&device, &[2], DType::F32)?.tolist::<f32>()?, [1.0; 2]);
    Ok(())
}

#[test]
fn new_threads_share_the_memory_of_the_default_stream() -> Outcome {
    let device = Device::open(0)?;
    let _kept = device.current_stream()?;
    // The first block of a thread may come from the cache, with no driver call before: the checker has to
    // know of it.
    let work = || -> Result<()> {
        for _ in 0..50 {
            let x = Tensor::ones(&device, &[3], DType::F32)?;
            assert_eq!((&x + 1)?.tolist::<f32>()?, [2.0; 3]);
        }
        Ok(())
    };
    for _ in 0..3 {
        std::thread::scope(|threads| -> Result<()> {
            let running: Vec<_> = (0..3).map(|_| threads.spawn(work)).collect();
            running.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
    }
    Ok(())
}
