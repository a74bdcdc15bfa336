//! What a run sends, and what that costs at AWS's prices. Pure.

use assay_checks::{RequestClass, Traffic, Volume};

/// List prices of S3 Standard in us-east-1, in US dollars. Requests: AWS Price List, service code AmazonS3, in force since
/// 1 October 2025, read on 28 October 2025; the tables of `aws.amazon.com/s3/pricing`, "Requests & data retrievals", as
/// others copied them in August 2025 and June 2026, say the same. Left out are storage of a few minutes and what is
/// free: deletes, cancelled uploads, bytes sent in. The estimate is from above: a POST that deletes many keys is priced
/// as any POST, and the hundred gigabytes that leave an account free each month (the same page, September 2026) are not
/// taken off.
const PRICES_OF: &str = "S3 Standard, us-east-1, October 2025";
/// A thousand PUT, COPY, POST or LIST requests.
const WRITES_PER_THOUSAND: f64 = 0.005;
/// A thousand GET, HEAD and other requests.
const READS_PER_THOUSAND: f64 = 0.000_4;
/// A gigabyte (10^9 bytes) out to the internet, in the first ten terabytes of a month: the page's "Data transfer".
const OUT_PER_GIGABYTE: f64 = 0.09;

/// The price of one class's requests and of the bytes that it brings out, in US dollars.
fn price(class: RequestClass, volume: &Volume) -> f64 {
    let per_thousand = match class {
        RequestClass::Put | RequestClass::Copy | RequestClass::Post | RequestClass::List => {
            WRITES_PER_THOUSAND
        }
        RequestClass::Get | RequestClass::Head => READS_PER_THOUSAND,
        RequestClass::Delete => 0.0,
    };
    let out = if class == RequestClass::Head { 0 } else { volume.bytes_received };
    volume.requests as f64 * per_thousand / 1e3 + out as f64 * OUT_PER_GIGABYTE / 1e9
}

/// Adds what another client sent.
pub fn add(traffic: &mut Traffic, more: &Traffic) {
    for (class, volume) in more {
        let sum = traffic.entry(*class).or_default();
        sum.requests += volume.requests;
        sum.bytes_sent += volume.bytes_sent;
        sum.bytes_received += volume.bytes_received;
    }
}

/// A table by class, with the sum.
pub fn table(traffic: &Traffic) -> String {
    let line = |name: &str, volume: &Volume, price: f64| {
        format!(
            "{name:<8} {:>10} {:>16} {:>16} {:>14}\n",
            volume.requests,
            volume.bytes_sent,
            volume.bytes_received,
            format!("${price:.5}")
        )
    };
    let mut out = format!(
        "{:<8} {:>10} {:>16} {:>16} {:>14}\n",
        "class", "requests", "bytes sent", "bytes received", "at AWS prices"
    );
    let (mut all, mut sum) = (Volume::default(), 0.0);
    for (class, volume) in traffic {
        out += &line(class.name(), volume, price(*class, volume));
        all.requests += volume.requests;
        all.bytes_sent += volume.bytes_sent;
        all.bytes_received += volume.bytes_received;
        sum += price(*class, volume);
    }
    out + &line("all", &all, sum)
        + &format!("prices: {PRICES_OF}, bytes received as traffic to the internet\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_requests_and_prices() {
        let volume = |requests, bytes_received| Volume { requests, bytes_sent: 7, bytes_received };
        let mut traffic = Traffic::from([
            (RequestClass::Put, volume(1000, 0)),
            (RequestClass::Get, volume(1000, 1_000_000_000)),
            (RequestClass::Delete, volume(500, 0)),
        ]);
        add(
            &mut traffic,
            &Traffic::from([(RequestClass::Delete, volume(1, 0)), (RequestClass::List, volume(1000, 0))]),
        );
        insta::assert_snapshot!(table(&traffic), @r"
        class      requests       bytes sent   bytes received  at AWS prices
        PUT            1000                7                0       $0.00500
        LIST           1000                7                0       $0.00500
        GET            1000                7       1000000000       $0.09040
        DELETE          501               14                0       $0.00000
        all            3501               35       1000000000       $0.10040
        prices: S3 Standard, us-east-1, October 2025, bytes received as traffic to the internet
        ");
    }
}
