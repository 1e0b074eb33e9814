//! What /proc tells of a process and its children: processor time and memory. And the machine's: how busy others are.

use std::collections::BTreeMap;
use std::fs;

use super::sys::ticks;

/// How far the two counts of processor time may differ by rounding: ticks of a process and its children, at both ends.
const TICKED_ERROR_MAX: f64 = 0.05;

/// Memory of a process and its children, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident now.
    pub now: u64,
    /// Resident at most, so far.
    pub peak: u64,
}

/// The process and everything below it.
pub fn tree(id: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for child in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(parent) = stat(child).and_then(|stat| stat.get(1)?.parse().ok()) {
            children.entry(parent).or_default().push(child);
        }
    }
    let mut found = vec![id];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(children.remove(&parent).unwrap_or_default());
        at += 1;
    }
    found
}

/// Fields of /proc/ID/stat after the name, which may hold anything; the first is the state.
fn stat(id: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// Processor seconds that processes have used so far, by two counts of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// In ticks, ended threads included.
    ticked: f64,
    /// In nanoseconds, of threads that run.
    exact: f64,
}

impl Cpu {
    /// What the processes have used until now.
    pub fn of(ids: &[u32]) -> Cpu {
        let mut cpu = Cpu::default();
        for id in ids {
            let field = |stat: &[String], at: usize| stat.get(at)?.parse::<f64>().ok();
            let used = stat(*id).and_then(|stat| Some(field(&stat, 11)? + field(&stat, 12)?));
            cpu.ticked += used.unwrap_or(0.0) / ticks();
            let threads = fs::read_dir(format!("/proc/{id}/task"))
                .into_iter()
                .flatten()
                .flatten();
            for thread in threads {
                let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
                let nanos = text
                    .split_whitespace()
                    .next()
                    .and_then(|text| text.parse::<f64>().ok());
                cpu.exact += nanos.unwrap_or(0.0) / 1e9;
            }
        }
        cpu
    }

    /// Seconds used since `before`: the exact count, unless a thread that ended took its share away.
    pub fn since(self, before: Cpu) -> f64 {
        let (ticked, exact) = (self.ticked - before.ticked, self.exact - before.exact);
        if (exact - ticked).abs() <= TICKED_ERROR_MAX {
            exact
        } else {
            ticked
        }
    }
}

/// Resident memory of these processes; what they share is counted for each.
pub fn memory(ids: &[u32]) -> Memory {
    let mut sum = Memory::default();
    for id in ids {
        let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        sum.now += kibibytes(&text, "VmRSS:") << 10;
        sum.peak += kibibytes(&text, "VmHWM:") << 10;
    }
    sum
}

fn kibibytes(status: &str, name: &str) -> u64 {
    let field = status.lines().find_map(|line| line.strip_prefix(name));
    field
        .and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok())
        .unwrap_or(0)
}

/// Processor seconds that all of the machine has used, so that those of others can be told.
pub fn busy_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // User, nice, system, and the two kinds of interrupts; neither idle nor stolen time.
    [0, 1, 2, 5, 6]
        .iter()
        .filter_map(|at| fields.get(*at))
        .sum::<f64>()
        / ticks()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_is_in_its_own_tree() {
        let own = std::process::id();
        assert_eq!(tree(own).first(), Some(&own));
        let memory = memory(&[own]);
        assert!(memory.now > 0 && memory.peak >= memory.now / 2);
        assert!(busy_seconds() > 0.0);
    }

    #[test]
    fn processor_time_is_exact_unless_a_thread_was_lost() {
        let before = Cpu {
            ticked: 1.0,
            exact: 1.0,
        };
        assert_eq!(
            Cpu {
                ticked: 1.51,
                exact: 1.5
            }
            .since(before),
            0.5
        );
        assert_eq!(
            Cpu {
                ticked: 1.5,
                exact: 0.75
            }
            .since(before),
            0.5
        );
    }

    #[test]
    fn fields_of_status_are_kibibytes() {
        assert_eq!(
            kibibytes("VmHWM:\t   12 kB\nVmRSS:\t    7 kB\n", "VmRSS:"),
            7
        );
        assert_eq!(kibibytes("", "VmRSS:"), 0);
    }
}
