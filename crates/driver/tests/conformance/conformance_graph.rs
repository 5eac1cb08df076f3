//! Graphs: capture, building by hand, instantiation, update.

use crate::common::*;
use cust_raw::*;
use std::{
    ffi::c_void,
    ptr::{null, null_mut},
    sync::atomic::{AtomicU32, Ordering},
};

const RELAXED: CUstreamCaptureMode_enum = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
const GLOBAL: CUstreamCaptureMode_enum = CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL;

struct Graph(CUgraph);

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by the test, and destroyed once.
        unsafe { cuGraphDestroy(self.0) };
    }
}

impl Graph {
    fn new() -> Result<Graph, Failure> {
        let mut graph = null_mut();
        ok!(cuGraphCreate(&mut graph, 0));
        Ok(Graph(graph))
    }

    fn instantiate(&self) -> Result<Exec, Failure> {
        let mut exec = null_mut();
        ok!(cuGraphInstantiateWithFlags(&mut exec, self.0, 0));
        Ok(Exec(exec))
    }

    fn count(&self) -> Result<usize, Failure> {
        let mut count = 0;
        ok!(cuGraphGetNodes(self.0, null_mut(), &mut count));
        Ok(count)
    }

    fn nodes(&self) -> Result<Vec<CUgraphNode>, Failure> {
        let mut count = self.count()?;
        let mut nodes = vec![null_mut(); count];
        ok!(cuGraphGetNodes(self.0, nodes.as_mut_ptr(), &mut count));
        Ok(nodes)
    }
}

struct Exec(CUgraphExec);

impl Drop for Exec {
    fn drop(&mut self) {
        // SAFETY: made by `Graph::instantiate`, and destroyed once.
        unsafe { cuGraphExecDestroy(self.0) };
    }
}

fn capture(stream: &Stream, work: impl FnOnce() -> Check) -> Result<Graph, Failure> {
    let mut graph = null_mut();
    ok!(cuStreamBeginCapture_v2(stream.0, GLOBAL));
    work()?;
    ok!(cuStreamEndCapture(stream.0, &mut graph));
    Ok(Graph(graph))
}

fn status(stream: &Stream) -> Result<CUstreamCaptureStatus_enum, Failure> {
    let mut status = CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE;
    ok!(cuStreamIsCapturing(stream.0, &mut status));
    Ok(status)
}

#[test]
fn captured_work_does_not_run_until_the_graph_is_launched() -> Check {
    let gpu = Gpu::new()?;
    let (stream, buffer) = (gpu.stream()?, gpu.buffer(64)?);
    buffer.write(&[0; 64])?;
    let graph = capture(&stream, || {
        ok!(cuMemsetD32Async(buffer.address, 5, 64, stream.0));
        Ok(())
    })?;
    equal("before", buffer.read()?, vec![0; 64])?;
    let exec = graph.instantiate()?;
    equal("after instantiation", buffer.read()?, vec![0; 64])?;
    ok!(cuGraphLaunch(exec.0, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("after the launch", buffer.read()?, vec![5; 64])
}

#[test]
fn a_graph_can_be_launched_many_times() -> Check {
    let gpu = Gpu::new()?;
    let (module, stream, buffer) = (gpu.module()?, gpu.stream()?, gpu.buffer(128)?);
    let double = module.function(c"double_and_add")?;
    buffer.write(&[1; 128])?;
    let graph = capture(&stream, || {
        launch(double, stream.0, &buffer, 1)?;
        launch(double, stream.0, &buffer, 2)
    })?;
    equal("nodes", graph.count()?, 2)?;
    let exec = graph.instantiate()?;
    drop(graph); // the executable does not need it
    for _ in 0..3 {
        ok!(cuGraphLaunch(exec.0, stream.0));
    }
    ok!(cuStreamSynchronize(stream.0));
    let wanted = (0..3).fold(1, |x, _| 2 * (2 * x + 1) + 2);
    equal("three times", buffer.read()?, vec![wanted; 128])
}

#[test]
fn a_capture_tells_its_status() -> Check {
    use CUstreamCaptureStatus_enum::*;
    let gpu = Gpu::new()?;
    let (stream, mut graph) = (gpu.stream()?, null_mut());
    equal("before", status(&stream)?, CU_STREAM_CAPTURE_STATUS_NONE)?;
    ok!(cuStreamBeginCapture_v2(stream.0, RELAXED));
    equal("during", status(&stream)?, CU_STREAM_CAPTURE_STATUS_ACTIVE)?;
    ok!(cuStreamEndCapture(stream.0, &mut graph));
    let graph = Graph(graph);
    equal("after", status(&stream)?, CU_STREAM_CAPTURE_STATUS_NONE)?;
    equal("an empty capture has no nodes", graph.count()?, 0)
}

#[test]
fn a_forked_and_joined_stream_is_captured_too() -> Check {
    let gpu = Gpu::new()?;
    let (main, side, fork, join) = (gpu.stream()?, gpu.stream()?, gpu.event()?, gpu.event()?);
    let (a, b, c) = (gpu.buffer(64)?, gpu.buffer(64)?, gpu.buffer(64)?);
    let graph = capture(&main, || {
        ok!(cuMemsetD32Async(a.address, 1, 64, main.0));
        ok!(cuEventRecord(fork.0, main.0));
        ok!(cuStreamWaitEvent(side.0, fork.0, 0));
        ok!(cuMemcpyDtoDAsync_v2(b.address, a.address, 256, side.0));
        ok!(cuEventRecord(join.0, side.0));
        ok!(cuStreamWaitEvent(main.0, join.0, 0));
        ok!(cuMemcpyDtoDAsync_v2(c.address, b.address, 256, main.0));
        Ok(())
    })?;
    equal(
        "the side stream is free again",
        status(&side)?,
        CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE,
    )?;
    equal("nodes", graph.count()?, 3)?;
    let exec = graph.instantiate()?;
    ok!(cuGraphLaunch(exec.0, main.0));
    ok!(cuStreamSynchronize(main.0));
    equal("the end of the chain", c.read()?, vec![1; 64])
}

#[test]
fn a_forked_stream_that_is_not_joined_spoils_the_capture() -> Check {
    let gpu = Gpu::new()?;
    let (main, side, fork, buffer) = (gpu.stream()?, gpu.stream()?, gpu.event()?, gpu.buffer(64)?);
    let mut graph = null_mut();
    ok!(cuStreamBeginCapture_v2(main.0, RELAXED));
    ok!(cuMemsetD32Async(buffer.address, 1, 64, main.0));
    ok!(cuEventRecord(fork.0, main.0));
    ok!(cuStreamWaitEvent(side.0, fork.0, 0));
    ok!(cuMemsetD32Async(buffer.address, 2, 64, side.0));
    fails!(cuStreamEndCapture(main.0, &mut graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    ok!(cuStreamSynchronize(main.0));
    Ok(())
}

#[test]
fn synchronising_a_capturing_stream_spoils_the_capture() -> Check {
    let gpu = Gpu::new()?;
    let (stream, mut graph) = (gpu.stream()?, null_mut());
    ok!(cuStreamBeginCapture_v2(stream.0, RELAXED));
    fails!(cuStreamSynchronize(stream.0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    fails!(cuStreamEndCapture(stream.0, &mut graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ok!(cuStreamSynchronize(stream.0));
    Ok(())
}

#[test]
fn the_legacy_stream_cannot_be_captured() -> Check {
    let _gpu = Gpu::new()?;
    fails!(
        cuStreamBeginCapture_v2(NULL_STREAM, RELAXED),
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED | CUDA_ERROR_INVALID_VALUE
    );
    Ok(())
}

#[test]
fn a_capture_cannot_begin_twice_nor_end_without_beginning() -> Check {
    let gpu = Gpu::new()?;
    let (stream, mut graph) = (gpu.stream()?, null_mut());
    fails!(cuStreamEndCapture(stream.0, &mut graph), CUDA_ERROR_ILLEGAL_STATE);
    ok!(cuStreamBeginCapture_v2(stream.0, RELAXED));
    fails!(cuStreamBeginCapture_v2(stream.0, RELAXED), CUDA_ERROR_ILLEGAL_STATE);
    // The second begin may have invalidated the first. Either way the stream must be usable afterwards.
    // SAFETY: the stream captures.
    if unsafe { cuStreamEndCapture(stream.0, &mut graph) } == cudaError_enum::CUDA_SUCCESS {
        drop(Graph(graph));
    }
    ok!(cuStreamSynchronize(stream.0));
    Ok(())
}

#[test]
fn a_captured_event_cannot_be_asked() -> Check {
    let gpu = Gpu::new()?;
    let (stream, event, mut graph) = (gpu.stream()?, gpu.event()?, null_mut());
    ok!(cuStreamBeginCapture_v2(stream.0, RELAXED));
    ok!(cuEventRecord(event.0, stream.0));
    fails!(cuEventQuery(event.0), CUDA_ERROR_CAPTURED_EVENT | CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    // SAFETY: the stream captures.
    if unsafe { cuStreamEndCapture(stream.0, &mut graph) } == cudaError_enum::CUDA_SUCCESS {
        drop(Graph(graph));
    }
    Ok(())
}

#[test]
fn kernel_nodes_built_by_hand_run_in_the_order_of_their_edges() -> Check {
    let gpu = Gpu::new()?;
    let (module, stream, buffer, graph) = (gpu.module()?, gpu.stream()?, gpu.buffer(64)?, Graph::new()?);
    let node = |name, number, after: &[CUgraphNode]| -> Result<CUgraphNode, Failure> {
        let mut params = Params::new(&buffer, number);
        let mut pointers = params.pointers();
        let kernel = kernel_node(module.function(name)?, &mut pointers);
        let mut node = null_mut();
        ok!(cuGraphAddKernelNode(&mut node, graph.0, after.as_ptr(), after.len(), &kernel));
        Ok(node)
    };
    let first = node(c"count_up", 0, &[])?;
    let second = node(c"double_and_add", 1, &[first])?;
    node(c"double_and_add", 5, &[second])?;
    let exec = graph.instantiate()?;
    ok!(cuGraphLaunch(exec.0, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("2 (2 i + 1) + 5", buffer.read()?, (0..64).map(|i| 2 * (2 * i + 1) + 5).collect())
}

fn kernel_node(function: CUfunction, pointers: &mut [*mut c_void; 3]) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 64,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: pointers.as_mut_ptr(),
        extra: null_mut(),
    }
}

#[test]
fn a_graph_lists_its_nodes_roots_and_edges() -> Check {
    let _gpu = Gpu::new()?;
    let graph = Graph::new()?;
    let mut nodes = [null_mut(); 3];
    ok!(cuGraphAddEmptyNode(&mut nodes[0], graph.0, null(), 0));
    ok!(cuGraphAddEmptyNode(&mut nodes[1], graph.0, nodes.as_ptr(), 1));
    ok!(cuGraphAddEmptyNode(&mut nodes[2], graph.0, nodes.as_ptr(), 2));
    equal("nodes", graph.nodes()?.len(), 3)?;
    let (mut roots, mut root) = (1, null_mut());
    ok!(cuGraphGetRootNodes(graph.0, &mut root, &mut roots));
    equal("the root", (roots, root), (1, nodes[0]))?;
    let mut edges = 0;
    ok!(cuGraphGetEdges(graph.0, null_mut(), null_mut(), &mut edges));
    equal("edges", edges, 3)?;
    let (mut from, mut to) = ([null_mut(); 3], [null_mut(); 3]);
    ok!(cuGraphGetEdges(graph.0, from.as_mut_ptr(), to.as_mut_ptr(), &mut edges));
    let edges: Vec<_> = from.into_iter().zip(to).collect();
    for edge in [(nodes[0], nodes[1]), (nodes[0], nodes[2]), (nodes[1], nodes[2])] {
        holds("an edge is listed", edges.contains(&edge))?;
    }
    Ok(())
}

#[test]
fn nodes_tell_their_type() -> Check {
    use CUgraphNodeType_enum::*;
    let gpu = Gpu::new()?;
    let (stream, module, buffer, to) = (gpu.stream()?, gpu.module()?, gpu.buffer(64)?, gpu.pinned(64)?);
    let function = module.function(c"count_up")?;
    let graph = capture(&stream, || {
        launch(function, stream.0, &buffer, 0)?;
        ok!(cuMemsetD32Async(buffer.address, 0, 64, stream.0));
        ok!(cuMemcpyDtoHAsync_v2(to.address.cast(), buffer.address, 256, stream.0));
        ok!(cuLaunchHostFunc(stream.0, Some(count_call), null_mut()));
        Ok(())
    })?;
    let mut types = Vec::new();
    for node in graph.nodes()? {
        let mut kind = CU_GRAPH_NODE_TYPE_EMPTY;
        ok!(cuGraphNodeGetType(node, &mut kind));
        types.push(kind);
    }
    let wanted = [
        CU_GRAPH_NODE_TYPE_KERNEL,
        CU_GRAPH_NODE_TYPE_MEMSET,
        CU_GRAPH_NODE_TYPE_MEMCPY,
        CU_GRAPH_NODE_TYPE_HOST,
    ];
    holds("one of each", types.len() == 4 && wanted.iter().all(|kind| types.contains(kind)))
}

static CALLS: AtomicU32 = AtomicU32::new(0);

/// A host function that counts its calls.
///
/// # Safety
/// None: the pointer is not used.
unsafe extern "C" fn count_call(_data: *mut c_void) {
    CALLS.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn host_nodes_run_at_every_launch() -> Check {
    let gpu = Gpu::new()?;
    let stream = gpu.stream()?;
    let graph = capture(&stream, || {
        ok!(cuLaunchHostFunc(stream.0, Some(count_call), null_mut()));
        Ok(())
    })?;
    let exec = graph.instantiate()?;
    let before = CALLS.load(Ordering::SeqCst);
    for _ in 0..4 {
        ok!(cuGraphLaunch(exec.0, stream.0));
    }
    ok!(cuStreamSynchronize(stream.0));
    equal("calls", CALLS.load(Ordering::SeqCst) - before, 4)
}

#[test]
fn a_kernel_node_gives_its_parameters_back() -> Check {
    let gpu = Gpu::new()?;
    let (stream, module, buffer) = (gpu.stream()?, gpu.module()?, gpu.buffer(64)?);
    let function = module.function(c"count_up")?;
    let graph = capture(&stream, || launch(function, stream.0, &buffer, 33))?;
    let mut kernel = kernel_node(null_mut(), &mut [null_mut(); 3]);
    ok!(cuGraphKernelNodeGetParams(graph.nodes()?[0], &mut kernel));
    equal("block and grid", (kernel.blockDimX, kernel.gridDimX), (64, 1))?;
    // SAFETY: the node's parameters are a pointer and two 32-bit numbers.
    let number = unsafe { (*kernel.kernelParams.add(2)).cast::<u32>().read() };
    equal("the third parameter", number, 33)
}

#[test]
fn parameters_of_an_executable_graph_can_be_changed() -> Check {
    let gpu = Gpu::new()?;
    let (stream, module, buffer) = (gpu.stream()?, gpu.module()?, gpu.buffer(64)?);
    let function = module.function(c"count_up")?;
    let graph = capture(&stream, || launch(function, stream.0, &buffer, 0))?;
    let exec = graph.instantiate()?;
    let mut params = Params::new(&buffer, 70);
    let mut pointers = params.pointers();
    let kernel = kernel_node(function, &mut pointers);
    ok!(cuGraphExecKernelNodeSetParams(exec.0, graph.nodes()?[0], &kernel));
    ok!(cuGraphLaunch(exec.0, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("the new number", buffer.read()?, counting(64, 70))
}

#[test]
fn an_executable_graph_takes_over_a_graph_of_the_same_shape() -> Check {
    let gpu = Gpu::new()?;
    let (stream, module, buffer) = (gpu.stream()?, gpu.module()?, gpu.buffer(64)?);
    let function = module.function(c"count_up")?;
    let exec = capture(&stream, || launch(function, stream.0, &buffer, 1))?.instantiate()?;
    let new = capture(&stream, || launch(function, stream.0, &buffer, 2))?;
    let address =
        ironwarp_driver::proc_address("cuGraphExecUpdate_v2").ok_or("cuGraphExecUpdate_v2 is missing")?;
    // SAFETY: the driver's function of that name has this type; the last argument is a structure of 24 bytes.
    let update: unsafe extern "C" fn(CUgraphExec, CUgraph, *mut [u64; 3]) -> u32 =
        unsafe { std::mem::transmute(address) };
    let mut info = [0; 3];
    // SAFETY: both graphs are alive.
    equal("the update", unsafe { update(exec.0, new.0, &mut info) }, 0)?;
    ok!(cuGraphLaunch(exec.0, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("the new number", buffer.read()?, counting(64, 2))?;
    let other = capture(&stream, || {
        launch(function, stream.0, &buffer, 1)?;
        launch(function, stream.0, &buffer, 1)
    })?;
    // SAFETY: both graphs are alive.
    let code = unsafe { update(exec.0, other.0, &mut info) };
    equal("another shape", code, cudaError_enum::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE as u32)
}

#[test]
fn a_clone_has_nodes_of_its_own() -> Check {
    let _gpu = Gpu::new()?;
    let graph = Graph::new()?;
    let (mut node, mut copy, mut found) = (null_mut(), null_mut(), null_mut());
    ok!(cuGraphAddEmptyNode(&mut node, graph.0, null(), 0));
    ok!(cuGraphClone(&mut copy, graph.0));
    let copy = Graph(copy);
    ok!(cuGraphNodeFindInClone(&mut found, node, copy.0));
    holds("another node", found != node)?;
    ok!(cuGraphDestroyNode(found));
    equal("nodes of both", (graph.count()?, copy.count()?), (1, 0))
}

#[test]
fn child_graphs_run_as_one_node() -> Check {
    let gpu = Gpu::new()?;
    let (stream, a, b) = (gpu.stream()?, gpu.buffer(64)?, gpu.buffer(64)?);
    let child = capture(&stream, || {
        ok!(cuMemsetD32Async(a.address, 3, 64, stream.0));
        ok!(cuMemcpyDtoDAsync_v2(b.address, a.address, 256, stream.0));
        Ok(())
    })?;
    let parent = Graph::new()?;
    let (mut node, mut after) = (null_mut(), null_mut());
    ok!(cuGraphAddChildGraphNode(&mut node, parent.0, null(), 0, child.0));
    ok!(cuGraphAddEmptyNode(&mut after, parent.0, &node, 1));
    drop(child);
    let exec = parent.instantiate()?;
    ok!(cuGraphLaunch(exec.0, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("the end of the child", b.read()?, vec![3; 64])
}

#[test]
fn memory_can_be_allocated_and_freed_within_a_graph() -> Check {
    let gpu = Gpu::new()?;
    let (stream, to) = (gpu.stream()?, gpu.pinned(64)?);
    let graph = capture(&stream, || {
        let mut address = 0;
        ok!(cuMemAllocAsync(&mut address, 256, stream.0));
        ok!(cuMemsetD32Async(address, 44, 64, stream.0));
        ok!(cuMemcpyDtoHAsync_v2(to.address.cast(), address, 256, stream.0));
        ok!(cuMemFreeAsync(address, stream.0));
        Ok(())
    })?;
    let exec = graph.instantiate()?;
    for _ in 0..2 {
        to.set(|_| 0);
        ok!(cuGraphLaunch(exec.0, stream.0));
        ok!(cuStreamSynchronize(stream.0));
        equal("what went through it", to.get(), vec![44; 64])?;
    }
    Ok(())
}

/// A destructor of a user object: it notes that it was called. CUDA calls it on a thread of its own.
///
/// # Safety
/// `flag` is that of a static.
unsafe extern "C" fn note_end(flag: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { &*flag.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn user_objects_live_as_long_as_graphs_and_executables() -> Check {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    let gpu = Gpu::new()?;
    let stream = gpu.stream()?;
    let no_sync = CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
    let moved = CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32;
    let mut object = null_mut();
    let flag = (&raw const ENDED).cast_mut().cast();
    // SAFETY: a place to write to, and a static; CUDA demands the flag.
    let code = unsafe { cuUserObjectCreate(&mut object, flag, Some(note_end), 1, 0) };
    equal("without the flag", code, cudaError_enum::CUDA_ERROR_INVALID_VALUE)?;
    ok!(cuUserObjectCreate(&mut object, flag, Some(note_end), 1, no_sync));
    let graph = Graph::new()?;
    ok!(cuGraphRetainUserObject(graph.0, object, 1, moved));
    let mut copy = null_mut();
    ok!(cuGraphClone(&mut copy, graph.0));
    drop(graph);
    let exec = Graph(copy).instantiate()?;
    ok!(cuGraphLaunch(exec.0, stream.0));
    ok!(cuStreamSynchronize(stream.0));
    equal("while the executable lives", ENDED.load(Ordering::SeqCst), 0)?;
    drop(exec);
    let begun = std::time::Instant::now();
    while ENDED.load(Ordering::SeqCst) == 0 && begun.elapsed().as_secs() < 5 {
        std::thread::yield_now();
    }
    equal("after it", ENDED.load(Ordering::SeqCst), 1)
}
