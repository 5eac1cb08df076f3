//! Executable graphs: the commands of a graph in an order that its edges allow.
//!
//! If edges leave a choice, the newest node runs first. So a graph that lacks an edge goes wrong in every
//! run.

use super::{
    abi::{HostNode, InstantiateParams, KernelNode, KernelNodeV2, MemsetNode, UpdateInfo},
    api,
    handle::Handle,
    put, put_some,
    queue::{Command, Work},
    state::{Driver, Outcome},
    take,
    user_object::References,
};
use crate::code;
use core::ffi::c_char;
use std::{collections::BTreeMap, sync::Arc};

/// `CUgraphExecUpdateResult`.
mod update {
    pub(crate) const SUCCESS: u32 = 0;
    pub(crate) const TOPOLOGY_CHANGED: u32 = 2;
    pub(crate) const NODE_TYPE_CHANGED: u32 = 3;
}

struct Item {
    /// The node of the source graph.
    node: Handle,
    command: Command,
    /// Positions of the items that this one depends on.
    after: Vec<usize>,
}

pub(super) struct Exec {
    items: Vec<Item>,
    /// Positions in execution order.
    order: Vec<usize>,
    /// Pooled memory of the graph. It is freed with the graph or its last executable.
    pub memory: Vec<usize>,
    objects: References,
}

impl Exec {
    fn commands(&self) -> Arc<[Command]> {
        self.order.iter().map(|&i| self.items[i].command.clone()).collect()
    }
}

/// A topological order of the items. The last item runs first if there is a choice.
fn order_of(items: &[Item]) -> Outcome<Vec<usize>> {
    let mut done = vec![false; items.len()];
    let mut order = Vec::with_capacity(items.len());
    while order.len() < items.len() {
        let ready = |&i: &usize| !done[i] && items[i].after.iter().all(|&before| done[before]);
        let next = (0..items.len()).rev().find(ready).ok_or(code::INVALID_VALUE)?;
        done[next] = true;
        order.push(next);
    }
    Ok(order)
}

impl Driver {
    /// Appends a graph's commands to `items`, after `before`. Returns the positions that later work has to
    /// wait for.
    fn take_apart(&self, graph: Handle, before: &[usize], items: &mut Vec<Item>) -> Outcome<Vec<usize>> {
        let graph = self.graphs.get(graph).map_err(|_| code::INVALID_VALUE)?;
        let mut ends: BTreeMap<Handle, Vec<usize>> = BTreeMap::new();
        let mut open: Vec<Handle> = graph.nodes.keys().copied().collect();
        while !open.is_empty() {
            let ready = |node: &Handle| graph.nodes[node].after.iter().all(|n| ends.contains_key(n));
            let at = open.iter().position(ready).ok_or(code::INVALID_VALUE)?;
            let handle = open.remove(at);
            let node = &graph.nodes[&handle];
            let mut after: Vec<usize> = node.after.iter().flat_map(|n| ends[n].iter().copied()).collect();
            after.extend(node.after.is_empty().then_some(before).into_iter().flatten());
            let end = match node.command {
                Command::Child(child) => self.take_apart(child, &after, items)?,
                ref command => {
                    items.push(Item { node: handle, command: command.clone(), after });
                    vec![items.len() - 1]
                }
            };
            ends.insert(handle, end);
        }
        let all: Vec<usize> = ends.into_values().flatten().collect();
        Ok(if all.is_empty() { before.to_vec() } else { all })
    }

    fn instantiate(&mut self, graph: Handle) -> Outcome<Handle> {
        self.enter()?;
        let mut items = Vec::new();
        self.take_apart(graph, &[], &mut items)?;
        let order = order_of(&items)?;
        let memory = self.graphs.get(graph)?.memory.clone();
        let objects = self.objects_of(graph)?;
        self.retain_objects(&objects)?;
        Ok(self.execs.insert(Exec { items, order, memory, objects }))
    }

    /// The user objects of a graph and the graphs in it.
    fn objects_of(&self, graph: Handle) -> Outcome<References> {
        let graph = self.graphs.get(graph)?;
        let mut objects = graph.objects.clone();
        for node in graph.nodes.values() {
            if let Command::Child(child) = node.command {
                for (object, count) in self.objects_of(child)? {
                    *objects.entry(object).or_default() += count;
                }
            }
        }
        Ok(objects)
    }

    /// Frees those addresses that no graph and no executable refers to.
    pub(super) fn release_graph_memory(&mut self, addresses: &[usize]) {
        for address in addresses {
            let by_graph = self.graphs.iter().any(|(_, g)| g.memory.contains(address));
            let by_exec = self.execs.iter().any(|(_, e)| e.memory.contains(address));
            let Some(allocation) = self.memory.starting_at(*address).filter(|_| !by_graph && !by_exec) else {
                continue;
            };
            let context = allocation.context;
            // The context keeps a fault of the earlier work, or of the red zones.
            let _ = self.drain_context(context);
            let _ = self.release(*address);
        }
    }

    fn replace_in_exec(&mut self, exec: Handle, node: Handle, command: Command) -> Outcome {
        let exec = self.execs.get_mut(exec).map_err(|_| code::INVALID_VALUE)?;
        let item = exec.items.iter_mut().find(|item| item.node == node).ok_or(code::INVALID_VALUE)?;
        if item.command.node_type() != command.node_type() {
            return Err(code::INVALID_VALUE);
        }
        item.command = command;
        Ok(())
    }

    /// Updates an executable with the parameters of a graph of the same shape. Returns
    /// `CUgraphExecUpdateResult`.
    fn update(&mut self, exec: Handle, graph: Handle) -> Outcome<u32> {
        self.enter()?;
        let mut new = Vec::new();
        self.take_apart(graph, &[], &mut new)?;
        let objects = self.objects_of(graph)?;
        let exec = self.execs.get_mut(exec).map_err(|_| code::INVALID_VALUE)?;
        let same_edges = exec.items.iter().zip(&new).all(|(old, new)| old.after == new.after);
        if exec.items.len() != new.len() || !same_edges {
            return Ok(update::TOPOLOGY_CHANGED);
        }
        let kind = |item: &Item| item.command.node_type();
        if exec.items.iter().zip(&new).any(|(old, new)| kind(old) != kind(new)) {
            return Ok(update::NODE_TYPE_CHANGED);
        }
        for (old, new) in exec.items.iter_mut().zip(new) {
            old.command = new.command;
        }
        let before = std::mem::replace(&mut exec.objects, objects.clone());
        self.retain_objects(&objects)?;
        self.release_objects(&before)?;
        Ok(update::SUCCESS)
    }

    fn launch_graph(&mut self, exec: Handle, stream: usize) -> Outcome {
        let context = self.enter()?;
        let stream = self.stream(stream, context)?;
        let exec = self.execs.get(exec).map_err(|_| code::INVALID_VALUE)?;
        let (commands, objects) = (exec.commands(), exec.objects.clone());
        match self.capturing(stream)? {
            Some(capture) => {
                self.keep_in_capture(capture, &objects)?;
                commands.iter().try_for_each(|command| self.capture_command(capture, stream, command.clone()))
            }
            None => self.push(stream, Work::Batch(commands)).map(|_| ()),
        }
    }
}

/// The result code for a `CUgraphExecUpdateResult`.
fn update_code(result: u32) -> Outcome {
    if result == update::SUCCESS { Ok(()) } else { Err(code::GRAPH_EXEC_UPDATE_FAILURE) }
}

api! {
    fn cuGraphInstantiate_v2(driver, out: *mut Handle, graph: Handle, error_node: *mut Handle, log: *mut c_char, room: usize) {
        put_some(error_node, 0);
        if room > 0 {
            put_some(log, 0);
        }
        put(out, 0)?;
        let exec = driver.instantiate(graph)?;
        put(out, exec)
    }

    fn cuGraphInstantiateWithFlags(driver, out: *mut Handle, graph: Handle, _flags: u64) {
        put(out, 0)?;
        let exec = driver.instantiate(graph)?;
        put(out, exec)
    }

    fn cuGraphInstantiateWithParams(driver, out: *mut Handle, graph: Handle, params: *mut InstantiateParams) {
        put(out, 0)?;
        let given = take(params)?;
        let exec = driver.instantiate(graph)?;
        put(params, InstantiateParams { error_node: 0, result: 0, ..given })?;
        put(out, exec)
    }

    fn cuGraphUpload(driver, exec: Handle, stream: usize) {
        let context = driver.enter()?;
        driver.stream(stream, context)?;
        driver.execs.get(exec).map(|_| ()).map_err(|_| code::INVALID_VALUE)
    }

    fn cuGraphLaunch(driver, exec: Handle, stream: usize) { driver.launch_graph(exec, stream) }

    fn cuGraphExecDestroy(driver, exec: Handle) {
        let gone = driver.execs.remove(exec).map_err(|_| code::INVALID_VALUE)?;
        driver.release_graph_memory(&gone.memory);
        driver.release_objects(&gone.objects)
    }

    fn cuGraphExecUpdate(driver, exec: Handle, graph: Handle, error_node: *mut Handle, out: *mut u32) {
        let result = driver.update(exec, graph)?;
        put_some(error_node, 0);
        put_some(out, result);
        update_code(result)
    }

    fn cuGraphExecUpdate_v2(driver, exec: Handle, graph: Handle, out: *mut UpdateInfo) {
        let result = driver.update(exec, graph)?;
        put(out, UpdateInfo { result, error_node: 0, error_from_node: 0 })?;
        update_code(result)
    }

    fn cuGraphExecKernelNodeSetParams(driver, exec: Handle, node: Handle, params: *const KernelNode) {
        let command = driver.kernel_command(params)?;
        driver.replace_in_exec(exec, node, command)
    }

    fn cuGraphExecKernelNodeSetParams_v2(driver, exec: Handle, node: Handle, params: *const KernelNodeV2) {
        let command = driver.kernel_command(params.cast())?;
        driver.replace_in_exec(exec, node, command)
    }

    fn cuGraphExecMemsetNodeSetParams(driver, exec: Handle, node: Handle, params: *const MemsetNode, _context: Handle) {
        let command = driver.memset_command(params)?;
        driver.replace_in_exec(exec, node, command)
    }

    fn cuGraphExecHostNodeSetParams(driver, exec: Handle, node: Handle, params: *const HostNode) {
        driver.replace_in_exec(exec, node, Driver::host_command(params)?)
    }
}
