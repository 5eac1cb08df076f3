//! Launches: arguments of every kind, empty launches, shared memory, cooperative grids, handles, launches by
//! name.

use crate::common::kernels::{self, bounded, fill, last_of_dynamic_shared, scale};
use crate::common::{Bench, load_kernels};
use cuda_std::kernel::{PtrMut, Slice, Value};
use ironwarp::graph::Graph;
use ironwarp::{DeviceBuffer, DevicePtr, DeviceViewMut, LaunchConfig, Module, Result, launch};

#[test]
fn buffers_and_views_are_arguments() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0, 4.0])?;
    let mut y = DeviceBuffer::<f32>::zeroed(&stream, 4)?;
    let config = LaunchConfig::linear(4, 32);
    // SAFETY: `y` has at least as many elements as `x` each time.
    unsafe {
        launch::<scale>(&stream, config, (2.0, &x, &mut y))?;
        assert_eq!(y.to_vec(&stream)?, [2.0, 4.0, 6.0, 8.0]);
        launch::<scale>(&stream, config, (3.0, x.slice(2..)?, y.slice_mut(..2)?))?;
        assert_eq!(y.to_vec(&stream)?, [9.0, 12.0, 6.0, 8.0]);
        let (x_view, mut y_view) = (x.view(), y.view_mut());
        launch::<scale>(&stream, config, (1.0, &x_view, &mut y_view))?;
        launch::<scale>(&stream, config, (1.0, x_view, y_view))?;
        assert_eq!(y.to_vec(&stream)?, [1.0, 2.0, 3.0, 4.0]);
        launch::<scale>(&stream, config, (5.0, &x, y.as_ptr()))?;
        assert_eq!(y.to_vec(&stream)?, [5.0, 10.0, 15.0, 20.0]);
    }
    Ok(())
}

#[test]
fn null_is_an_argument() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32])?;
    let mut y = DeviceBuffer::<f32>::zeroed(&stream, 1)?;
    let config = LaunchConfig::linear(1, 32);
    // SAFETY: `y` is null or has one element.
    unsafe {
        launch::<scale>(&stream, config, (2.0, &x, None::<&mut DeviceBuffer<f32>>))?;
        launch::<scale>(&stream, config, (2.0, &x, None::<DeviceViewMut<'_, f32>>))?;
        launch::<scale>(&stream, config, (2.0, &x, DevicePtr::null()))?;
        launch::<scale>(&stream, config, (2.0, &x, Some(&mut y)))?;
    }
    assert_eq!(y.to_vec(&stream)?, [2.0]);
    Ok(())
}

#[test]
fn empty_slices_are_arguments() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let x = DeviceBuffer::<f32>::zeroed(&stream, 0)?;
    let mut y = DeviceBuffer::<f32>::zeroed(&stream, 1)?;
    // SAFETY: `x` has no elements.
    unsafe { launch::<scale>(&stream, LaunchConfig::linear(64, 32), (2.0, &x, &mut y))? };
    assert_eq!(y.to_vec(&stream)?, [0.0]);
    Ok(())
}

#[test]
fn nothing_to_do_is_done() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut y = DeviceBuffer::from_slice(&stream, &[5.0f32])?;
    // SAFETY: no thread runs.
    unsafe { launch::<fill>(&stream, LaunchConfig::linear(0, 128), (1u32, 1.0, &mut y))? };
    assert_eq!(y.to_vec(&stream)?, [5.0]);
    Ok(())
}

#[test]
fn grids_of_every_shape() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    for n in [1usize, 31, 32, 33, 1000, 4096, 70_000] {
        for block in [1, 32, 96, 1024] {
            let mut y = DeviceBuffer::<f32>::zeroed(&stream, n)?;
            // SAFETY: n elements.
            unsafe { launch::<fill>(&stream, LaunchConfig::linear(n, block), (n as u32, 1.0, &mut y))? };
            assert_eq!(y.to_vec(&stream)?.iter().sum::<f32>(), n as f32, "n {n}, block {block}");
        }
    }
    Ok(())
}

#[test]
fn shared_memory_beyond_what_is_given_without_asking() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let most = device.properties().shared_per_block_optin;
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 1)?;
    for bytes in [4, 1024, 48 * 1024, 48 * 1024 + 4, 96 * 1024, most, 4] {
        let config = LaunchConfig::new([1, 1, 1], [32, 1, 1]).with_shared(bytes);
        out.fill_zero(&stream)?;
        // SAFETY: the launch gives as many bytes as the argument says.
        unsafe { launch::<last_of_dynamic_shared>(&stream, config, (bytes, &mut out))? };
        assert_eq!(out.to_vec(&stream)?, [7], "{bytes} bytes");
    }
    Ok(())
}

/// Two users of a kernel must not lower each other's limit: the driver keeps one number for each kernel.
#[test]
fn shared_memory_of_two_handles_to_a_kernel() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let module = load_kernels(&device)?;
    let most = device.properties().shared_per_block_optin;
    let (large, small) =
        (module.function("last_of_dynamic_shared")?, module.function("last_of_dynamic_shared")?);
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 1)?;
    for (function, bytes) in [(&large, most), (&small, 64 * 1024), (&large, most)] {
        let config = LaunchConfig::new([1, 1, 1], [32, 1, 1]).with_shared(bytes);
        out.fill_zero(&stream)?;
        // SAFETY: the launch gives as many bytes as the argument says, and the types are those of the
        // parameters.
        unsafe { function.launch::<(Value<u32>, PtrMut<u32>)>(&stream, config, (bytes, &mut out))? };
        assert_eq!(out.to_vec(&stream)?, [7], "{bytes} bytes");
    }
    Ok(())
}

#[test]
fn cooperative_grids() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let kernel = device.kernel::<bounded>()?;
    let one_block = LaunchConfig::new([1, 1, 1], [64, 1, 1]);
    let blocks = kernel.function().max_resident_blocks(&one_block)?;
    assert!(blocks >= u64::from(device.properties().sm_count));
    let config = LaunchConfig { grid: [blocks.min(8) as u32, 1, 1], ..one_block }.cooperative();
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, config.blocks() as usize * 64)?;
    // SAFETY: one thread for each element.
    unsafe { kernel.launch(&stream, config, (&mut out,))? };
    assert!(out.to_vec(&stream)?.iter().all(|&v| v == 1));
    Ok(())
}

#[test]
fn clusters_and_overlapping_launches() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let kernel = device.kernel::<bounded>()?;
    let (blocks, most) = (32, if device.properties().clusters { 16 } else { 1 });
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, blocks as usize * 64)?;
    let mut launches = 0;
    for cluster in [1, 2, 8, 16].into_iter().filter(|&size| size <= most) {
        let config = LaunchConfig::new([blocks, 1, 1], [64, 1, 1]).cluster([cluster, 1, 1]);
        for config in [config, config.cooperative(), config.overlapping_previous()] {
            // SAFETY: one thread for each element. No block starts before the last block of the launch ahead
            // has ended: no block allows it.
            unsafe { kernel.launch(&stream, config, (&mut out,))? };
            stream.synchronize()?;
            launches += 1;
        }
    }
    assert!(out.to_vec(&stream)?.iter().all(|&v| v == launches));
    Ok(())
}

#[test]
fn a_handle_launches_many_times() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let kernel = device.kernel::<bounded>()?;
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 100)?;
    for _ in 0..50 {
        // SAFETY: one thread for each element.
        unsafe { kernel.launch(&stream, LaunchConfig::linear(100, 64), (&mut out,))? };
    }
    assert!(out.to_vec(&stream)?.iter().all(|&v| v == 50));
    Ok(())
}

#[test]
fn a_prepared_launch_takes_other_arguments_each_time() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let x: Vec<f32> = (0..100).map(|i| i as f32).collect();
    let x = DeviceBuffer::from_slice(&stream, &x)?;
    let (mut y, mut z) =
        (DeviceBuffer::<f32>::zeroed(&stream, 100)?, DeviceBuffer::<f32>::zeroed(&stream, 100)?);
    let config = LaunchConfig::linear(100, 64);
    let mut prepared = device.kernel::<scale>()?.prepare(&stream, config)?;
    // Each launch reads the output of the one before, prepared or not.
    for factor in 1..=50 {
        let factor = factor as f32;
        // SAFETY: all have 100 elements.
        unsafe {
            prepared.launch((factor, &x, &mut y))?;
            prepared.launch((2.0, &y, &mut z))?;
            launch::<scale>(&stream, config, (0.5, &z, &mut y))?;
        }
    }
    assert!(y.to_vec(&stream)?.iter().enumerate().all(|(i, &v)| v == 50.0 * i as f32));
    assert!(z.to_vec(&stream)?.iter().enumerate().all(|(i, &v)| v == 100.0 * i as f32));
    // Dropped with launches under way, and prepared again; a second one is used at the same time on another
    // stream.
    let other = device.stream()?;
    for round in 1..=20 {
        let factor = round as f32;
        let mut here = device.kernel::<scale>()?.prepare(&stream, config)?;
        let mut there = device.kernel::<scale>()?.prepare(&other, config)?;
        // SAFETY: all have 100 elements.
        unsafe {
            here.launch((factor, &x, &mut y))?;
            there.launch((factor, &y, &mut z))?;
            here.launch((factor + 1.0, &x, &mut y))?;
            there.launch((factor + 1.0, &y, &mut z))?;
        }
        drop((here, there));
        let want = (factor + 1.0) * (factor + 1.0);
        assert!(z.to_vec(&other)?.iter().enumerate().all(|(i, &v)| v == want * i as f32), "round {round}");
    }
    Ok(())
}

#[test]
fn prepared_launches_of_every_configuration() -> Result<()> {
    // A capture forbids other tests to wait for the device or to take memory from it.
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    let kernel = device.kernel::<bounded>()?;
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 128)?;
    let config = LaunchConfig::linear(128, 64);
    let mut configs = vec![config, config.cooperative(), config.with_shared(1 << 10)];
    if device.properties().clusters {
        configs.push(config.cluster([2, 1, 1]));
    }
    for config in &configs {
        let mut prepared = kernel.prepare(&stream, *config)?;
        for _ in 0..3 {
            // SAFETY: one thread for each element.
            unsafe { prepared.launch((&mut out,))? };
        }
    }
    let launched = 3 * configs.len() as u32;
    assert!(out.to_vec(&stream)?.iter().all(|&v| v == launched));
    // An empty launch, and one beyond the limits.
    let nothing = LaunchConfig::linear(0, 64);
    // SAFETY: no thread runs.
    unsafe { kernel.prepare(&stream, nothing)?.launch((&mut out,))? };
    let error = kernel.prepare(&stream, LaunchConfig::linear(128, 65)).expect_err("bounded to 64 threads");
    assert!(error.to_string().contains("65"), "{error}");
    // In a capture the launch becomes part of the graph, and runs when that is replayed.
    let mut graph = Graph::capture(&stream, out, |stream, out| {
        let mut prepared = kernel.prepare(stream, config)?;
        // SAFETY: one thread for each element.
        unsafe { prepared.launch((&mut *out,)) }
    })?;
    for _ in 0..2 {
        graph.replay(&stream)?;
    }
    assert!(graph.inputs().to_vec(&stream)?.iter().all(|&v| v == launched + 2));
    Ok(())
}

#[test]
fn the_drivers_view_of_a_kernel() -> Result<()> {
    let Bench { device, .. } = Bench::open()?;
    let attributes = device.kernel::<bounded>()?.attributes();
    assert_eq!(attributes.max_threads_per_block, 64);
    assert_eq!(attributes.local_bytes, 0);
    // Without it no launch overlaps the one before. The text of these kernels is for sm_80.
    let arch = device.arch();
    let of_device = 10 * arch.major + arch.minor;
    assert_eq!(attributes.ptx_version, if device.is_software() { of_device } else { 80 });
    assert!(device.kernel::<fill>()?.attributes().max_threads_per_block >= 256);
    Ok(())
}

#[test]
fn kernels_by_name() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let module = load_kernels(&device)?;
    let function = module.function("scale")?;
    assert_eq!(function.name(), "scale");
    let x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0])?;
    let mut y = DeviceBuffer::<f32>::zeroed(&stream, 2)?;
    type Parameters = (Value<f32>, Slice<f32>, PtrMut<f32>);
    // SAFETY: these are the kernel's parameters, and `y` is as long as `x`.
    unsafe { function.launch::<Parameters>(&stream, LaunchConfig::linear(2, 32), (4.0, &x, &mut y))? };
    assert_eq!(y.to_vec(&stream)?, [4.0, 8.0]);
    Ok(())
}

#[test]
fn a_module_of_ones_own_from_a_file() -> Result<()> {
    use cuda_std::kernel::Kernel;
    let Bench { device, stream } = Bench::open()?;
    let folder = std::env::temp_dir().join(format!("ironwarp-launches-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
    let path = folder.join("own.ptx");
    // The software driver must look in the family of this program, whatever the name in the hand-written
    // text.
    let text = kernels::PTX.replace("runtime_tests", fill::FAMILY);
    std::fs::write(&path, text).expect("the temporary folder is writable");
    let module = Module::from_file(&device, &path)?;
    assert_eq!(module.label(), path.display().to_string());
    let mut y = DeviceBuffer::<f32>::zeroed(&stream, 3)?;
    let function = module.function("fill")?;
    // SAFETY: these are the kernel's parameters; 3 elements.
    unsafe {
        function.launch::<(Value<u32>, Value<f32>, PtrMut<f32>)>(
            &stream,
            LaunchConfig::linear(3, 32),
            (3, 9.0, &mut y),
        )?
    };
    assert_eq!(y.to_vec(&stream)?, [9.0; 3]);
    std::fs::remove_dir_all(&folder).expect("made above");
    Ok(())
}

#[test]
fn a_kernel_outlives_its_module_handle() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let function = load_kernels(&device)?.function("fill")?;
    let mut y = DeviceBuffer::<f32>::zeroed(&stream, 3)?;
    drop(device);
    // SAFETY: these are the kernel's parameters; 3 elements.
    unsafe {
        function.launch::<(Value<u32>, Value<f32>, PtrMut<f32>)>(
            &stream,
            LaunchConfig::linear(3, 32),
            (3, 9.0, &mut y),
        )?
    };
    assert_eq!(y.to_vec(&stream)?, [9.0; 3]);
    Ok(())
}

#[test]
fn many_threads_launch() -> Result<()> {
    let Bench { device, .. } = Bench::open()?;
    std::thread::scope(|scope| {
        let users: Vec<_> = (0..8u32)
            .map(|i| {
                let device = &device;
                scope.spawn(move || -> Result<Vec<f32>> {
                    let stream = device.stream()?;
                    let mut y = DeviceBuffer::<f32>::zeroed(&stream, 500)?;
                    for step in 0..20 {
                        let value = (i * 100 + step) as f32;
                        // SAFETY: 500 elements.
                        unsafe {
                            launch::<fill>(&stream, LaunchConfig::linear(500, 64), (500u32, value, &mut y))?
                        };
                    }
                    y.to_vec(&stream)
                })
            })
            .collect();
        for (i, user) in users.into_iter().enumerate() {
            assert_eq!(user.join().expect("no panic")?, [(i * 100 + 19) as f32; 500]);
        }
        Ok(())
    })
}

#[test]
fn configurations_count() {
    let config = LaunchConfig::linear(1000, 256);
    assert_eq!((config.grid, config.block), ([4, 1, 1], [256, 1, 1]));
    assert_eq!((config.blocks(), config.threads_per_block()), (4, 256));
    assert_eq!(LaunchConfig::linear(usize::MAX, 1).grid[0], u32::MAX);
    assert_eq!(LaunchConfig::linear(5, 0).block[0], 0);
    let config = config.with_shared(100).cooperative();
    assert!(config.cooperative && config.shared_bytes == 100);
    assert_eq!(
        config.to_string(),
        "grid [4, 1, 1], block [256, 1, 1], 100 bytes of dynamic shared memory, cooperative"
    );
}
