//! The live matrix (operations guide, "Rollout"):
//! `cargo test -p sinks --lib -- --include-ignored --test-threads=1 s3_server_it`.
//!
//! With all of `DELTAFORGE_IT_S3_{ENDPOINT,BUCKET,ACCESS_KEY,SECRET_KEY}` it runs against that provider, behind
//! the embedded server as a proxy that can misbehave; beside them may stand `_REGION`, `_SESSION_TOKEN` and
//! `_ADDRESSING` (path, virtual). With none it runs on the embedded server itself, or with `ASSAY_IT_DATA` set to a
//! directory, on its disk store there. A partial set is refused.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use assay_server::blocking;
use assay_server::{Server, Upstream};

use crate::env::Clock;
use crate::matrix::{self, Deviant, Ending, Rig, WriterCommand, provider};
use crate::store::Addressing;

/// Says to a copy of this program that it is a writer.
const WRITER: &str = "ASSAY_IT_WRITER";

/// Longest time for one scenario.
const LIMIT: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the live matrix is the harness, which owns the clock")]
    fn now_ms(&self) -> u64 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The server that all scenarios of this process share, and the bucket behind it.
struct Live {
    server: blocking::Server,
    bucket: String,
    own_store: bool,
}

static LIVE: LazyLock<Result<Live, String>> = LazyLock::new(|| {
    let builder = Server::builder();
    let (builder, bucket, own_store) = match provider::from_environment(|name| std::env::var(name).ok())? {
        None => {
            let builder = builder.bucket("deltaforge-it");
            let builder = match std::env::var_os("ASSAY_IT_DATA") {
                Some(directory) => builder.data(directory),
                None => builder,
            };
            (builder, "deltaforge-it".to_owned(), true)
        }
        Some(provider) => {
            let upstream = Upstream::new(provider.endpoint, provider.access_key, provider.secret_key)
                .region(provider.region)
                .addressing(match provider.addressing {
                    Addressing::Path => assay_server::Addressing::Path,
                    Addressing::Virtual => assay_server::Addressing::Virtual,
                });
            let upstream = match provider.session_token {
                Some(token) => upstream.session_token(token),
                None => upstream,
            };
            (builder.upstream(upstream), provider.bucket, false)
        }
    };
    let server = blocking::start(builder).map_err(|error| error.to_string())?;
    Ok(Live { server, bucket, own_store })
});

fn rig() -> Rig {
    let live = LIVE.as_ref().unwrap_or_else(|why| panic!("{why}"));
    let seed = SystemClock.now_ms() ^ (u64::from(std::process::id()) << 40);
    Rig {
        endpoint: live.server.endpoint().to_owned(),
        bucket: live.bucket.clone(),
        prefix: format!("assay-it/{seed:016x}"),
        region: live.server.region().to_owned(),
        access_key: live.server.access_key().to_owned(),
        secret_key: live.server.secret_key().to_owned(),
        own_store: live.own_store,
        deviant: Arc::new(|deviation| Box::pin(deviant(deviation.to_owned()))),
        writer: WriterCommand {
            program: std::env::current_exe().expect("this program's path"),
            arguments: ["--exact", "s3_server_it::writer", "--include-ignored", "--nocapture"]
                .map(str::to_owned)
                .to_vec(),
            environment: vec![(WRITER.to_owned(), "1".to_owned())],
        },
        seed,
        clock: Arc::new(SystemClock),
    }
}

async fn deviant(deviation: String) -> Result<Deviant, String> {
    let builder = Server::builder().bucket("deviant");
    let builder = match deviation.as_str() {
        "" => builder,
        name => builder.deviation(name.parse().map_err(|error| format!("{name}: {error}"))?),
    };
    let server = builder.start().await.map_err(|error| error.to_string())?;
    Ok(Deviant {
        endpoint: server.endpoint().to_owned(),
        bucket: "deviant".to_owned(),
        region: server.region().to_owned(),
        access_key: server.access_key().to_owned(),
        secret_key: server.secret_key().to_owned(),
        guard: Box::new(server),
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[track_caller]
fn run(name: &str) {
    let scenario =
        matrix::scenarios().find(|scenario| scenario.name == name).expect("a scenario of that name");
    let rig = rig();
    match runtime().block_on(scenario.run(&rig, LIMIT)) {
        Ending::Pass => {}
        Ending::OutOfTime => {
            panic!("{} {name}: not done within {LIMIT:?} (seed {:#x})", scenario.id, rig.seed)
        }
        Ending::Fail(failure) => {
            panic!("{} {}: {failure} (seed {:#x})", scenario.id, scenario.proves, rig.seed)
        }
        Ending::Skip(need) => println!("{} {name}: skipped, it needs {need}", scenario.id),
    }
}

macro_rules! live {
    ($($name:ident)*) => {
        $(
            #[test]
            #[ignore = "live: run by the command of the operations guide"]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn every_scenario_has_its_test() {
            let tests = [$(stringify!($name)),*];
            let scenarios: Vec<_> = matrix::scenarios().map(|scenario| scenario.name).collect();
            assert_eq!(scenarios, tests);
        }
    };
}

live! {
    a_sound_store_passes_the_probe
    a_probe_leaves_nothing_on_any_way_out
    a_probe_comes_before_head
    two_probes_at_once_do_not_disturb_each_other
    silence_is_inconclusive_and_refuses
    conditions_ignored_are_refused
    conditions_ignored_on_absent_keys_are_refused
    conditions_ignored_on_existing_keys_are_refused
    creates_ignored_are_refused
    swaps_ignored_are_refused
    conditions_ignored_by_size_are_refused
    conditions_ignored_at_first_are_refused
    conditions_refused_are_refused
    creates_that_race_are_refused
    swaps_that_race_are_refused
    refusals_that_apply_are_refused
    answers_that_do_not_apply_are_refused
    weak_etags_are_refused
    changing_etags_are_refused
    stale_reads_are_refused
    lists_without_the_newest_key_are_refused
    keys_that_do_not_fit_are_refused
    an_empty_bucket_becomes_a_stream
    a_restart_finds_what_was_acknowledged
    another_spelling_of_a_position_is_the_same_batch
    names_that_do_not_fit_are_refused
    a_position_that_is_not_ahead_stops_the_sink
    batches_that_wait_share_one_swap
    a_lost_answer_to_a_data_write_adds_nothing
    a_lost_answer_to_an_entry_adds_nothing
    a_lost_answer_to_a_swap_is_found_in_head
    an_applied_swap_answered_500_is_found_in_head
    a_swap_that_lands_late_commits_once
    a_conflict_on_data_is_asked_again
    a_conflict_on_an_entry_is_asked_again
    a_conflict_on_a_swap_is_asked_again
    a_throttled_swap_is_asked_again
    an_unanswered_swap_is_resolved_before_anything_else
    an_outage_is_waited_out
    a_kill_before_any_data_write
    a_kill_among_data_writes
    a_kill_before_the_entry
    a_kill_after_the_entry
    a_kill_before_the_swap
    a_kill_after_the_swap
    a_kill_after_the_acknowledgement
    a_frozen_writer_wakes_up_fenced
    hints_found_committed_are_folded
    an_object_under_another_position_is_never_accepted
    other_bytes_at_a_content_hash_stop_the_sink
    a_missing_object_blocks_acquisition
    a_deleted_head_is_never_recreated
    a_corrupted_head_is_refused
    fields_of_a_newer_minor_version_survive
    both_key_layouts_are_readable
    an_idle_writer_is_fenced_by_the_next
    writes_in_flight_of_a_fenced_writer_are_orphans
    a_swap_delayed_across_a_takeover_is_refused
    three_writers_race_for_one_stream
    a_lost_answer_to_an_acquisition_acquires_once
    a_fenced_writer_stays_fenced
    a_lost_update_is_an_alarm
    wm2_keys_fit_a_store_of_files_and_legacy_keys_do_not
    expired_entries_come_from_inventories
    both_rollups_and_the_tail_are_verified
    a_missing_entry_above_the_floor_blocks_acquisition
    a_corrupted_rollup_is_recoverable_by_an_operator_only
    a_rollup_that_is_not_published_is_an_orphan
    a_quiet_stream_rolls_up_once
    recovery_reads_inventories_and_the_tail
    readers_see_the_same_rows_after_compaction
    an_output_that_changed_gets_no_record
    a_compaction_that_dies_leaves_its_inputs
    both_key_layouts_are_compacted_together
    what_was_compacted_is_compacted_again
    a_compaction_across_a_takeover_publishes_nothing
    rows_in_another_order_are_never_taken_for_the_same
    originals_go_only_for_what_replaced_them
    nothing_is_marked_before_the_window_on_both_clocks
    marks_end_at_the_horizon
    the_floor_is_published_before_the_first_delete
    an_expiry_that_dies_is_finished_by_the_next
    a_takeover_between_deletes_stops_them
    deletes_of_a_zombie_change_nothing_that_is_needed
    clocks_too_far_apart_stop_marking_and_expiring
    older_rollups_inventories_and_marks_stay
    orphans_are_deleted_once_they_are_old
    what_is_committed_after_the_listing_is_kept
    an_adopted_orphan_is_never_deleted
    a_frozen_reconciler_wakes_up_without_its_lease
    a_delete_on_its_way_is_waited_out
    a_listing_in_doubt_stops_reconciliation
    a_closure_that_can_not_be_read_stops_reconciliation
    long_keys_with_escapes_are_compared_as_they_are
    what_is_not_known_below_the_manifest_is_kept
    other_prefixes_and_legacy_files_are_not_touched
    an_implausible_plan_needs_a_person
    multipart_uploads_are_left_alone
    objects_of_earlier_releases_are_judged_by_what_reaches_them
    a_whole_life_ends_with_every_row
    random_faults_change_nothing_that_is_committed
    a_rollback_and_its_return_leave_a_visible_gap
}

/// Show it with `--nocapture`: the log line of each of twenty-four folds, and of the scan after it.
#[test]
#[ignore = "live: run by the command of the operations guide"]
fn two_dozen_hints_found_committed_are_folded() {
    let folds = runtime().block_on(matrix::folds(&rig(), 24)).unwrap_or_else(|failure| panic!("{failure}"));
    for (round, fold) in (1..).zip(&folds) {
        println!("fold {round}\n  {}\n  {}", fold.step, fold.scan);
    }
    assert_eq!(folds.len(), 24);
}

/// A copy of this program that scenarios start; by itself it shows that an order is needed.
#[test]
#[ignore = "live: started by scenarios"]
fn writer() {
    let text = match std::env::var_os(WRITER) {
        Some(_) => std::io::read_to_string(std::io::stdin()).expect("an order on standard input"),
        None => String::new(),
    };
    let code = runtime().block_on(matrix::writer::run(&text, Arc::new(SystemClock)));
    if std::env::var_os(WRITER).is_some() {
        std::process::exit(code.into());
    }
    assert_eq!(code, 2);
}
