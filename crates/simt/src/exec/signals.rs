//! Signals in simulated threads.
//!
//! - A thread that overflows its stack runs into the guard page below it. The process cannot go on, but it
//!   says which kernel that was.
//! - Another access that the processor refuses, under the checker, becomes a fault of the thread: in code
//!   without callbacks, or by an instruction that wants more alignment than its callback knew of.

#[cfg(unix)]
pub(super) use unix::install;

/// Elsewhere the system's own message has to do.
#[cfg(not(unix))]
pub(super) fn install() {}

#[cfg(unix)]
mod unix {
    use std::ffi::c_void;
    use std::io::Write;
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::OnceLock;

    use crate::exec::context::{self, Thread};

    /// Room for the message, which is written without an allocation: the overflow may have come in one.
    const LONGEST: usize = 1024;

    /// The handler that was there before.
    static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void);

    /// Puts a handler in front of the program's own, once.
    ///
    /// It runs on the alternate stack that Rust gives to every thread that it starts, the main one included.
    /// On other threads an overflow ends the process as before, without a word.
    pub(in crate::exec) fn install() {
        PREVIOUS.get_or_init(|| {
            let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
            let handler: Handler = handle;
            // SAFETY: zeros are a valid `sigaction`.
            let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the handler is a function of the type that SA_SIGINFO asks for, and calls only what a
            // handler may. Where the call fails the old handler stays, and zeros say that there is none.
            unsafe {
                libc::sigaction(libc::SIGSEGV, &raw const action, previous.as_mut_ptr());
                previous.assume_init()
            }
        });
    }

    extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, machine: *mut c_void) {
        // SAFETY: the system hands over a valid `siginfo_t`, with the address for this signal.
        let address = unsafe { (*info).si_addr() } as usize;
        if let Some(thread) = context::try_current() {
            if is_guard(thread, address) {
                tell(thread);
                // SAFETY: allowed in a handler.
                unsafe { libc::abort() }
            }
            // SAFETY: the system hands over the state of the thread that was interrupted.
            if thread.checked() && unsafe { refused::leave(thread, info, machine) } {
                return;
            }
        }
        pass_on(signal, info, machine);
    }

    /// Elsewhere the fault is the program's.
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    mod refused {
        use super::*;

        /// # Safety
        /// None is needed.
        pub unsafe fn leave(_: &Thread, _: *mut libc::siginfo_t, _: *mut c_void) -> bool {
            false
        }
    }

    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    mod refused {
        use super::*;
        use crate::exec::context::current;
        use crate::fault::FaultKind;
        use crate::site::RawSite;

        /// Bytes below the stack pointer that the interrupted function may use.
        const RED_ZONE: usize = 128;

        /// No address.
        const UNNAMED: usize = usize::MAX;

        /// Lets the interrupted simulated thread go on in [`end`] when the handler returns. False if it was
        /// not on its own stack.
        ///
        /// # Safety
        /// `info` and `machine` are the handler's arguments.
        pub unsafe fn leave(thread: &Thread, info: *mut libc::siginfo_t, machine: *mut c_void) -> bool {
            // SAFETY: the caller's promise.
            let (info, machine) = unsafe { (&*info, &mut *machine.cast::<libc::ucontext_t>()) };
            // The processor does not name the address of an access that is no multiple of what it has to be.
            const SI_KERNEL: libc::c_int = 0x80;
            // SAFETY: the signal has an address.
            let named = unsafe { info.si_addr() } as usize;
            let address = if info.si_code == SI_KERNEL { UNNAMED } else { named };
            let (pc, stack) = registers(machine);
            if !thread.is_on_stack(stack) {
                return false;
            }
            continue_at(machine, end, (stack - RED_ZONE) & !15, [pc, address]);
            true
        }

        /// Program counter and stack pointer.
        #[cfg(target_arch = "x86_64")]
        fn registers(machine: &libc::ucontext_t) -> (usize, usize) {
            let registers = &machine.uc_mcontext.gregs;
            (registers[libc::REG_RIP as usize] as usize, registers[libc::REG_RSP as usize] as usize)
        }

        /// Makes the thread go on in `function`, as if it had been called with two arguments.
        #[cfg(target_arch = "x86_64")]
        fn continue_at(
            machine: &mut libc::ucontext_t,
            function: extern "C" fn(usize, usize) -> !,
            stack: usize,
            arguments: [usize; 2],
        ) {
            let registers = &mut machine.uc_mcontext.gregs;
            registers[libc::REG_RIP as usize] = function as usize as i64;
            // A call has pushed its return address below an aligned stack.
            registers[libc::REG_RSP as usize] = (stack - size_of::<usize>()) as i64;
            registers[libc::REG_RDI as usize] = arguments[0] as i64;
            registers[libc::REG_RSI as usize] = arguments[1] as i64;
        }

        /// Program counter and stack pointer.
        #[cfg(target_arch = "aarch64")]
        fn registers(machine: &libc::ucontext_t) -> (usize, usize) {
            (machine.uc_mcontext.pc as usize, machine.uc_mcontext.sp as usize)
        }

        /// Makes the thread go on in `function`, as if it had been called with two arguments.
        #[cfg(target_arch = "aarch64")]
        fn continue_at(
            machine: &mut libc::ucontext_t,
            function: extern "C" fn(usize, usize) -> !,
            stack: usize,
            arguments: [usize; 2],
        ) {
            let state = &mut machine.uc_mcontext;
            (state.pc, state.sp) = (function as usize as u64, stack as u64);
            (state.regs[0], state.regs[1]) = (arguments[0] as u64, arguments[1] as u64);
        }

        /// Ends the simulated thread whose access at `pc` the processor refused.
        extern "C" fn end(pc: usize, address: usize) -> ! {
            let thread = current("an access");
            // The call instruction of a return address lies before it; this is the access itself.
            let site = RawSite::return_address(pc + 2);
            let (kind, message) = match address {
                UNNAMED => (
                    FaultKind::Misaligned,
                    "the processor refused an access, of 16 bytes or more, to an address that is no multiple of \
                     its size"
                        .to_string(),
                ),
                _ => (FaultKind::WildPointer, format!("the processor refused an access to address {address:#x}")),
            };
            thread.fail_access(kind, site, message, None, None)
        }
    }

    fn is_guard(thread: &Thread, address: usize) -> bool {
        // SAFETY: allowed in a handler, and takes a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let (low, _) = thread.stack.get();
        (low..low + usize::try_from(page).unwrap_or(0)).contains(&address)
    }

    fn tell(thread: &Thread) {
        let launch = &thread.group().launch;
        let mut text = [0u8; LONGEST];
        let mut rest = &mut text[..];
        // A message that does not fit is cut.
        let _ = write!(
            rest,
            "\nerror: stack overflow in kernel `{}`, block {:?}, thread {:?}: its local variables and calls take \
             more than {} bytes\nhint: a thread of a GPU has at most 512 KiB for them; put large arrays into \
             shared or device memory, and end recursions\n",
            launch.kernel,
            thread.block().index.get(),
            thread.index,
            launch.options.stack_bytes,
        );
        let written = LONGEST - rest.len();
        // SAFETY: these bytes of the text are initialised, and writing is allowed in a handler.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), written) };
    }

    /// Any other fault is the program's: its own handler gets it, or the system ends the process.
    fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, machine: *mut c_void) {
        let previous = PREVIOUS.get().filter(|previous| {
            let has_information = previous.sa_flags & libc::SA_SIGINFO != 0;
            has_information && ![libc::SIG_DFL, libc::SIG_IGN].contains(&previous.sa_sigaction)
        });
        match previous {
            Some(previous) => {
                // SAFETY: with SA_SIGINFO the address is a function of this type.
                let handler: Handler = unsafe { std::mem::transmute(previous.sa_sigaction) };
                handler(signal, info, machine);
            }
            None => {
                // SAFETY: zeros are a valid `sigaction`, with SIG_DFL in it. The access is repeated when this
                // returns, and then ends the process.
                unsafe {
                    let default: libc::sigaction = MaybeUninit::zeroed().assume_init();
                    libc::sigaction(signal, &raw const default, ptr::null_mut());
                }
            }
        }
    }
}
