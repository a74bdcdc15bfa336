//! Several requests at once, bounded.

use std::future::Future;

use tokio::task::JoinSet;

use crate::error::SinkError;

/// Runs `work` on every item, at most `limit` at once, and gives the results in the items' order. The first
/// error ends it: what was not answered by then is abandoned.
pub(super) async fn in_parallel<I, T, F>(
    limit: usize,
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> F,
) -> Result<Vec<T>, SinkError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, SinkError>> + Send + 'static,
{
    let mut items = items.into_iter().enumerate();
    let mut running = JoinSet::new();
    let mut results = Vec::new();
    loop {
        while running.len() < limit.max(1) {
            let Some((at, item)) = items.next() else { break };
            let future = work(item);
            running.spawn(async move { (at, future.await) });
        }
        let Some(ended) = running.join_next().await else { break };
        let (at, result) =
            ended.map_err(|error| SinkError::Internal(format!("a request stopped: {error}")))?;
        results.push((at, result?));
    }
    results.sort_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
