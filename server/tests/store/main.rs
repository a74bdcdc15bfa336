//! What the store promises, on both stores with one body each: through the engine, as a client sees it.

#[path = "../client/mod.rs"]
mod client;

mod bodies;
mod commit;
mod documents;
mod lifecycle;
mod listing;
mod multipart;
mod races;
mod versions;
mod whole;

/// Runs async tests once on each store.
macro_rules! on_both_stores {
    ($($test:ident),+ $(,)?) => {
        mod in_memory { $(#[tokio::test] async fn $test() { super::$test(crate::client::On::Memory).await })+ }
        mod on_disk { $(#[tokio::test] async fn $test() { super::$test(crate::client::On::Disk).await })+ }
    };
}
pub(crate) use on_both_stores;

/// A runtime for one case of a property.
fn block_on<T>(job: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(job)
}

/// A key or value as it stands in a URL: every byte that could mean something is encoded.
fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// What `encoding-type=url` made of a key, undone.
fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8().unwrap().into_owned()
}

const ENABLE: &str = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
const SUSPEND: &str = "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
