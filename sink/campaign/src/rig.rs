//! The processes of a campaign, and what can be done to them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use sinks::model::ids::Digest;
use sinks::point::{EXIT_CODE, Point};
use sinks::stage::StageError;
use tokio::time::Instant;

use crate::failure::{AWAY, Failure, NOT_PROVEN};
use crate::plan::{ADDRESS, Plan};
use crate::relay::{Link, Relay};
use crate::seen;

/// Of a process that was killed.
const SIGKILL: i32 = 9;

/// Which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The store: our server on disk.
    Store,
    /// The log.
    Log,
    /// The generator.
    Generator,
    /// The coordinator.
    Coordinator,
    /// A worker.
    Worker(u32),
    /// A worker in whose place another one works: [`Rig::succeed`]. None is started as one.
    Zombie,
    /// The judge that reads along.
    Oracle,
}

impl Role {
    /// As its log is named.
    fn name(self) -> String {
        match self {
            Self::Store => "store".to_owned(),
            Self::Log => "log".to_owned(),
            Self::Generator => "generator".to_owned(),
            Self::Coordinator => "coordinator".to_owned(),
            Self::Worker(index) => format!("worker-{index}"),
            Self::Zombie => "zombie".to_owned(),
            Self::Oracle => "oracle".to_owned(),
        }
    }
}

/// The processes, each of this same binary.
#[derive(Debug)]
pub struct Rig {
    /// What they agree upon.
    pub plan: Plan,
    binary: PathBuf,
    digest: Digest,
    children: BTreeMap<Role, Child>,
    relays: Vec<Relay>,
    /// The host that each worker is of: what it keeps beside the bucket is there.
    hosts: Vec<u32>,
    /// How often a worker ended because the store was away, and was started again.
    pub restarts: u64,
}

/// Why a campaign goes no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// A process ended as it must not, which is a verdict.
    Dead(String),
    /// Nobody feeds the job any more, which says nothing about it.
    NoInput(String),
    /// Nothing of the job's.
    Failed(Failure),
}

impl From<Failure> for Halt {
    fn from(why: Failure) -> Self {
        Self::Failed(why)
    }
}

impl From<std::io::Error> for Halt {
    fn from(why: std::io::Error) -> Self {
        Self::Failed(why.into())
    }
}

impl From<StageError> for Halt {
    fn from(why: StageError) -> Self {
        Self::Failed(why.into())
    }
}

impl Rig {
    /// With the relays, and nothing else started.
    ///
    /// # Errors
    /// Of files and ports.
    pub async fn new(plan: Plan) -> std::io::Result<Self> {
        // The one that runs, whatever a build has put in its place since.
        Self::of(plan, Path::new("/proc/self/exe")).await
    }

    /// With processes of a copy of `binary`, which nobody replaces while they run.
    async fn of(plan: Plan, binary: &Path) -> std::io::Result<Self> {
        let text = serde_json::to_vec_pretty(&plan)?;
        std::fs::write(plan.directory.join("plan.json"), text)?;
        let copy = plan.directory.join("assay-campaign");
        std::fs::copy(binary, &copy)?;
        let digest = Digest::of(&std::fs::read(&copy)?);
        let mut relays = Vec::new();
        for _ in 0..plan.workers {
            relays.push(Relay::start(&plan.coordinator).await?);
        }
        let hosts = vec![0; plan.workers as usize];
        Ok(Self { plan, binary: copy, digest, children: BTreeMap::new(), relays, hosts, restarts: 0 })
    }

    /// The binary of every process.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Its SHA-256.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Starts a process; armed, it ends at that point, once, and leaves a record.
    ///
    /// # Errors
    /// Of the process.
    pub fn start(&mut self, role: Role, armed: Option<(Point, &Path)>) -> std::io::Result<()> {
        let directory = &self.plan.directory;
        let log = |name: &str| -> std::io::Result<File> {
            OpenOptions::new().create(true).append(true).open(directory.join(name))
        };
        let errors = log(&format!("{}.log", role.name()))?;
        let broker = self.plan.kafka.as_ref().and_then(|kafka| kafka.command.as_deref());
        let mut command = match broker {
            Some(broker) if role == Role::Log => self.broker(broker)?,
            _ => self.own(role),
        };
        command.env_remove("ASSAY_PROTOCOL_POINT").env_remove("ASSAY_PROTOCOL_POINT_FIRED");
        if let Some((point, record)) = armed {
            command.env("ASSAY_PROTOCOL_POINT", point.name()).env("ASSAY_PROTOCOL_POINT_FIRED", record);
        }
        // Closed when this process ends, however it ends: then the child ends too.
        command.stdin(Stdio::piped()).stdout(errors.try_clone()?).stderr(errors);
        let child = command.spawn()?;
        self.children.insert(role, child);
        Ok(())
    }

    /// One of the binary's processes.
    fn own(&self, role: Role) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("role").arg(match role {
            Role::Worker(_) => "worker".to_owned(),
            other => other.name(),
        });
        command.arg("--plan").arg(self.plan.directory.join("plan.json"));
        if let Role::Worker(index) = role {
            command.args(["--index", &index.to_string()]);
            command.args(["--coordinator", self.relays[index as usize].address()]);
            command.args(["--host", &self.hosts[index as usize].to_string()]);
        }
        command
    }

    /// A broker's process, in a directory that stays when it is started again.
    fn broker(&self, command: &str) -> std::io::Result<Command> {
        let directory = self.plan.directory.join("log");
        std::fs::create_dir_all(&directory)?;
        // It is none of ours and does not watch its standard input: the kernel ends it with this process.
        let mut tethered = Command::new("setpriv");
        tethered.args(["--pdeathsig", "KILL", "--"]);
        tethered.args(command.split_whitespace().map(|word| word.replace(ADDRESS, &self.plan.log)));
        tethered.current_dir(directory);
        Ok(tethered)
    }

    /// The process's id, if it was started.
    #[must_use]
    pub fn pid(&self, role: Role) -> Option<u32> {
        self.children.get(&role).map(Child::id)
    }

    /// The ids of all workers.
    #[must_use]
    pub fn worker_pids(&self) -> Vec<Option<u32>> {
        (0..self.plan.workers).map(|index| self.pid(Role::Worker(index))).collect()
    }

    /// SIGKILL, and its end seen. Whether it lived until then: one that had ended since the store was away did not.
    ///
    /// # Errors
    /// Of the signal; [`Halt::Dead`] where it had ended by itself as it must not.
    pub fn kill(&mut self, role: Role) -> Result<bool, Halt> {
        let Some(mut child) = self.children.remove(&role) else { return Ok(false) };
        if let Some(status) = child.try_wait()? {
            return self.excuse(role, status).map(|()| false);
        }
        child.kill()?;
        let status = child.wait()?;
        if status.signal() == Some(SIGKILL) { Ok(true) } else { self.excuse(role, status).map(|()| false) }
    }

    /// SIGSTOP. Whether the process is stopped after it.
    ///
    /// # Errors
    /// Of the signal.
    pub async fn freeze(&self, role: Role) -> std::io::Result<bool> {
        let pid = self.signal(role, "STOP")?;
        Ok(seen::stops(pid).await)
    }

    /// SIGCONT. Whether the process was stopped until then.
    ///
    /// # Errors
    /// Of the signal.
    pub fn thaw(&self, role: Role) -> std::io::Result<bool> {
        let stopped = self.pid(role).is_some_and(seen::stopped);
        self.signal(role, "CONT").map(|_| stopped)
    }

    fn signal(&self, role: Role, signal: &str) -> std::io::Result<u32> {
        let pid = self.pid(role).ok_or_else(|| std::io::Error::other("no such process"))?;
        let done = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status()?;
        if done.success() { Ok(pid) } else { Err(std::io::Error::other(format!("kill -{signal}: {done}"))) }
    }

    /// Starts another process in a worker's place, on another host, while the worker is still there.
    ///
    /// # Errors
    /// Of the process.
    pub fn succeed(&mut self, worker: u32) -> std::io::Result<()> {
        if let Some(child) = self.children.remove(&Role::Worker(worker)) {
            self.children.insert(Role::Zombie, child);
        }
        self.hosts[worker as usize] += 1;
        self.start(Role::Worker(worker), None)
    }

    /// How a worker and its coordinator are connected from now on.
    pub fn link(&self, worker: u32, link: Link) {
        self.relays[worker as usize].set(link);
    }

    /// The relay between a worker and its coordinator.
    #[must_use]
    pub fn relay(&self, worker: u32) -> &Relay {
        &self.relays[worker as usize]
    }

    /// How a process ended, if it did.
    ///
    /// # Errors
    /// Of the process.
    pub fn ended(&mut self, role: Role) -> std::io::Result<Option<ExitStatus>> {
        self.children.get_mut(&role).map_or(Ok(None), Child::try_wait)
    }

    /// Waits for a process's end.
    pub async fn wait(&mut self, role: Role, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if let Ok(Some(status)) = self.ended(role) {
                self.children.remove(&role);
                return Some(status);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        None
    }

    /// Starts again what ended because the store was away.
    ///
    /// # Errors
    /// [`Halt::Dead`] for any other end: nobody killed it.
    pub fn supervise(&mut self) -> Result<(), Halt> {
        let roles: Vec<Role> = self.children.keys().copied().filter(|role| *role != Role::Zombie).collect();
        for role in roles {
            let Some(status) = self.ended(role)? else { continue };
            self.excuse(role, status)?;
            self.restarts += 1;
            self.start(role, None)?;
        }
        Ok(())
    }

    /// That a process that ended by itself may end so: a worker or the coordinator may where the store is away, or
    /// at an armed point.
    ///
    /// # Errors
    /// [`Halt::Dead`] for any other end, with the last word of its log; [`Halt::NoInput`] for the generator's.
    pub fn excuse(&self, role: Role, status: ExitStatus) -> Result<(), Halt> {
        // Not proven: of a probe that the store did not answer.
        let excused = [i32::from(NOT_PROVEN), i32::from(AWAY), EXIT_CODE];
        let may = matches!(role, Role::Worker(_) | Role::Coordinator);
        if may && status.code().is_some_and(|code| excused.contains(&code)) {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.plan.directory.join(format!("{}.log", role.name())));
        let log = log.unwrap_or_default();
        let word = log.lines().rev().find_map(|line| line.strip_prefix("assay-campaign: "));
        let word = word.map_or_else(String::new, |word| format!(": {word}"));
        let ended = format!("{} ended with {status}{word}", role.name());
        Err(if role == Role::Generator { Halt::NoInput(ended) } else { Halt::Dead(ended) })
    }

    /// Whether an armed process ended where it was armed, and left its record.
    #[must_use]
    pub fn fired(status: ExitStatus, record: &Path) -> bool {
        status.code() == Some(EXIT_CODE) && record.exists()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for child in self.children.values_mut() {
            // One that ended already is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::plan::tests::plan;

    /// A rig whose processes are a script: `$2` is the role.
    pub async fn scripted(directory: &Path, script: &str) -> Rig {
        let path = directory.join("script");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Rig::of(plan(directory), &path).await.unwrap()
    }

    /// Waits for a process's end and leaves it to whoever looks next.
    async fn ends(rig: &mut Rig, role: Role) {
        while rig.ended(role).unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn dead(role: &str, code: i32, word: &str) -> Halt {
        Halt::Dead(format!("{role} ended with exit status: {code}{word}"))
    }

    #[tokio::test]
    async fn a_kill_says_whether_it_killed() {
        let dir = tempfile::tempdir().unwrap();
        let mut rig = scripted(dir.path(), "exec sleep 60").await;
        rig.start(Role::Worker(0), None).unwrap();
        assert_eq!(rig.kill(Role::Worker(0)), Ok(true));
        assert_eq!(rig.kill(Role::Worker(0)), Ok(false), "nobody is there");
    }

    #[tokio::test]
    async fn an_end_that_nobody_made_is_told_with_its_last_word() {
        for code in [0, 1, 2, 3, 4, 5, 6, 7, 86, 101] {
            let dir = tempfile::tempdir().unwrap();
            let script = format!("echo 'assay-campaign: lost: all' >&2; echo more >&2; exit {code}");
            let mut rig = scripted(dir.path(), &script).await;
            for role in [Role::Worker(0), Role::Coordinator, Role::Store, Role::Generator] {
                let name = role.name();
                let may = matches!(role, Role::Worker(_) | Role::Coordinator) && [3, 7, 86].contains(&code);
                let wanted = match dead(&name, code, ": lost: all") {
                    _ if may => Ok(()),
                    Halt::Dead(ended) if role == Role::Generator => Err(Halt::NoInput(ended)),
                    dead => Err(dead),
                };
                rig.start(role, None).unwrap();
                ends(&mut rig, role).await;
                assert_eq!(rig.supervise(), wanted, "{name} {code}");
                ends(&mut rig, role).await;
                assert_eq!(rig.kill(role), wanted.map(|()| false), "{name} {code}");
            }
        }
    }

    #[tokio::test]
    async fn a_frozen_worker_has_a_successor_of_another_host() {
        let dir = tempfile::tempdir().unwrap();
        let mut rig = scripted(dir.path(), "echo \"$@\"; exec sleep 60").await;
        let worker = Role::Worker(0);
        rig.start(worker, None).unwrap();
        assert!(rig.freeze(worker).await.unwrap());
        let frozen = rig.pid(worker);
        rig.succeed(0).unwrap();
        assert!(rig.pid(worker) != frozen && rig.pid(Role::Zombie) == frozen);
        assert!(rig.thaw(Role::Zombie).unwrap());
        assert!(!rig.thaw(worker).unwrap(), "it never was");
        assert_eq!(rig.supervise(), Ok(()));
        assert_eq!((rig.kill(Role::Zombie), rig.kill(worker)), (Ok(true), Ok(true)));
        let log = std::fs::read_to_string(dir.path().join("worker-0.log")).unwrap();
        assert!(log.contains("--host 0") && log.contains("--host 1"), "{log}");
    }

    #[tokio::test]
    async fn every_process_is_of_the_copy() {
        let dir = tempfile::tempdir().unwrap();
        let rig = scripted(dir.path(), "exit 0").await;
        assert_eq!(rig.binary(), dir.path().join("assay-campaign"));
        assert_eq!(rig.digest(), Digest::of(b"#!/bin/sh\nexit 0\n"));
    }
}
