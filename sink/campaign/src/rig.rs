//! The processes of a campaign, and what can be done to them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use sinks::point::{EXIT_CODE, Point};
use tokio::time::Instant;

use crate::plan::{ADDRESS, Plan};
use crate::relay::{Link, Relay};

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
    /// The judge that reads along.
    Oracle,
}

impl Role {
    fn name(self) -> String {
        match self {
            Self::Store => "store".to_owned(),
            Self::Log => "log".to_owned(),
            Self::Generator => "generator".to_owned(),
            Self::Coordinator => "coordinator".to_owned(),
            Self::Worker(index) => format!("worker-{index}"),
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
    children: BTreeMap<Role, Child>,
    relays: Vec<Relay>,
    /// How often a worker ended because the store was away, and was started again.
    pub restarts: u64,
}

/// A process that ended as it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead(pub String);

impl Rig {
    /// With the relays, and nothing else started.
    ///
    /// # Errors
    /// Of files and ports.
    pub async fn new(plan: Plan) -> std::io::Result<Self> {
        let text = serde_json::to_vec_pretty(&plan)?;
        std::fs::write(plan.directory.join("plan.json"), text)?;
        let mut relays = Vec::new();
        for _ in 0..plan.workers {
            relays.push(Relay::start(&plan.coordinator).await?);
        }
        let binary = std::env::current_exe()?;
        Ok(Self { plan, binary, children: BTreeMap::new(), relays, restarts: 0 })
    }

    /// The binary of every process.
    #[must_use]
    pub fn binary(&self) -> &Path {
        &self.binary
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

    /// SIGKILL, and its end seen.
    ///
    /// # Errors
    /// Of the signal.
    pub fn kill(&mut self, role: Role) -> std::io::Result<()> {
        let Some(mut child) = self.children.remove(&role) else { return Ok(()) };
        child.kill()?;
        child.wait().map(drop)
    }

    /// SIGSTOP or SIGCONT.
    ///
    /// # Errors
    /// Of the signal.
    pub fn freeze(&self, role: Role, frozen: bool) -> std::io::Result<()> {
        let pid = self.pid(role).ok_or_else(|| std::io::Error::other("no such process"))?;
        let signal = if frozen { "STOP" } else { "CONT" };
        let done = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status()?;
        if done.success() { Ok(()) } else { Err(std::io::Error::other(format!("kill -{signal}: {done}"))) }
    }

    /// How a worker and its coordinator are connected from now on.
    pub fn link(&self, worker: u32, link: Link) {
        self.relays[worker as usize].set(link);
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
    /// [`Dead`] for any other end: nobody killed it.
    pub fn supervise(&mut self) -> Result<(), Dead> {
        let roles: Vec<Role> = self.children.keys().copied().collect();
        for role in roles {
            let status = self.ended(role).map_err(|why| Dead(format!("{}: {why}", role.name())))?;
            let Some(status) = status else { continue };
            match (role, status.code()) {
                // 3: a probe that the store did not answer.
                (Role::Worker(_) | Role::Coordinator, Some(3 | 7)) => {
                    self.restarts += 1;
                    self.start(role, None).map_err(|why| Dead(format!("{}: {why}", role.name())))?;
                }
                _ => return Err(Dead(format!("{} ended with {status}", role.name()))),
            }
        }
        Ok(())
    }

    /// Whether an armed process ended where it was armed, and left its record.
    #[must_use]
    pub fn fired(status: Option<ExitStatus>, record: &Path) -> bool {
        status.and_then(|status| status.code()) == Some(EXIT_CODE) && record.exists()
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
