//! Fault injection at the table.

use crate::common::*;
use cust_raw::*;
use ironwarp_driver::fault::{self, Rule, RuleError, Times};

const ALLOCATE: &str = "cuMemAlloc_v2";

fn rule(nth: u64, code: u32, times: Times) -> Rule<'static> {
    Rule { function: ALLOCATE, nth, code, times }
}

fn set(rules: &[Rule]) -> Result<fault::Scope, Failure> {
    fault::scoped(rules).map_err(|error| Failure::from(error.to_string().as_str()))
}

/// Tries three allocations.
fn three(gpu: &Gpu) -> [bool; 3] {
    [(); 3].map(|()| gpu.buffer(16).is_ok())
}

#[test]
fn the_chosen_call_fails_and_later_ones_do_not() -> Check {
    let gpu = Gpu::new()?;
    let _scope = set(&[rule(2, ironwarp_driver::code::OUT_OF_MEMORY, Times::Once)])?;
    equal("three allocations", three(&gpu), [true, false, true])
}

#[test]
fn a_rule_can_hold_for_ever() -> Check {
    let gpu = Gpu::new()?;
    let scope = set(&[rule(2, ironwarp_driver::code::OUT_OF_MEMORY, Times::Always)])?;
    equal("three allocations", three(&gpu), [true, false, false])?;
    drop(scope);
    equal("afterwards", three(&gpu), [true; 3])
}

#[test]
fn the_code_is_the_rules() -> Check {
    let _gpu = Gpu::new()?;
    let _scope = set(&[rule(1, ironwarp_driver::code::ECC_UNCORRECTABLE, Times::Once)])?;
    let mut address = 77;
    fails!(cuMemAlloc_v2(&mut address, 64), CUDA_ERROR_ECC_UNCORRECTABLE);
    equal("the driver never saw the call", address, 77)
}

#[test]
fn rules_of_several_functions_do_not_mix() -> Check {
    let gpu = Gpu::new()?;
    let other = Rule { function: "cuMemFree_v2", nth: 1, code: 999, times: Times::Once };
    let _scope = set(&[rule(1, ironwarp_driver::code::OUT_OF_MEMORY, Times::Once), other])?;
    let mut address = 0;
    fails!(cuMemAlloc_v2(&mut address, 64), CUDA_ERROR_OUT_OF_MEMORY);
    let buffer = std::mem::ManuallyDrop::new(gpu.buffer(16)?);
    fails!(cuMemFree_v2(buffer.address), CUDA_ERROR_UNKNOWN);
    ok!(cuMemFree_v2(buffer.address));
    Ok(())
}

#[test]
fn functions_with_many_arguments_pass_through_the_gate_unharmed() -> Check {
    let gpu = Gpu::new()?;
    let far = Rule { function: "cuLaunchKernel", nth: 1000, code: 999, times: Times::Once };
    let _scope = set(&[far])?;
    let (module, buffer) = (gpu.module()?, gpu.buffer(256)?);
    launch(module.function(c"count_up")?, NULL_STREAM, &buffer, 17)?;
    equal("the output", buffer.read()?, counting(256, 17))
}

#[test]
fn calls_are_counted_while_a_rule_is_set() -> Check {
    let gpu = Gpu::new()?;
    let count =
        || fault::calls().into_iter().find(|(name, _)| *name == ALLOCATE).map_or(0, |(_, calls)| calls);
    let _scope = set(&[rule(1000, ironwarp_driver::code::OUT_OF_MEMORY, Times::Once)])?;
    let before = count();
    equal("three allocations", three(&gpu), [true; 3])?;
    equal("calls", count() - before, 3)
}

#[test]
fn functions_found_by_name_can_fail_too() -> Check {
    let _gpu = Gpu::new()?;
    let address =
        ironwarp_driver::proc_address("cuGraphInstantiateWithParams").ok_or("the function is missing")?;
    let _scope =
        set(&[Rule { function: "cuGraphInstantiateWithParams", nth: 1, code: 801, times: Times::Once }])?;
    // SAFETY: the driver's function of that name takes three pointers, and never sees them here.
    let call: unsafe extern "C" fn(usize, usize, usize) -> u32 = unsafe { std::mem::transmute(address) };
    // SAFETY: as above.
    equal("the code", unsafe { call(0, 0, 0) }, 801)
}

#[test]
fn every_function_of_the_driver_can_be_made_to_fail() -> Check {
    let _gpu = Gpu::new()?;
    let functions = fault::functions();
    holds("there are many", functions.len() > 150)?;
    for function in functions {
        let Some(address) = ironwarp_driver::proc_address(function) else {
            return Err(Failure::from(format!("{function} has no address").as_str()));
        };
        let _scope =
            set(&[Rule { function, nth: 1, code: ironwarp_driver::code::UNKNOWN, times: Times::Once }])?;
        // SAFETY: the gate returns without reading the arguments; six words fill the argument registers.
        let call: unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> u32 =
            unsafe { std::mem::transmute(address) };
        // SAFETY: as above.
        equal(function, unsafe { call(0, 0, 0, 0, 0, 0) }, ironwarp_driver::code::UNKNOWN)?;
    }
    Ok(())
}

#[test]
fn bad_rules_are_refused() {
    let refuse = |rule: Rule| fault::inject(rule).expect_err("a bad rule");
    let name = RuleError::UnknownFunction { name: "cuMemAlloc".to_owned() };
    assert_eq!(refuse(Rule { function: "cuMemAlloc", nth: 1, code: 2, times: Times::Once }), name);
    assert_eq!(refuse(rule(0, 2, Times::Once)), RuleError::ZerothCall { function: ALLOCATE });
    for code in [0, 12_345, ironwarp_driver::code::INVALID_CLUSTER_SIZE] {
        assert_eq!(refuse(rule(1, code, Times::Once)), RuleError::BadCode { function: ALLOCATE, code });
    }
}
