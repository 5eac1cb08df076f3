//! Device memory of another process: this program starts itself again, and the new process opens it.

use crate::common::*;
use cust_raw::*;
use std::{
    ffi::c_char,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    ptr::null_mut,
};

/// Set in the process that opens the memory: the handle, in hexadecimal.
const HANDLE: &str = "IPC_HANDLE";
const TEST: &str = "conformance_ipc::another_process_opens_the_memory";
const LAZY: u32 = CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;

fn text_of(error: impl std::fmt::Display) -> Failure {
    Failure::from(&*error.to_string())
}

fn opened(handle: CUipcMemHandle, words: usize) -> Result<Buffer, Failure> {
    let mut address = 0;
    ok!(cuIpcOpenMemHandle_v2(&mut address, handle, LAZY));
    Ok(Buffer { address, words })
}

#[test]
fn another_process_opens_the_memory() -> Check {
    if let Ok(text) = std::env::var(HANDLE) {
        return in_the_other_process(&text);
    }
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(100)?;
    buffer.write(&[5; 100])?;
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    ok!(cuIpcGetMemHandle(&mut handle, buffer.address));
    equal("what was written before the handle was made", buffer.read()?, vec![5; 100])?;
    let text: String = handle.reserved.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
    let program = std::env::current_exe().map_err(text_of)?;
    let arguments = [TEST, "--exact", "--nocapture", "--test-threads=1"];
    let child = Command::new(program).args(arguments).env(HANDLE, text).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(text_of)?;
    let lines = BufReader::new(child.stdout.take().ok_or("a pipe")?).lines();
    let said: Vec<String> = lines.map_while(Result::ok).collect();
    holds(&format!("{said:?}"), child.wait().is_ok_and(|status| status.success()))?;
    equal("what the other process wrote", buffer.read()?, [vec![6; 50], vec![5; 50]].concat())
}

fn in_the_other_process(text: &str) -> Check {
    let _gpu = Gpu::new()?;
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    for (place, at) in handle.reserved.iter_mut().zip((0..text.len()).step_by(2)) {
        *place = u8::from_str_radix(&text[at..at + 2], 16).map_err(text_of)? as c_char;
    }
    let buffer = std::mem::ManuallyDrop::new(opened(handle, 100)?);
    equal("the other process's words", buffer.read()?, vec![5; 100])?;
    buffer.write(&[6; 50])?;
    fails!(cuMemFree_v2(buffer.address), CUDA_ERROR_INVALID_VALUE);
    ok!(cuIpcCloseMemHandle(buffer.address));
    fails!(cuIpcCloseMemHandle(buffer.address), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn wrong_handles_and_flags_are_refused() -> Check {
    let gpu = Gpu::new()?;
    let buffer = gpu.buffer(8)?;
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    ok!(cuIpcGetMemHandle(&mut handle, buffer.address));
    let mut address = 0;
    fails!(cuIpcOpenMemHandle_v2(&mut address, handle, 0), CUDA_ERROR_INVALID_VALUE);
    // The process that has the memory has its address already.
    fails!(cuIpcOpenMemHandle_v2(&mut address, handle, LAZY), CUDA_ERROR_INVALID_CONTEXT);
    let nothing = CUipcMemHandle { reserved: [0; 64] };
    fails!(
        cuIpcOpenMemHandle_v2(&mut address, nothing, LAZY),
        CUDA_ERROR_INVALID_HANDLE | CUDA_ERROR_INVALID_VALUE
    );
    fails!(cuIpcGetMemHandle(null_mut(), buffer.address), CUDA_ERROR_INVALID_VALUE);
    fails!(cuIpcCloseMemHandle(buffer.address), CUDA_ERROR_INVALID_VALUE);
    buffer.write(&[7; 8])?;
    equal("the memory, after all that", buffer.read()?, vec![7; 8])
}
