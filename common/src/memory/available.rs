//! How much memory a process may still allocate before the machine or a cgroup kills a process.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup's limit above this means "none".
const NO_LIMIT: u64 = 1 << 60;

/// How much memory may still be allocated, and what limits it.
#[derive(Clone, Debug, PartialEq)]
pub struct Available {
    /// Bytes.
    pub bytes: u64,
    /// The limit, for people.
    pub by: String,
}

/// What the machine has free or what the cgroups of this process allow, whichever is less; `None`
/// where the system reports neither.
pub fn available() -> Option<Available> {
    under(Path::new("/"))
}

fn under(root: &Path) -> Option<Available> {
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = cgroups.lines().flat_map(|line| cgroup(root, line));
    machine(root).into_iter().chain(limits).min_by_key(|available| available.bytes)
}

fn machine(root: &Path) -> Option<Available> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Available { bytes: kib.saturating_mul(1024), by: "MemAvailable of the machine".into() })
}

/// The limits that a line of `/proc/self/cgroup` leads to: of that group and of its ancestors.
fn cgroup(root: &Path, line: &str) -> Vec<Available> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    let (mount, names) = match controllers {
        "" => ("sys/fs/cgroup", ["memory.max", "memory.current", "inactive_file "]),
        c if c.split(',').any(|c| c == "memory") => (
            "sys/fs/cgroup/memory",
            ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "],
        ),
        _ => return Vec::new(),
    };
    let mount = root.join(mount);
    // In a container the path may lead out of what is mounted. Then the mount itself is our group.
    let folder = mount.join(path.trim_start_matches('/'));
    let groups = folder.ancestors().take_while(|group| group.starts_with(&mount));
    groups.filter_map(|group| limit(group, names)).collect()
}

fn limit(group: &Path, [limit, usage, reclaimable]: [&str; 3]) -> Option<Available> {
    let read = |name: &str| fs::read_to_string(PathBuf::from(group).join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let limit = number(limit).filter(|limit| *limit < NO_LIMIT)?;
    let stat = read("memory.stat").unwrap_or_default();
    // The kernel reclaims unused page cache before it kills a process.
    let cache = stat.lines().find_map(|line| line.strip_prefix(reclaimable)?.trim().parse().ok());
    let used = number(usage)?.saturating_sub(cache.unwrap_or(0));
    let by = format!("limit of the cgroup {limit} bytes, {used} used");
    Some(Available { bytes: limit.saturating_sub(used), by })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::TempDir::new().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal: 8000 kB\nMemFree: 10 kB\nMemAvailable:    4000 kB\n");

    #[test]
    fn the_least_of_machine_and_cgroups_counts() {
        let bytes = |files: &[(&str, &str)]| under(tree(files).path()).map(|a| a.bytes);
        assert_eq!(bytes(&[]), None, "a system that reports nothing refuses nothing");
        assert_eq!(bytes(&[MEMINFO]), Some(4_096_000));
        let v2 = [
            MEMINFO,
            ("proc/self/cgroup", "0::/pods/ours\n"),
            ("sys/fs/cgroup/pods/ours/memory.max", "max\n"),
            ("sys/fs/cgroup/pods/ours/memory.current", "1000\n"),
            ("sys/fs/cgroup/pods/memory.max", "3000000\n"),
            ("sys/fs/cgroup/pods/memory.current", "1000000\n"),
            ("sys/fs/cgroup/pods/memory.stat", "anon 7\ninactive_file 400000\n"),
        ];
        assert_eq!(bytes(&v2), Some(2_400_000), "the group around ours has the limit");
        let v1 = [
            MEMINFO,
            ("proc/self/cgroup", "9:cpu:/x\n4:memory,hugetlb:/not/mounted/here\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "2000000\n"),
        ];
        assert_eq!(bytes(&v1), Some(0));
        let unlimited = [v1[0], v1[1], (v1[2].0, "9223372036854771712\n"), v1[3]];
        assert_eq!(bytes(&unlimited), Some(4_096_000));
    }

    #[test]
    fn this_machine_reports_its_memory() {
        assert!(available().is_some_and(|available| available.bytes > 0));
    }
}
