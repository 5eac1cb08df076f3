//! Graphs: commands and their dependencies.

use super::{
    abi::{Copy3d, HostNode, KernelNode, KernelNodeV2, MemsetNode},
    api,
    copy::{Fill, Moment},
    handle::{Handle, fresh},
    launch::Arguments,
    put,
    queue::{Command, UserData},
    state::{Driver, Outcome},
    take,
    user_object::References,
};
use crate::code;
use core::ffi::{c_char, c_uint};
use simt::LaunchConfig;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CStr,
    fmt::Write,
};

#[derive(Clone)]
pub(super) struct Node {
    pub command: Command,
    pub after: BTreeSet<Handle>,
}

/// The nodes, in creation order.
#[derive(Clone)]
pub(super) struct Graph {
    pub nodes: BTreeMap<Handle, Node>,
    /// Pooled memory that was allocated while the graph was captured.
    pub memory: Vec<usize>,
    pub objects: References,
    /// For a clone: maps each of its nodes to the original's node.
    cloned_from: BTreeMap<Handle, Handle>,
}

impl Graph {
    pub(super) fn new() -> Graph {
        Graph {
            nodes: BTreeMap::new(),
            memory: Vec::new(),
            objects: References::new(),
            cloned_from: BTreeMap::new(),
        }
    }

    /// `nodes` and all their transitive dependencies.
    pub(super) fn ancestors(&self, nodes: &[Handle]) -> BTreeSet<Handle> {
        let mut found = BTreeSet::new();
        let mut open = nodes.to_vec();
        while let Some(node) = open.pop() {
            if found.insert(node) {
                open.extend(self.nodes.get(&node).into_iter().flat_map(|n| n.after.iter()));
            }
        }
        found
    }

    fn edges(&self) -> Vec<(Handle, Handle)> {
        self.nodes.iter().flat_map(|(&to, node)| node.after.iter().map(move |&from| (from, to))).collect()
    }

    fn dot(&self) -> String {
        let mut text = "digraph ironwarp {\n".to_owned();
        for (handle, node) in &self.nodes {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  n{handle} [label=\"{}\"];", node.command.label());
        }
        for (from, to) in self.edges() {
            let _ = writeln!(text, "  n{from} -> n{to};");
        }
        text + "}\n"
    }
}

impl Command {
    /// `CU_GRAPH_NODE_TYPE_*`.
    pub(super) fn node_type(&self) -> u32 {
        match self {
            Command::Kernel(_) => 0,
            Command::Copy(_) => 1,
            Command::Fill(_) => 2,
            Command::Host(..) => 3,
            Command::Child(_) => 4,
            Command::Nothing => 5,
            Command::Obtain(_) => 10,
            Command::Relinquish(_) => 11,
        }
    }

    fn label(&self) -> String {
        match self {
            Command::Kernel(launch) => launch.name().to_owned(),
            Command::Copy(copy) => format!("copy {:?}", copy.extent),
            Command::Fill(fill) => format!("fill {} x {}", fill.width * fill.element, fill.height),
            Command::Host(..) => "host function".to_owned(),
            Command::Child(_) => "graph".to_owned(),
            Command::Nothing => "empty".to_owned(),
            Command::Obtain(_) => "allocate".to_owned(),
            Command::Relinquish(_) => "free".to_owned(),
        }
    }
}

impl Driver {
    /// Adds a node that depends on others of the same graph.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the graph, or one of the others in it, does not exist.
    pub(super) fn add_node(
        &mut self,
        graph: Handle,
        command: Command,
        after: Vec<Handle>,
    ) -> Outcome<Handle> {
        if after.iter().any(|node| self.nodes.get(node) != Some(&graph)) {
            return Err(code::INVALID_VALUE);
        }
        let g = self.graphs.get_mut(graph).map_err(|_| code::INVALID_VALUE)?;
        let node = fresh();
        g.nodes.insert(node, Node { command, after: after.into_iter().collect() });
        self.nodes.insert(node, graph);
        Ok(node)
    }

    pub(super) fn node(&self, node: Handle) -> Outcome<&Node> {
        let graph = self.nodes.get(&node).ok_or(code::INVALID_VALUE)?;
        self.graphs.get(*graph)?.nodes.get(&node).ok_or(code::INVALID_VALUE)
    }

    fn node_mut(&mut self, node: Handle) -> Outcome<&mut Node> {
        let graph = *self.nodes.get(&node).ok_or(code::INVALID_VALUE)?;
        self.graphs.get_mut(graph)?.nodes.get_mut(&node).ok_or(code::INVALID_VALUE)
    }

    fn graph(&self, graph: Handle) -> Outcome<&Graph> {
        self.graphs.get(graph).map_err(|_| code::INVALID_VALUE)
    }

    pub(super) fn destroy_graph(&mut self, graph: Handle) -> Outcome {
        let gone = self.graphs.remove(graph).map_err(|_| code::INVALID_VALUE)?;
        for (handle, node) in &gone.nodes {
            self.nodes.remove(handle);
            if let Command::Child(child) = node.command {
                self.destroy_graph(child)?;
            }
        }
        self.release_graph_memory(&gone.memory);
        self.release_objects(&gone.objects)
    }

    /// A copy of a graph with its own nodes. Pooled memory stays with the original.
    fn clone_graph(&mut self, graph: Handle) -> Outcome<Handle> {
        let original = self.graph(graph)?.clone();
        let copy = self.graphs.insert(Graph::new());
        let mut new_of = BTreeMap::new();
        for (&old, node) in &original.nodes {
            let command = match &node.command {
                Command::Child(child) => Command::Child(self.clone_graph(*child)?),
                command => command.clone(),
            };
            new_of.insert(old, self.add_node(copy, command, Vec::new())?);
        }
        // Edges may lead to newer nodes (cuGraphAddDependencies), so all nodes are added first.
        for (old, node) in &original.nodes {
            let after = node.after.iter().map(|old| new_of[old]).collect();
            self.node_mut(new_of[old])?.after = after;
        }
        self.retain_objects(&original.objects)?;
        self.graphs.get_mut(copy)?.objects = original.objects;
        self.graphs.get_mut(copy)?.cloned_from = new_of.into_iter().map(|(old, new)| (new, old)).collect();
        Ok(copy)
    }

    /// # Safety
    /// `params` is null or as CUDA documents it.
    pub(super) unsafe fn kernel_command(&self, params: *const KernelNode) -> Outcome<Command> {
        // SAFETY: this function's contract.
        let p = unsafe { take(params) }?;
        let config = LaunchConfig {
            grid: p.grid,
            block: p.block,
            dynamic_shared: p.shared,
            ..LaunchConfig::default()
        };
        let arguments = Arguments { params: p.params, extra: p.extra };
        // SAFETY: this function's contract covers the kernel's parameters.
        Ok(Command::Kernel(unsafe { self.prepare(p.function, config, arguments) }?))
    }

    /// # Safety
    /// `params` is null or valid for a read.
    pub(super) unsafe fn memset_command(&self, params: *const MemsetNode) -> Outcome<Command> {
        // SAFETY: this function's contract.
        let p = unsafe { take(params) }?;
        if !matches!(p.element_size, 1 | 2 | 4) {
            return Err(code::INVALID_VALUE);
        }
        let (address, element) = (p.dst as usize, p.element_size as usize);
        let fill =
            Fill { address, pitch: p.pitch, value: p.value, element, width: p.width, height: p.height };
        self.check_fill(&fill, Moment::Issue)?;
        Ok(Command::Fill(fill))
    }

    /// # Safety
    /// `params` is null or valid for a read.
    pub(super) unsafe fn host_command(params: *const HostNode) -> Outcome<Command> {
        // SAFETY: this function's contract.
        let p = unsafe { take(params) }?;
        Ok(Command::Host(p.function.ok_or(code::INVALID_VALUE)?, UserData(p.data)))
    }

    fn kernel_params(&self, node: Handle) -> Outcome<KernelNode> {
        let Command::Kernel(launch) = &self.node(node)?.command else { return Err(code::INVALID_VALUE) };
        Ok(KernelNode {
            function: launch.function,
            grid: launch.config.grid,
            block: launch.config.block,
            shared: launch.config.dynamic_shared,
            params: launch.params(),
            extra: core::ptr::null_mut(),
        })
    }

    /// Replaces a node's command by another of the same type.
    fn replace(&mut self, node: Handle, command: Command) -> Outcome {
        let node = self.node_mut(node)?;
        if node.command.node_type() != command.node_type() {
            return Err(code::INVALID_VALUE);
        }
        node.command = command;
        Ok(())
    }
}

/// Reads a list of handles.
///
/// # Safety
/// `list` is valid for reads of `count` handles, or `count` is 0.
unsafe fn read_list(list: *const Handle, count: usize) -> Outcome<Vec<Handle>> {
    // SAFETY: this function's contract.
    (0..count).map(|i| unsafe { take(list.wrapping_add(i)) }).collect()
}

/// Answers like CUDA's listing functions: with a null `out` only the number, else at most `*count` items.
///
/// # Safety
/// `count` is null or valid; `out` is null or has room for `*count` items.
unsafe fn put_list<T: Copy + Default>(items: &[T], out: *mut T, count: *mut usize) -> Outcome {
    // SAFETY: this function's contract.
    unsafe {
        if out.is_null() {
            return put(count, items.len());
        }
        let room = take(count)?;
        for i in 0..room {
            out.add(i).write(items.get(i).copied().unwrap_or_default());
        }
        put(count, items.len().min(room))
    }
}

api! {
    fn cuGraphCreate(driver, out: *mut Handle, flags: c_uint) {
        if flags != 0 || out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let graph = driver.graphs.insert(Graph::new());
        put(out, graph)
    }

    fn cuGraphDestroy(driver, graph: Handle) { driver.destroy_graph(graph) }

    fn cuGraphClone(driver, out: *mut Handle, graph: Handle) {
        put(out, 0)?;
        let copy = driver.clone_graph(graph)?;
        put(out, copy)
    }

    fn cuGraphNodeFindInClone(driver, out: *mut Handle, original: Handle, copy: Handle) {
        let found = driver.graph(copy)?.cloned_from.iter().find(|(_, old)| **old == original).map(|(&new, _)| new);
        put(out, found.ok_or(code::INVALID_VALUE)?)
    }

    fn cuGraphAddKernelNode(driver, out: *mut Handle, graph: Handle, after: *const Handle, count: usize, params: *const KernelNode) {
        driver.enter()?;
        let command = driver.kernel_command(params)?;
        put(out, driver.add_node(graph, command, read_list(after, count)?)?)
    }

    fn cuGraphAddKernelNode_v2(driver, out: *mut Handle, graph: Handle, after: *const Handle, count: usize, params: *const KernelNodeV2) {
        driver.enter()?;
        let command = driver.kernel_command(params.cast())?;
        put(out, driver.add_node(graph, command, read_list(after, count)?)?)
    }

    fn cuGraphAddMemcpyNode(
        driver, out: *mut Handle, graph: Handle, after: *const Handle, count: usize, copy: *const Copy3d, _context: Handle,
    ) {
        driver.enter()?;
        let transfer = driver.plan_3d(&take(copy)?)?;
        driver.check_transfer(&transfer, Moment::Issue)?;
        put(out, driver.add_node(graph, Command::Copy(transfer), read_list(after, count)?)?)
    }

    fn cuGraphAddMemsetNode(
        driver, out: *mut Handle, graph: Handle, after: *const Handle, count: usize, params: *const MemsetNode, _context: Handle,
    ) {
        driver.enter()?;
        let command = driver.memset_command(params)?;
        put(out, driver.add_node(graph, command, read_list(after, count)?)?)
    }

    fn cuGraphAddHostNode(driver, out: *mut Handle, graph: Handle, after: *const Handle, count: usize, params: *const HostNode) {
        put(out, driver.add_node(graph, Driver::host_command(params)?, read_list(after, count)?)?)
    }

    fn cuGraphAddEmptyNode(driver, out: *mut Handle, graph: Handle, after: *const Handle, count: usize) {
        put(out, driver.add_node(graph, Command::Nothing, read_list(after, count)?)?)
    }

    fn cuGraphAddChildGraphNode(driver, out: *mut Handle, graph: Handle, after: *const Handle, count: usize, child: Handle) {
        if graph == child {
            return Err(code::INVALID_VALUE);
        }
        let child = driver.clone_graph(child)?;
        put(out, driver.add_node(graph, Command::Child(child), read_list(after, count)?)?)
    }

    fn cuGraphChildGraphNodeGetGraph(driver, node: Handle, out: *mut Handle) {
        let Command::Child(child) = driver.node(node)?.command else { return Err(code::INVALID_VALUE) };
        put(out, child)
    }

    fn cuGraphKernelNodeGetParams(driver, node: Handle, out: *mut KernelNode) { put(out, driver.kernel_params(node)?) }

    fn cuGraphKernelNodeGetParams_v2(driver, node: Handle, out: *mut KernelNodeV2) {
        put(out, KernelNodeV2 { v1: driver.kernel_params(node)?, kernel: 0, context: 0 })
    }

    fn cuGraphKernelNodeSetParams(driver, node: Handle, params: *const KernelNode) {
        let command = driver.kernel_command(params)?;
        driver.replace(node, command)
    }

    fn cuGraphKernelNodeSetParams_v2(driver, node: Handle, params: *const KernelNodeV2) {
        let command = driver.kernel_command(params.cast())?;
        driver.replace(node, command)
    }

    fn cuGraphMemcpyNodeSetParams(driver, node: Handle, copy: *const Copy3d) {
        let transfer = driver.plan_3d(&take(copy)?)?;
        driver.check_transfer(&transfer, Moment::Issue)?;
        driver.replace(node, Command::Copy(transfer))
    }

    fn cuGraphMemsetNodeSetParams(driver, node: Handle, params: *const MemsetNode) {
        let command = driver.memset_command(params)?;
        driver.replace(node, command)
    }

    fn cuGraphHostNodeSetParams(driver, node: Handle, params: *const HostNode) {
        driver.replace(node, Driver::host_command(params)?)
    }

    fn cuGraphNodeGetType(driver, node: Handle, out: *mut u32) { put(out, driver.node(node)?.command.node_type()) }

    fn cuGraphGetNodes(driver, graph: Handle, out: *mut Handle, count: *mut usize) {
        let nodes: Vec<Handle> = driver.graph(graph)?.nodes.keys().copied().collect();
        put_list(&nodes, out, count)
    }

    fn cuGraphGetRootNodes(driver, graph: Handle, out: *mut Handle, count: *mut usize) {
        let roots = driver.graph(graph)?.nodes.iter().filter(|(_, node)| node.after.is_empty());
        let roots: Vec<Handle> = roots.map(|(&handle, _)| handle).collect();
        put_list(&roots, out, count)
    }

    fn cuGraphGetEdges(driver, graph: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize) {
        let (sources, targets): (Vec<Handle>, Vec<Handle>) = driver.graph(graph)?.edges().into_iter().unzip();
        if from.is_null() != to.is_null() {
            return Err(code::INVALID_VALUE);
        }
        if !from.is_null() {
            let mut room = take(count)?;
            put_list(&sources, from, &mut room)?;
        }
        put_list(&targets, to, count)
    }

    fn cuGraphNodeGetDependencies(driver, node: Handle, out: *mut Handle, count: *mut usize) {
        let nodes: Vec<Handle> = driver.node(node)?.after.iter().copied().collect();
        put_list(&nodes, out, count)
    }

    fn cuGraphNodeGetDependentNodes(driver, node: Handle, out: *mut Handle, count: *mut usize) {
        let graph = *driver.nodes.get(&node).ok_or(code::INVALID_VALUE)?;
        let later = driver.graph(graph)?.edges().into_iter().filter(|(from, _)| *from == node).map(|(_, to)| to);
        put_list(&later.collect::<Vec<Handle>>(), out, count)
    }

    fn cuGraphAddDependencies(driver, graph: Handle, from: *const Handle, to: *const Handle, count: usize) {
        for (from, to) in read_list(from, count)?.into_iter().zip(read_list(to, count)?) {
            let here = |node| driver.nodes.get(node) == Some(&graph);
            if !here(&from) || !here(&to) || driver.graph(graph)?.ancestors(&[from]).contains(&to) {
                return Err(code::INVALID_VALUE); // the last would close a circle
            }
            driver.node_mut(to)?.after.insert(from);
        }
        Ok(())
    }

    fn cuGraphRemoveDependencies(driver, _graph: Handle, from: *const Handle, to: *const Handle, count: usize) {
        for (from, to) in read_list(from, count)?.into_iter().zip(read_list(to, count)?) {
            driver.node_mut(to)?.after.remove(&from);
        }
        Ok(())
    }

    fn cuGraphDestroyNode(driver, node: Handle) {
        let graph = driver.nodes.remove(&node).ok_or(code::INVALID_VALUE)?;
        let g = driver.graphs.get_mut(graph)?;
        let gone = g.nodes.remove(&node);
        for other in g.nodes.values_mut() {
            other.after.remove(&node);
        }
        match gone.map(|node| node.command) {
            Some(Command::Child(child)) => driver.destroy_graph(child),
            _ => Ok(()),
        }
    }

    fn cuGraphDebugDotPrint(driver, graph: Handle, path: *const c_char, _flags: c_uint) {
        if path.is_null() {
            return Err(code::INVALID_VALUE);
        }
        let path = CStr::from_ptr(path).to_str().map_err(|_| code::INVALID_VALUE)?;
        std::fs::write(path, driver.graph(graph)?.dot()).map_err(|_| code::OPERATING_SYSTEM)
    }
}
