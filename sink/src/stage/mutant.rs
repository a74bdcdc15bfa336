//! Known mistakes that a build for tests can make on purpose, so that a test or a campaign shows that it finds
//! them. Without the cargo feature `mutants` none can be chosen.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// An upload is committed without a look at its marker.
    CommitBeforeMarker,
    /// No receipt is written.
    ReceiptSkipped,
    /// Any object at the key counts as this upload's.
    AnyObjectAccepted,
    /// A start finishes nothing of what was staged before.
    RecoveryForgotten,
    /// Closing aborts what is staged.
    PreparedAbortedOnClose,
    /// What the snapshot gets is what was staged before this barrier.
    SnapshotBeforeBarrier,
}

impl Mutant {
    /// Every mistake.
    pub const ALL: [Self; 6] = [
        Self::CommitBeforeMarker,
        Self::ReceiptSkipped,
        Self::AnyObjectAccepted,
        Self::RecoveryForgotten,
        Self::PreparedAbortedOnClose,
        Self::SnapshotBeforeBarrier,
    ];

    /// Its name, as it is chosen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CommitBeforeMarker => "commit-before-marker",
            Self::ReceiptSkipped => "receipt-skipped",
            Self::AnyObjectAccepted => "any-object-accepted",
            Self::RecoveryForgotten => "recovery-forgotten",
            Self::PreparedAbortedOnClose => "prepared-aborted-on-close",
            Self::SnapshotBeforeBarrier => "snapshot-before-barrier",
        }
    }

    /// The mistake of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }
}

/// Whether this build can make mistakes on purpose.
pub const AVAILABLE: bool = cfg!(feature = "mutants");

/// The mistake that was chosen, if any can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
}

impl Chosen {
    /// Makes this mistake from now on.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn one(mutant: Mutant) -> Self {
        Self { mutant: Some(mutant) }
    }

    /// Whether it is this one: never, in a build without the feature.
    #[must_use]
    pub fn is(self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.mutant == Some(mutant);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_none_is_chosen() {
        for mutant in Mutant::ALL {
            assert_eq!(Mutant::named(mutant.name()), Some(mutant));
            assert!(!Chosen::default().is(mutant));
        }
        assert_eq!(Mutant::named("none"), None);
    }
}
