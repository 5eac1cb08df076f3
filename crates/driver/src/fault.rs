//! Fault injection: makes the Nth call of a driver function return a chosen code.
//!
//! Rules act at the table (see `table.rs`), so they work for both drivers and for every function. The driver
//! never sees a failed call. Rules are global to the process. Tests use [`scoped`], which holds a lock, so
//! that two tests of one program do not disturb each other.

use crate::{
    code,
    load::{Backend, InitError},
    table::{self, COUNT, Function, Verdict},
};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The variable with rules for a whole program: `FUNCTION:NTH:CODE[:always]`, separated by commas.
pub const VARIABLE: &str = "IRONWARP_FAULT";

/// How often a rule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// The `nth` call only.
    Once,
    /// The `nth` call and every later one.
    Always,
}

/// Makes call number `nth` of `function` return `code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// The function's name in CUDA's API, version suffix included: `cuMemAlloc_v2`.
    pub function: &'a str,
    /// The call that fails. Calls are counted from 1, from the moment when the rule is set.
    pub nth: u64,
    /// The result code that the call returns. It must not be `SUCCESS`.
    pub code: u32,
    /// Whether only this call fails, or later calls too.
    pub times: Times,
}

/// The reason why a rule was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// No function of this name has a slot.
    #[error(
        "no driver function is called {name:?}: use a name of CUDA's API with its version suffix, as in cuMemAlloc_v2"
    )]
    UnknownFunction {
        /// The requested name.
        name: String,
    },
    /// Calls are counted from 1.
    #[error("the call to fail in {function} is number 0: calls are counted from 1")]
    ZerothCall {
        /// The rule's function.
        function: &'static str,
    },
    /// The code is `SUCCESS`, unknown, or too new for cust to read.
    #[error(
        "{function} cannot be made to fail with code {code}: use an error code of CUDA 11.4 as in driver::code"
    )]
    BadCode {
        /// The rule's function.
        function: &'static str,
        /// The rule's code.
        code: u32,
    },
}

struct Active {
    function: Function,
    left: u64, // calls before it fires
    code: u32,
    times: Times,
}

static RULES: Mutex<Vec<Active>> = Mutex::new(Vec::new());
/// The length of `RULES`. Calls take no lock while it is 0.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
/// Calls of each function since the table was filled. With NVIDIA's driver: since counting began.
static COUNTS: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
/// Whether calls go through the gates even without rules. True for the software driver.
static ALWAYS_COUNTED: AtomicBool = AtomicBool::new(false);
static ONE_TEST_AT_A_TIME: Mutex<()> = Mutex::new(());

fn rules() -> MutexGuard<'static, Vec<Active>> {
    RULES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(rule: &Rule) -> Result<Active, RuleError> {
    let function = Function::from_name(rule.function)
        .ok_or_else(|| RuleError::UnknownFunction { name: rule.function.to_owned() })?;
    let name = function.name();
    let left = rule.nth.checked_sub(1).ok_or(RuleError::ZerothCall { function: name })?;
    let readable = code::name(rule.code).is_some() && !code::NEWER_THAN_CUST.contains(&rule.code);
    if rule.code == code::SUCCESS || !readable {
        return Err(RuleError::BadCode { function: name, code: rule.code });
    }
    Ok(Active { function, left, code: rule.code, times: rule.times })
}

fn add(active: Active) {
    let mut rules = rules();
    rules.push(active);
    ACTIVE.store(rules.len(), Ordering::Release);
}

/// Adds a rule to those already set.
///
/// # Errors
/// [`RuleError`] if the rule names an unknown function, call 0 or a code that cannot be returned.
pub fn inject(rule: Rule) -> Result<(), RuleError> {
    let active = check(&rule)?;
    // Only cuInit loads the driver here, so that a rule can still make cuInit itself fail.
    if active.function != Function::cuInit && crate::load::backend().is_ok() {
        table::set_counted(true);
    }
    add(active);
    Ok(())
}

/// Removes all rules, also those of [`VARIABLE`].
pub fn clear() {
    let mut rules = rules();
    rules.clear();
    ACTIVE.store(0, Ordering::Release);
    if !ALWAYS_COUNTED.load(Ordering::Acquire) && crate::load::loaded().is_some() {
        table::set_counted(false);
    }
}

/// The rules of one test. Dropping it removes all rules.
pub struct Scope {
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        clear();
    }
}

/// Adds the rules in `set` and removes them when the returned value is dropped. Waits while another test of
/// this process has rules.
///
/// # Errors
/// As [`inject`]. No rule is set then.
#[must_use = "the rules are taken away when the scope is dropped"]
pub fn scoped(set: &[Rule]) -> Result<Scope, RuleError> {
    let scope = Scope { _one_at_a_time: ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner) };
    for rule in set {
        inject(*rule)?;
    }
    Ok(scope)
}

/// The number of calls of each function that was called. With NVIDIA's driver, calls are counted only while a
/// rule is set.
pub fn calls() -> Vec<(&'static str, u64)> {
    let count = |f: Function| (f.name(), COUNTS[f as usize].load(Ordering::Relaxed));
    Function::ALL.iter().map(|&f| count(f)).filter(|&(_, calls)| calls > 0).collect()
}

/// The functions of the loaded driver. A test that fails every function in turn iterates over them. Empty if
/// no driver could be loaded.
pub fn functions() -> Vec<&'static str> {
    match crate::load::backend() {
        Ok(_) => Function::ALL.iter().filter(|&&f| table::has(f)).map(|f| f.name()).collect(),
        Err(_) => Vec::new(),
    }
}

/// Counts a call. Returns the code that the call must return, if a rule fires.
pub(crate) fn count(function: Function) -> Option<u32> {
    COUNTS[function as usize].fetch_add(1, Ordering::Relaxed);
    if ACTIVE.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut rules = rules();
    let mut fails_with = None;
    rules.retain_mut(|rule| {
        if rule.function != function {
            return true;
        }
        if rule.left > 0 {
            rule.left -= 1;
            return true;
        }
        fails_with.get_or_insert(rule.code);
        rule.times == Times::Always
    });
    ACTIVE.store(rules.len(), Ordering::Release);
    fails_with
}

/// Called by the gate of slot `index`, after the gate has saved the caller's arguments.
pub(crate) extern "C" fn enter(index: u32) -> Verdict {
    let function = Function::ALL[index as usize];
    match count(function) {
        Some(code) => Verdict { target: core::ptr::null(), code: u64::from(code) },
        None => Verdict { target: function.target(), code: 0 },
    }
}

/// Reads the rules of [`VARIABLE`]. Returns whether calls are counted from the start.
pub(crate) fn arm(backend: &Backend) -> bool {
    let counted = matches!(backend, Backend::Software);
    ALWAYS_COUNTED.store(counted, Ordering::Release);
    counted || ACTIVE.load(Ordering::Acquire) > 0
}

/// Sets the rules of [`VARIABLE`] on the first call. Later calls do nothing.
pub(crate) fn read_variable() -> Result<(), InitError> {
    static READ: OnceLock<Result<(), InitError>> = OnceLock::new();
    READ.get_or_init(set_rules_of_variable).clone()
}

const FORM: &str = "FUNCTION:NTH:CODE or FUNCTION:NTH:CODE:always, as in cuMemAlloc_v2:3:2";

fn set_rules_of_variable() -> Result<(), InitError> {
    let Some(value) = crate::env::text(VARIABLE)? else { return Ok(()) };
    for item in value.split(',') {
        let refused =
            |why: String| InitError::BadVariable { variable: VARIABLE, value: value.clone(), allowed: why };
        let form = || refused(FORM.to_owned());
        let parts: Vec<&str> = item.trim().split(':').collect();
        let (&[function, nth, code], times) = match parts.as_slice() {
            [a, b, c] => (&[*a, *b, *c], Times::Once),
            [a, b, c, "always"] => (&[*a, *b, *c], Times::Always),
            _ => return Err(form()),
        };
        let nth = nth.parse().map_err(|_| form())?;
        let code = code::parse(code).ok_or_else(form)?;
        add(check(&Rule { function, nth, code, times })
            .map_err(|error| refused(format!("{FORM}; but {error}")))?);
    }
    Ok(())
}
