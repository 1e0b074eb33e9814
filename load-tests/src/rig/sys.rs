//! What the kernel offers and the standard library does not: readiness, waits of nanoseconds, cores, limits. All unsafe code is here.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Events taken from the kernel in one call.
const EVENTS_MAX: usize = 256;
/// Connections that may wait to be accepted: bursts must meet the gateway's queue and not ours.
const BACKLOG: i32 = 4096;

/// Nanoseconds since this was first called; one clock for load and upstreams.
pub fn now() -> u64 {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    u64::try_from(EPOCH.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What a descriptor is ready for.
#[derive(Clone, Copy)]
pub struct Ready {
    /// The number it was registered with.
    pub token: usize,
    /// There is something to read, or an end.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
}

/// Registered descriptors.
pub struct Poller {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Poller {
    /// A poller of nothing yet.
    pub fn new() -> io::Result<Poller> {
        // SAFETY: the call takes no pointer; the descriptor it returns is owned by nobody else.
        let fd = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Poller {
            fd,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX],
        })
    }

    /// Registers a descriptor for reading.
    pub fn add(&self, source: &impl AsRawFd, token: usize) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, source.as_raw_fd(), token, false)
    }

    /// Asks for room to write as well, or no longer.
    pub fn set_writing(&self, source: &impl AsRawFd, token: usize, on: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, source.as_raw_fd(), token, on)
    }

    fn control(&self, what: i32, fd: RawFd, token: usize, writing: bool) -> io::Result<()> {
        let writing = if writing { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | writing).cast_unsigned(),
            u64: token as u64,
        };
        // SAFETY: both descriptors are open, and the event lives until the call returns.
        match unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), what, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for events until `until` (of [`now`]) and appends them; an interrupted wait gives none.
    pub fn wait(&mut self, until: u64, ready: &mut Vec<Ready>) -> io::Result<()> {
        let left = Duration::from_nanos(until.saturating_sub(now()));
        let timeout = libc::timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        // SAFETY: the buffer holds EVENTS_MAX events and lives, as the time does, until the call returns; no signal mask is given.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS_MAX,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                8_usize,
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(())
            } else {
                Err(error)
            };
        };
        for event in self.events.iter().take(count) {
            let (bits, token) = (event.events.cast_signed(), event.u64);
            ready.push(Ready {
                token: usize::try_from(token).unwrap_or(usize::MAX),
                readable: bits & !libc::EPOLLOUT != 0,
                writable: bits & libc::EPOLLOUT != 0,
            });
        }
        Ok(())
    }
}

/// A listener on a free port of the loopback, with a queue for bursts.
pub fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    // SAFETY: the descriptor is an open, bound socket; listening again only changes the length of its queue.
    match unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) } {
        0 => Ok(listener),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts this thread, and those that it will start, on one core; its short waits get as exact as the kernel can.
pub fn pin(core: usize) -> io::Result<()> {
    pin_here(core)?;
    // SAFETY: the call takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize, 0, 0, 0) };
    Ok(())
}

fn pin_here(core: usize) -> io::Result<()> {
    // SAFETY: an all-zero set is a valid empty one; the calls only read or write it while it lives.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Raises the soft limit of open files to the hard one and returns it.
pub fn raise_files() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure lives until each call returns.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

/// The command starts on `core`, with as many open files as it may have, and is told to end when this thread does.
pub fn prepare(command: &mut Command, core: usize) {
    // SAFETY: between fork and exec the closure makes system calls only; it neither allocates on success nor takes locks.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            raise_files()?;
            pin_here(core)
        });
    }
}

/// Sends a signal to a process that this one started.
pub fn signal(id: u32, signal: i32) {
    if let Ok(id) = i32::try_from(id)
        && id > 1
    {
        // SAFETY: the call takes numbers only, and the id is of one process: neither a group nor everything.
        unsafe { libc::kill(id, signal) };
    }
}

/// Asks a process to end.
pub const TERM: i32 = libc::SIGTERM;
/// Ends a process.
pub const KILL: i32 = libc::SIGKILL;

/// Clock ticks in a second, the unit of /proc.
pub fn ticks() -> f64 {
    // SAFETY: the call takes a number only.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}
