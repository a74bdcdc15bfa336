//! The destructive lease: the right to delete what is unreachable, bounded in time, so that a process that lost
//! the stream without knowing it stops deleting before the next owner begins to write.
//!
//! The holder counts from before it asked for the grant, the next owner from when it first saw the grant: on
//! whichever machine, the holder's time ends first. Neither compares the other's clock. What the lease can't bound
//! is a request that a network delivers later than `request_ms` and `margin_ms` after it was sent, and a process that
//! is frozen as long between the last look at its clock and the socket.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::head::Head;
use crate::model::ids::Nonce;
use crate::plan::change::Change;
use crate::plan::orphans::LeaseTimes;
use crate::sink::Keeper;
use crate::stop::{StopReason, Stopped};

/// The lease of this process. One process has one identity for all its leases, so that a run that was cut short
/// does not keep the next one out.
#[derive(Debug)]
pub struct Lease<'a> {
    keeper: &'a Keeper,
    actor: &'static str,
    times: LeaseTimes,
    asked: Instant,
}

impl<'a> Lease<'a> {
    /// Has it granted.
    ///
    /// # Errors
    /// Those of [`Keeper::change`], and [`StopReason::LeaseLost`] if the grant took so long that nothing is left
    /// of it.
    pub async fn take(keeper: &'a Keeper, actor: &'static str, times: LeaseTimes) -> Result<Self, Stopped> {
        let mut lease = Self { keeper, actor, times, asked: Instant::now() };
        lease.renew().await?;
        Ok(lease)
    }

    async fn renew(&mut self) -> Result<(), Stopped> {
        let (lease_id, actor, ttl_ms) = (self.id(), self.actor, self.times.ttl_ms);
        let asked = Instant::now();
        self.keeper.change(Change::Lease { lease_id, actor, ttl_ms }).await?;
        self.asked = asked;
        self.remaining().map(drop)
    }

    /// Has it renewed once half of its time is over. Never asked while a key is being deleted.
    ///
    /// # Errors
    /// Those of [`Lease::take`].
    pub async fn keep(&mut self) -> Result<(), Stopped> {
        if self.asked.elapsed() < Duration::from_millis(self.times.usable_ms() / 2) {
            return Ok(());
        }
        self.renew().await
    }

    /// By when a delete that is sent now has taken effect, if it ever does.
    ///
    /// # Errors
    /// [`StopReason::LeaseLost`] if that may be too late: nothing is deleted then.
    pub fn remaining(&self) -> Result<Instant, Stopped> {
        let LeaseTimes { ttl_ms, request_ms, margin_ms } = self.times;
        let elapsed_ms = u64::try_from(self.asked.elapsed().as_millis()).unwrap_or(u64::MAX);
        if elapsed_ms < self.times.usable_ms() {
            return Ok(self.asked + Duration::from_millis(ttl_ms));
        }
        Err(Stopped::new(
            StopReason::LeaseLost,
            format!(
                "{elapsed_ms} ms after the lease of {ttl_ms} ms was asked for, a request of up to {request_ms} ms \
                 with a margin of {margin_ms} ms does not fit any more"
            ),
        ))
    }

    /// That HEAD still has it.
    ///
    /// # Errors
    /// [`StopReason::LeaseLost`] if somebody took it away.
    pub fn is_granted(&self, head: &Head) -> Result<(), Stopped> {
        match &head.lease {
            Some(lease) if lease.lease_id == self.id() && lease.epoch == self.keeper.epoch => Ok(()),
            other => {
                Err(Stopped::new(StopReason::LeaseLost, format!("HEAD has {other:?} instead of the lease")))
            }
        }
    }

    /// Gives it back, so that the next owner need not wait.
    ///
    /// # Errors
    /// Those of [`Keeper::change`].
    pub async fn end(self) -> Result<(), Stopped> {
        self.keeper.change(Change::EndLease(self.id())).await.map(drop)
    }

    fn id(&self) -> Nonce {
        Nonce::from_bytes(*self.keeper.writer_id.as_bytes())
    }
}
