//! SIGTERM and SIGINT: the first asks for an orderly end, the second ends at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::{DONE, Failure, INTERRUPTED, OWN_FAULT};

/// How often the process was asked to stop, and the exit code of the first time.
#[derive(Clone, Debug)]
pub(crate) struct Stop(watch::Receiver<(u32, u8)>);

impl Stop {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let wrong = |error| Failure::new(OWN_FAULT, format!("signals can't be listened to: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(wrong)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(wrong)?;
        let (sender, receiver) = watch::channel((0, DONE));
        tokio::spawn(async move {
            loop {
                let code = tokio::select! {
                    _ = terminate.recv() => DONE,
                    _ = interrupt.recv() => INTERRUPTED,
                };
                sender.send_modify(|(times, first)| {
                    *first = if *times == 0 { code } else { *first };
                    *times += 1;
                });
            }
        });
        Ok(Self(receiver))
    }

    /// Ends with the `times`th signal; returns the exit code of the first.
    pub(crate) async fn asked(&mut self, times: u32) -> u8 {
        match self.0.wait_for(|(asked, _)| *asked >= times).await {
            Ok(state) => state.1,
            // Nobody listens any more: the runtime ends.
            Err(_) => std::future::pending().await,
        }
    }
}
