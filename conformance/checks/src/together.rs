//! Several futures of one check at once, in its own task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Runs them side by side and gives what they gave, in their order.
pub(crate) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut open = false;
        for (future, result) in waiting.iter_mut().zip(&mut done) {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *result = Some(output),
                    Poll::Pending => open = true,
                }
            }
        }
        if open { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn the_longest_decides_and_the_order_stays() {
        let start = Instant::now();
        let waits = [30, 10, 20].map(|ms| async move {
            sleep(Duration::from_millis(ms)).await;
            ms
        });
        assert_eq!(super::all(waits).await, [30, 10, 20]);
        assert_eq!(start.elapsed(), Duration::from_millis(30));
        assert_eq!(super::all(Vec::<std::future::Ready<u8>>::new()).await, []);
    }
}
