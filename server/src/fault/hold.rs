//! A request that is held: for a time, or until the rule that holds it is over.

use std::time::Duration;

use tokio::sync::watch;

/// The end of a rule that is set. It ends for whoever watches it when it is dropped.
#[derive(Debug)]
pub(super) struct End(watch::Sender<()>);

impl End {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// What waits for this end, and no longer than `left`.
    pub(super) fn watch(&self, left: Duration) -> Over {
        Over { rule: self.0.subscribe(), left }
    }
}

/// Waits for the end of a rule.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    rule: watch::Receiver<()>,
    /// After this it is over by itself.
    left: Duration,
}

/// What a held request waits for.
#[derive(Clone, Debug)]
pub(crate) enum Hold {
    /// This much time.
    For(Duration),
    /// The end of its rule.
    Until(Over),
}

impl Hold {
    /// Waits until the request may go on.
    pub(crate) async fn over(self) {
        match self {
            Self::For(time) => tokio::time::sleep(time).await,
            Self::Until(Over { mut rule, left }) => {
                // Nothing is ever sent: a change is an error, for whoever would send is gone.
                let lifted = async { while rule.changed().await.is_ok() {} };
                // Either way the rule is over.
                let _ = tokio::time::timeout(left, lifted).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hold_ends_with_its_rule_or_after_what_is_left_of_it() {
        let end = End::new();
        let [held, other] = [60, 20].map(|left| Hold::Until(end.watch(Duration::from_secs(left))));
        let began = Instant::now();
        other.over().await;
        assert_eq!(began.elapsed(), Duration::from_secs(20));
        let lift = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(end);
        };
        tokio::join!(held.clone().over(), lift);
        assert_eq!(began.elapsed(), Duration::from_secs(25));
        held.over().await;
        assert_eq!(began.elapsed(), Duration::from_secs(25), "what is over holds nobody");
        Hold::For(Duration::from_secs(5)).over().await;
        assert_eq!(began.elapsed(), Duration::from_secs(30));
    }
}
