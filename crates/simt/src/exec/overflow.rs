//! A simulated thread that overflows its stack runs into the guard page below it. The process cannot go on,
//! but it says which kernel that was.

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
        if let Some(thread) = context::try_current().filter(|thread| is_guard(thread, address)) {
            tell(thread);
            // SAFETY: allowed in a handler.
            unsafe { libc::abort() }
        }
        pass_on(signal, info, machine);
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
