//! `sink/docs/probe.md` is what the checks, a run against a sound server and the list of tricksters say.

use std::fmt::Write as _;
use std::path::Path;

use assay_server::Server;
use sinks::probe::CHECKS;

use super::tricksters::{LASTING_FAULTS, TRICKSTERS};
use super::{Rig, ready};

const HEAD: &str = "\
# The capability probe

Before a durable sink reads or writes `_manifest/HEAD`, on every start, it asks the bucket twenty-seven questions, and
refuses to start unless all that it needs are answered as they must be. `assay-sink probe` asks them alone.

- **Where**: under `{prefix}/{pipeline}/_manifest/probe/{32 random digits}/`, through the client, credentials, endpoint
  and addressing of the sink; races over 16 connections of their own, spread over every address of the endpoint
  and over further endpoints that are configured.
- **Verdict**: *ready* (exit 0); *refused* by check numbers (1): never run a durable sink on this store as it is;
  *inconclusive* (3): silence or 5xx, which say nothing about the store, so the sink does not start now.
- **Patience**: a check without an answer is repeated on fresh keys, three times in all; 409 is asked again until it
  settles; an answer that is none, such as a 200 with an error in it, refuses once it comes three times. 412 and
  304 both mean that a condition failed.
- **Time**: races make 8 rounds of 16 requests; after 20 seconds a race begins no further round but makes three in
  any case. The report says how many there were. No check begins after 300 seconds.
- **Clearing away**: on every way out, Ctrl-C included, all keys are deleted and looked for; what could not be
  removed is named. Directories that a dead probe left are removed an hour later, by the store's clock; nothing
  outside `probe/` is touched.

What it cannot see: a store that begins to ignore conditions later. The sink looks for lost updates while it runs.
Stores that drop conditions where a client sends `Expect: 100-continue` do no harm here: this client never sends it.

## The checks

Requests are those against a sound server. Checks marked *recorded* refuse nothing.

<!-- checked by: sink/tests/probe/page.rs -->
";

const TRICKS: &str = "
## Stores that are refused

Each row is the embedded server with one lasting difference (`assay-server --deviate NAME`) or one lasting fault, and
a check that refuses it. One more stands in `sink/tests/probe/twisted.rs`: two endpoints of one bucket that each decide
alone (16, 17).

<!-- checked by: sink/tests/probe/tricksters.rs -->
| what it does | check |
| --- | --- |
";

const SERVERS: &str = "
## Servers that nobody here wrote

Measured on 2026-11-30, each on loopback with its own defaults.

| server | verdict | time |
| --- | --- | --- |
| SeaweedFS 4.48 | ready; a contended round of swaps took it half a second | 9 s |
| MiniStack 1.5.33 | ready | 7 s |
| LocalStack 4.14 | ready | 9 s |
| moto 5.2.5 | ready, though it decides and writes without a lock: no round of these hit its window | 6 s |
| Garage 2.5.0 | refused by 2, 3, 4, 6, 7, 9 to 12, 15 to 20: it looks at no condition of a write | 1 s |
| rclone serve 1.75.2 | refused by the same, for the same reason, and by 23: its lists show ETags without quotes | 1 s |
| s3s-fs 0.14.1 | refused by 16 to 19 (races), 22 and 23 (its lists show no ETags); 24 is answered 500 | 5 s |
";

async fn page() -> String {
    let rig = Rig::new(Server::builder()).await;
    let report = rig.probe().await;
    ready(&report);
    rig.server.stop().await;
    let mut page = HEAD.to_owned();
    page += "| # | check | what it does | requests | a failure means | what to do |\n";
    page += "| --- | --- | --- | --- | --- | --- |\n";
    for (check, line) in CHECKS.iter().zip(&report.lines) {
        let recorded = if check.required { "" } else { " (recorded)" };
        writeln!(
            page,
            "| {} | {}{recorded} | {} | {} | {} | {} |",
            check.number, check.name, check.does, line.requests, check.means, check.remedy
        )
        .expect("to a string");
    }
    page += TRICKS;
    for (trick, check) in TRICKSTERS.iter().chain(LASTING_FAULTS) {
        writeln!(page, "| `{trick}` | {check} |").expect("to a string");
    }
    page += SERVERS;
    page
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_says_what_the_probe_does() {
    let (path, page) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/probe.md"), page().await);
    if std::fs::read_to_string(&path).unwrap_or_default() != page {
        let written = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe.md");
        std::fs::write(&written, page).expect("the target directory can be written");
        panic!("{} is out of date: take {}", path.display(), written.display());
    }
}
