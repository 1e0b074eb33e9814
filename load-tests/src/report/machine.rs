//! Where and of what the samples were taken: `report/machine.json`.

use std::io;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine and the code.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The commit that was measured.
    pub commit: String,
    /// The day.
    pub day: String,
}

impl Machine {
    /// This machine, today, at the commit of the working directory.
    pub fn here() -> Machine {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kib = field(&memory, "MemTotal")
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>();
        // What the report itself changes does not count.
        let elsewhere = [":(top)", ":(top,exclude)load-tests/report"];
        let status = ["status", "--porcelain", "--untracked-files=no", "--"];
        let changed = !output("git", &[&status[..], &elsewhere[..]].concat()).is_empty();
        Machine {
            cpu: field(&cpus, "model name"),
            cores: cpus
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            memory_mib: kib.unwrap_or(0) >> 10,
            kernel: kernel.trim().to_owned(),
            commit: output("git", &["rev-parse", "--short=12", "HEAD"])
                + if changed { ", changed" } else { "" },
            day: output("date", &["-u", "+%Y-%m-%d"]),
        }
    }

    /// Writes `DIR/machine.json`.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("machine.json"), text + "\n")
    }

    /// Reads it; everything is empty when there is none.
    pub fn read(dir: &Path) -> Machine {
        let text = std::fs::read_to_string(dir.join("machine.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }
}

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':'))
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .output()
        .ok()
        .filter(|output| output.status.success());
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}
