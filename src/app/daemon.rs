//! Going into the background: the process starts itself again, detached, and leaves.
//!
//! Why not Pingora's own way: it forks after everything has been started, and a fork keeps only one thread. Reloads, names and
//! embedded providers live on others.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Starts this program again without `flag`, in a process group of its own. Its log goes where this process's log goes. Returns its id.
pub fn start_again_without(flag: &str) -> io::Result<u32> {
    let arguments: Vec<OsString> = std::env::args_os()
        .skip(1)
        .filter(|argument| argument != flag)
        .collect();
    let child = Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()?;
    Ok(child.id())
}
