//! Versions against a model: any order of writes, deletes, deletes of versions and changes of the bucket's state.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::client::{On, Rig, xml};
use crate::{ENABLE, SUSPEND, block_on};

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(usize),
    Delete(usize),
    /// The key and which of its versions, counted from the newest; beyond the last there is none.
    DeleteVersion(usize, usize),
    Enable,
    Suspend,
}

const KEYS: [&str; 2] = ["a", "a/b"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..KEYS.len();
    vec(
        prop_oneof![
            4 => key.clone().prop_map(Step::Put),
            2 => key.clone().prop_map(Step::Delete),
            3 => (key, 0_usize..4).prop_map(|(key, version)| Step::DeleteVersion(key, version)),
            1 => Just(Step::Enable),
            1 => Just(Step::Suspend),
        ],
        1..24,
    )
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Off,
    Enabled,
    Suspended,
}

/// Of each key its versions, newest first: id and bytes, or nothing for a delete marker.
type Model = BTreeMap<&'static str, Vec<(String, Option<String>)>>;

async fn agrees_with_a_model(on: On, steps: &[Step]) {
    let rig = Rig::new(on).await;
    let mut model: Model = KEYS.iter().map(|key| (*key, Vec::new())).collect();
    let mut state = State::Off;
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Enable | Step::Suspend => {
                let (next, document) = if matches!(step, Step::Enable) {
                    (State::Enabled, ENABLE)
                } else {
                    (State::Suspended, SUSPEND)
                };
                rig.send("PUT", "?versioning", &[], document).await.expect(200);
                state = next;
            }
            Step::Put(key) => {
                let body = format!("body {number}");
                let answer = rig.put(KEYS[key], body.clone()).await.expect(200);
                let versions = model.get_mut(KEYS[key]).unwrap();
                let id = answer.header("x-amz-version-id");
                assert_eq!(id.is_some(), state == State::Enabled, "{id:?} under {state:?}");
                versions.retain(|(old, _)| id.is_some() || old != "null");
                versions.insert(0, (id.unwrap_or_else(|| "null".to_owned()), Some(body)));
            }
            Step::Delete(key) => {
                let answer = rig.call("DELETE", KEYS[key]).await.expect(204);
                let versions = model.get_mut(KEYS[key]).unwrap();
                if state != State::Enabled {
                    versions.retain(|(old, _)| old != "null");
                }
                if state != State::Off {
                    assert_eq!(answer.header("x-amz-delete-marker").as_deref(), Some("true"));
                    versions.insert(0, (answer.header("x-amz-version-id").unwrap(), None));
                }
            }
            Step::DeleteVersion(key, version) => {
                let versions = model.get_mut(KEYS[key]).unwrap();
                if version < versions.len() {
                    let (id, body) = versions.remove(version);
                    let answer =
                        rig.call("DELETE", &format!("{}?versionId={id}", KEYS[key])).await.expect(204);
                    let marker = answer.header("x-amz-delete-marker").is_some();
                    assert_eq!(marker, body.is_none(), "delete of {id}");
                }
            }
        }
        check(&rig, &model, &format!("after step {number} of {steps:?}")).await;
    }
}

async fn check(rig: &Rig, model: &Model, when: &str) {
    let mut listed = Vec::new();
    let mut current = Vec::new();
    for (key, versions) in model {
        let newest = versions.first().and_then(|(_, body)| body.clone());
        let answer = rig.call("GET", key).await;
        match &newest {
            Some(body) => assert_eq!((answer.status, answer.text()), (200, body.clone()), "{key} {when}"),
            None => assert_eq!(answer.status, 404, "{key} {when}"),
        }
        current.extend(newest.map(|_| (*key).to_owned()));
        for (number, (id, body)) in versions.iter().enumerate() {
            listed.push(format!("{key} {id} {} {}", body.is_some(), number == 0));
            let answer = rig.call("GET", &format!("{key}?versionId={id}")).await;
            match body {
                Some(body) => assert_eq!((answer.status, &answer.text()), (200, body), "{key} {id} {when}"),
                None => assert_eq!(answer.status, 405, "{key} {id} {when}"),
            }
        }
    }
    let answer = rig.call("GET", "?versions").await.expect(200);
    let root = xml::parse(&answer.text()).unwrap();
    let found: Vec<String> = root
        .children
        .iter()
        .filter(|child| matches!(child.name.as_str(), "Version" | "DeleteMarker"))
        .map(|child| {
            let text = |name| child.texts(name).concat();
            format!("{} {} {} {}", text("Key"), text("VersionId"), child.name == "Version", text("IsLatest"))
        })
        .collect();
    assert_eq!(found, listed, "versions {when}");
    assert_eq!(rig.call("GET", "?list-type=2").await.all("Contents/Key"), current, "objects {when}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn in_memory(steps in steps()) {
        block_on(agrees_with_a_model(On::Memory, &steps));
    }
}

proptest! {
    // Each case makes a directory and flushes every write.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn on_disk(steps in steps()) {
        block_on(agrees_with_a_model(On::Disk, &steps));
    }
}
