//! One body of tests for every backend.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::store::Flush;
use crate::store::disk::Disk;
use crate::store::memory::Memory;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// An index to test, with the directory it may live in.
struct Subject {
    index: Arc<dyn Index>,
    reopen: fn(Arc<dyn Index>, &Path) -> Arc<dyn Index>,
    dir: TempDir,
}

impl Deref for Subject {
    type Target = dyn Index;

    fn deref(&self) -> &Self::Target {
        &*self.index
    }
}

fn memory() -> Subject {
    // What is in memory has nothing to come back from.
    Subject { index: Arc::new(Memory::new()), reopen: |index, _| index, dir: TempDir::new().unwrap() }
}

fn disk() -> Subject {
    let dir = TempDir::new().unwrap();
    Subject {
        index: Arc::new(Disk::open(dir.path(), Flush::BeforeAnswer).unwrap()),
        reopen: reopen_disk,
        dir,
    }
}

fn reopen_disk(index: Arc<dyn Index>, dir: &Path) -> Arc<dyn Index> {
    assert_eq!(Arc::strong_count(&index), 1, "nobody else may hold the index while it is opened again");
    drop(index);
    Arc::new(Disk::open(dir, Flush::BeforeAnswer).unwrap())
}

impl Subject {
    fn reopened(self) -> Self {
        Self { index: (self.reopen)(self.index, self.dir.path()), ..self }
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn put(index: &dyn Index, rows: &[(&[u8], &[u8])]) {
    let rows: Vec<_> =
        rows.iter().map(|(key, value)| (key.to_vec(), Bytes::copy_from_slice(value))).collect();
    wait(index.apply(move |stored| rows.into_iter().try_for_each(|(key, value)| stored.put(&key, value))))
        .unwrap();
}

/// Every row from `key` on, step by step as a listing takes them.
fn rows_from(rows: &dyn Rows, key: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut next = key.to_vec();
    while let Some((key, value)) = rows.seek(&next).unwrap() {
        assert!(*key >= *next, "seek went back from {next:?} to {key:?}");
        next = [&key, &[0][..]].concat();
        found.push((key.to_vec(), value.to_vec()));
    }
    found
}

fn all(index: &dyn Index) -> Model {
    rows_from(&*index.snapshot().unwrap(), b"").into_iter().collect()
}

fn rows_come_in_the_order_of_their_bytes(subject: Subject) {
    let keys: [&[u8]; 10] =
        [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"a\0\0", b"a/", b"\xff", b"\xff\xff\xff"];
    let mut shuffled: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (*key, *key)).collect();
    shuffled.reverse();
    shuffled.swap(2, 7);
    put(&*subject, &shuffled);

    let snapshot = subject.snapshot().unwrap();
    let found = rows_from(&*snapshot, b"");
    assert_eq!(found, keys.map(|key| (key.to_vec(), key.to_vec())));
    for key in keys {
        assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(key));
        assert_eq!(snapshot.seek(key).unwrap().unwrap().0, key);
    }
    assert_eq!(snapshot.seek(b"a0").unwrap().unwrap().0, &b"\xff"[..]);
    assert_eq!(snapshot.seek(b"\xff\xff\xff\0").unwrap(), None);
    assert_eq!(snapshot.get(b"b").unwrap(), None);
}

fn a_job_sees_its_own_changes_and_removes_rows(subject: Subject) {
    put(&*subject, &[(b"a", b"1"), (b"b", b"2")]);
    let seen = wait(subject.apply(|rows| {
        rows.remove(b"a")?;
        rows.remove(b"never there")?;
        rows.put(b"b", Bytes::from_static(b"3"))?;
        Ok((rows.get(b"a")?, rows.seek(b"a")?))
    }));
    let row_b = (Bytes::from_static(b"b"), Bytes::from_static(b"3"));
    assert_eq!(seen.unwrap(), (None, Some(row_b)));
    assert_eq!(all(&*subject), Model::from([(b"b".to_vec(), b"3".to_vec())]));
}

fn a_snapshot_stays_as_it_was(subject: Subject) {
    put(&*subject, &[(b"a", b"1"), (b"b", b"1")]);
    let before = subject.snapshot().unwrap();
    put(&*subject, &[(b"a", b"2"), (b"c", b"2")]);
    wait(subject.apply(|rows| rows.remove(b"b"))).unwrap();

    assert_eq!(before.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(rows_from(&*before, b""), [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"1".to_vec())]);
    let after = Model::from([(b"a".to_vec(), b"2".to_vec()), (b"c".to_vec(), b"2".to_vec())]);
    assert_eq!(all(&*subject), after);
}

fn a_failed_job_changes_nothing(subject: Subject) {
    put(&*subject, &[(b"a", b"1"), (b"b", b"1")]);
    let before = all(&*subject);
    let spoil = |rows: &mut dyn RowsMut| {
        rows.put(b"a", Bytes::from_static(b"2"))?;
        rows.put(b"a", Bytes::from_static(b"3"))?;
        rows.remove(b"b")?;
        rows.put(b"c", Bytes::from_static(b"2"))
    };
    let error = wait(subject.apply(move |rows| {
        spoil(rows)?;
        Err::<(), _>(IndexError::Damaged { row: Bytes::from_static(b"a"), cause: "as the test wants".into() })
    }));
    assert_eq!(error.unwrap_err().to_string(), r#"row b"a" is damaged: as the test wants"#);
    assert_eq!(all(&*subject), before);

    let error = wait(subject.write(Box::new(move |rows| {
        spoil(rows)?;
        panic!("as the test wants")
    })));
    let words = "index unavailable while running a write: it panicked: as the test wants";
    assert_eq!(error.unwrap_err().to_string(), words);
    assert_eq!(all(&*subject), before);

    put(&*subject, &[(b"d", b"1")]);
    assert_eq!(all(&*subject).len(), 3, "the index goes on after a panic");
}

fn rows_of_one_write_appear_together(subject: Subject) {
    put(&*subject, &[(b"left", b"0"), (b"right", b"0")]);
    let index = &*subject;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..=100 {
                let value = round.to_string();
                put(index, &[(b"left", value.as_bytes()), (b"right", value.as_bytes())]);
            }
        });
        while !writer.is_finished() {
            let snapshot = index.snapshot().unwrap();
            assert_eq!(snapshot.get(b"left").unwrap(), snapshot.get(b"right").unwrap());
        }
    });
    assert_eq!(all(index)[&b"left"[..]], b"100");
}

fn writers_run_one_after_the_other(subject: Subject) {
    const TASKS: usize = 16;
    const ROUNDS: usize = 25;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let index = Arc::clone(&subject.index);
        tasks.spawn_on(
            async move {
                let mut seen = Vec::new();
                for _ in 0..ROUNDS {
                    let count = index.apply(|rows| {
                        let count = rows
                            .get(b"count")?
                            .map_or(0, |count| count[0] as usize * 256 + count[1] as usize);
                        let next = count + 1;
                        rows.put(b"count", Bytes::from(vec![(next / 256) as u8, (next % 256) as u8]))?;
                        Ok(count)
                    });
                    seen.push(count.await.unwrap());
                }
                seen
            },
            runtime.handle(),
        );
    }
    let mut seen = runtime.block_on(tasks.join_all()).concat();
    seen.sort_unstable();
    assert_eq!(seen, Vec::from_iter(0..TASKS * ROUNDS), "each writer saw its predecessor's count");
}

fn a_write_runs_though_nobody_waits(subject: Subject) {
    drop(subject.write(Box::new(|rows| rows.put(b"a", Bytes::from_static(b"1")))));
    let subject = subject.reopened();
    assert_eq!(all(&*subject), Model::from([(b"a".to_vec(), b"1".to_vec())]));
}

/// A step of the model test.
#[derive(Debug, Clone)]
enum Step {
    /// These changes in one write, which fails at its end if told so.
    Write {
        changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        fails: bool,
    },
    Seek(Vec<u8>),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few different bytes, so that keys meet, nest and end in the extreme ones.
    let key = || vec(prop_oneof![Just(0), Just(b'a'), Just(0xff)], 0..4);
    let changes = vec((key(), proptest::option::weighted(0.7, vec(any::<u8>(), 0..600))), 0..6);
    vec(
        prop_oneof![
            6 => (changes, proptest::bool::weighted(0.2)).prop_map(|(changes, fails)| Step::Write { changes, fails }),
            4 => key().prop_map(Step::Seek),
            1 => Just(Step::Reopen),
        ],
        0..12,
    )
}

fn agrees_with_a_model(mut subject: Subject, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Write { changes, fails } => {
                if !fails {
                    for (key, value) in changes.clone() {
                        match value {
                            Some(value) => model.insert(key, value),
                            None => model.remove(&key),
                        };
                    }
                }
                let result = wait(subject.apply(move |rows| {
                    for (key, value) in changes {
                        match value {
                            Some(value) => rows.put(&key, value.into())?,
                            None => rows.remove(&key)?,
                        }
                    }
                    if fails { Err(IndexError::unavailable("testing", "told to fail")) } else { Ok(()) }
                }));
                prop_assert_eq!(result.is_err(), fails);
            }
            Step::Seek(key) => {
                let snapshot = subject.snapshot().unwrap();
                let found = snapshot.seek(&key).unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
                let expected =
                    model.range(key.clone()..).next().map(|(key, value)| (key.clone(), value.clone()));
                prop_assert_eq!(found, expected);
                prop_assert_eq!(snapshot.get(&key).unwrap().map(Vec::from), model.get(&key).cloned());
            }
            Step::Reopen => subject = subject.reopened(),
        }
        prop_assert_eq!(&all(&*subject), &model);
    }
    Ok(())
}

/// The tests above, for the backend that each module is named after.
macro_rules! for_each_backend {
    ($($test:ident),+ $(,)?) => {
        mod in_memory { $(#[test] fn $test() { super::$test(super::memory()) })+ }
        mod on_disk { $(#[test] fn $test() { super::$test(super::disk()) })+ }
    };
}

for_each_backend![
    rows_come_in_the_order_of_their_bytes,
    a_job_sees_its_own_changes_and_removes_rows,
    a_snapshot_stays_as_it_was,
    a_failed_job_changes_nothing,
    rows_of_one_write_appear_together,
    writers_run_one_after_the_other,
    a_write_runs_though_nobody_waits,
];

proptest! {
    #[test]
    fn memory_agrees_with_a_model(steps in steps()) {
        agrees_with_a_model(memory(), steps)?;
    }
}

proptest! {
    // Each case makes a file and flushes it a few times.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn disk_agrees_with_a_model(steps in steps()) {
        agrees_with_a_model(disk(), steps)?;
    }
}
