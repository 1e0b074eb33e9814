//! Who this process is, and which others of this machine still run: an id of the installation, and a locked file for each boot.
//!
//! The lock is the system's and goes with the process, however that ends. Invariants: a boot's file is locked from the moment that it has
//! its name; who replays what another boot left holds that boot's lock meanwhile.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use super::spool::segments_in;
use super::sqlite::make_private_dir;
use crate::ledger::store::{Boot, BootLock, OtherBoot};

/// File with the id of the installation.
const INSTANCE: &str = "instance";
/// Directory of the locks.
const LOCKS: &str = "boots";
/// Directory of the spools, one directory a boot.
const SPOOLS: &str = "spool";
/// Longest id that is read back.
const ID_MAX: u64 = 64;

/// This process, and the state directory that it shares with others of its installation.
#[derive(Debug)]
pub struct Boots {
    dir: PathBuf,
    own: Boot,
    /// Held until the end of the process.
    _lock: File,
}

/// The lock of a boot that has ended. While it is held nobody else takes care of that boot.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "held, not used")] File);

impl Boots {
    /// Enters this process: makes the directory if need be, and takes the lock of a new boot.
    pub fn enter(dir: &Path) -> io::Result<Boots> {
        make_private_dir(&dir.join(LOCKS))?;
        let own = Boot {
            boot_id: Arc::from(new_id()),
            instance: instance(dir)?,
        };
        let path = lock_path(dir, &own.boot_id);
        let before = path.with_extension("new");
        let lock = private(&before)?;
        lock.lock()?;
        // Under its name it is never seen without its lock.
        std::fs::rename(&before, &path)?;
        Ok(Boots {
            dir: dir.to_owned(),
            own,
            _lock: lock,
        })
    }

    /// This process.
    pub fn own(&self) -> &Boot {
        &self.own
    }

    /// Where a boot spools.
    pub fn spool_of(&self, boot_id: &str) -> PathBuf {
        self.dir.join(SPOOLS).join(boot_id)
    }

    /// What this machine knows of another boot.
    pub fn look(&self, other: &OtherBoot) -> BootLock {
        if other.boot.instance != self.own.instance || !is_id(&other.boot.boot_id) {
            return BootLock::Unknown;
        }
        let path = lock_path(&self.dir, &other.boot.boot_id);
        let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else {
            return BootLock::Unknown;
        };
        match file.try_lock() {
            Ok(()) => BootLock::Free,
            Err(TryLockError::WouldBlock) => BootLock::Held,
            Err(TryLockError::Error(_)) => BootLock::Unknown,
        }
    }

    /// Takes over what a boot of this installation left. `None` while it runs, or another takes care of it.
    pub fn claim(&self, boot_id: &str) -> Option<Claim> {
        if !is_id(boot_id) || *boot_id == *self.own.boot_id {
            return None;
        }
        let file = private(&lock_path(&self.dir, boot_id)).ok()?;
        file.try_lock().ok()?;
        Some(Claim(file))
    }

    /// Boots that left a spool, this one apart.
    pub fn spooled(&self) -> Vec<Arc<str>> {
        let Ok(entries) = std::fs::read_dir(self.dir.join(SPOOLS)) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut ids: Vec<Arc<str>> = names
            .filter(|name| is_id(name) && **name != *self.own.boot_id)
            .map(Arc::from)
            .collect();
        ids.sort();
        ids
    }

    /// Bytes that the spools of other boots hold.
    pub fn spooled_bytes(&self) -> u64 {
        let boots = self.spooled();
        let segments = boots
            .iter()
            .filter_map(|boot| segments_in(&self.spool_of(boot)).ok());
        segments.flatten().map(|(_, bytes)| bytes).sum()
    }

    /// Removes what is left of a boot whose rows are all settled.
    pub fn forget(&self, boot_id: &str) {
        if is_id(boot_id) {
            let _ = std::fs::remove_dir(self.spool_of(boot_id));
            let _ = std::fs::remove_file(lock_path(&self.dir, boot_id));
        }
    }
}

fn lock_path(dir: &Path, boot_id: &str) -> PathBuf {
    dir.join(LOCKS).join(format!("{boot_id}.lock"))
}

/// Opens a file for its owner alone, or makes it.
fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Whether a text can be the id of a boot: nothing else becomes part of a path.
fn is_id(text: &str) -> bool {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 16 && text.bytes().all(hex)
}

fn new_id() -> String {
    format!("{:016x}", SmallRng::from_os_rng().next_u64())
}

/// The id of the installation, made by whoever is first.
fn instance(dir: &Path) -> io::Result<Arc<str>> {
    let path = dir.join(INSTANCE);
    if let Ok(id) = read_id(&path) {
        return Ok(id);
    }
    let own = dir.join(format!("{INSTANCE}.{}", new_id()));
    let mut file = private(&own)?;
    file.write_all(new_id().as_bytes())?;
    file.sync_all()?;
    // A link is made or not, and never over another: of two that start at once, both read the first one's.
    let linked = std::fs::hard_link(&own, &path);
    let _ = std::fs::remove_file(&own);
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read_id(&path),
    }
}

fn read_id(path: &Path) -> io::Result<Arc<str>> {
    let mut id = String::new();
    File::open(path)?.take(ID_MAX).read_to_string(&mut id)?;
    match is_id(id.trim()) {
        true => Ok(Arc::from(id.trim())),
        false => Err(io::Error::other(format!(
            "{}: holds no id of an installation; delete it to get a new one",
            path.display()
        ))),
    }
}
