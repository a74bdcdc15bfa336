//! Commits: each that has begun comes to its end, whoever still waits for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use crate::service::Call;
use crate::store::StoreError;
use crate::store::index::IndexError;

impl Call<'_> {
    /// Runs a write when the plan wants it: at once, or later, whether the caller still waits or not.
    pub(crate) async fn commit<T: Send + 'static>(
        &self,
        write: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Some(late) = self.late.clone() else { return to_its_end(write).await };
        let later = tokio::spawn(async move {
            late.over().await;
            write.await
        });
        later.await.unwrap_or_else(|gone| Err(IndexError::unknown("waiting for a late write", gone).into()))
    }
}

/// Runs a write that goes on when its caller is dropped.
pub(crate) fn to_its_end<T: Send + 'static>(
    write: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = T> + Send {
    Begun(Some(Box::pin(write)))
}

/// A write that goes on as a task of its own when its caller drops it: the index runs it in any case, and the file
/// of the body that it replaced must go.
struct Begun<F>(Option<Pin<Box<F>>>)
where
    F: Future<Output: Send> + Send + 'static;

impl<F: Future<Output: Send> + Send + 'static> Future for Begun<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(write) = &mut self.0 else { return Poll::Pending };
        let end = write.as_mut().poll(context);
        if end.is_ready() {
            self.0 = None;
        }
        end
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Begun<F> {
    fn drop(&mut self) {
        // Without a runtime the file stays until the next start sweeps it.
        if let (Some(write), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(write);
        }
    }
}
