//! Rolling up while batches are published: recovery finds the same stream, from fewer requests.

use std::sync::Arc;

use sinks::env::Env;
use sinks::plan::rollup::Policy;
use sinks::run::recover::Content;
use sinks::run::rollup;
use sinks::sink::Sink;

use crate::world::{World, batch, paused, position, settings};

const EACH: Policy = Policy { every_entries: 1, every_ms: 600_000 };

async fn publish(sink: &Sink, numbers: impl IntoIterator<Item = u64>) {
    for n in numbers {
        let ack = sink.submit(batch(n)).await.unwrap().acknowledged().await.unwrap();
        assert_eq!(ack.seq, n);
    }
}

async fn started(world: &Arc<World>) -> (Sink, Env) {
    let env = world.env(world.store.clone());
    (Sink::start_on(env.clone(), settings(), world.checkpoints.clone()).await.unwrap(), env)
}

#[test]
fn a_stream_is_the_same_from_its_rollups() {
    let world = World::new();
    paused(async {
        let (sink, _) = started(&world).await;
        let keeper = sink.keeper();
        for n in 1..=40 {
            publish(&sink, [n]).await;
            let report = rollup::run(&keeper, &EACH).await.unwrap();
            assert_eq!(
                report.plan.map(|plan| (plan.generation, plan.from_seq, plan.to_seq)),
                Some((n, n, n))
            );
            // A second run finds nothing to do.
            assert_eq!(rollup::run(&keeper, &EACH).await.unwrap().plan, None);
        }
        publish(&sink, [41]).await;
        sink.close().await.unwrap();
    });
    assert_eq!(world.check("rolled up 40 times"), 41);
    let recovered = world.recovered().unwrap();
    let inventories =
        recovered.rollup.as_ref().map(|rollup| (rollup.inventories.len(), rollup.totals.objects));
    // Two of 16 entries, and the rest one by one.
    assert_eq!(inventories, Some((10, 80)));
    let from = |seq: usize| matches!(recovered.entries[seq - 1].content, Content::Inventory(_));
    assert_eq!([from(1), from(40), from(41)], [true, true, false]);
    assert_eq!(recovered.position, Some(position(41)));
    let live: Vec<_> =
        recovered.live().into_iter().map(|object| (object.table, object.seq_from, object.format)).collect();
    let of =
        |table: &str| (1..=41).map(|seq| (table.to_owned(), seq, "jsonl".to_owned())).collect::<Vec<_>>();
    assert_eq!(live, [of("public.items"), of("public.orders")].concat());
    world.check_end_at(41, "after rollups");
}
