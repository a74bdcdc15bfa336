//! Replays what is known of AWS, row by row, on both stores.

mod client;

use assay_fixtures::{Case, Request, Step, Values};

use client::{Answer, On, Rig, path_of, send, xml};

/// Replays a case; `Err` says at which line of its file what was expected and what came.
async fn replay(rig: &Rig, case: &Case, bucket: &str) -> Result<(), String> {
    rig.engine.create_bucket(bucket).await.map_err(|error| error.to_string())?;
    let mut values = Values::new(bucket);
    for step in &case.steps {
        match step {
            Step::Wait(seconds) => rig.clock.pass_s(*seconds),
            Step::Request(request) => step_of(rig, &mut values, bucket, request).await.map_err(|fault| {
                format!("line {}: {} {}: {fault}", request.line, request.method, request.target)
            })?,
        }
    }
    Ok(())
}

async fn step_of(rig: &Rig, values: &mut Values, bucket: &str, request: &Request) -> Result<(), String> {
    let now = rig.clock.epoch_s();
    let fill = |text: &str| values.fill(text, now);
    let path = path_of(bucket, &fill(&request.target)?);
    let headers: Vec<(String, String)> =
        request.headers.iter().map(|(n, v)| Ok((n.clone(), fill(v)?))).collect::<Result<_, String>>()?;
    let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let body = fill(request.body.as_deref().unwrap_or_default())?;
    let answer = send(&rig.engine, &request.method, &path, &headers, body).await;
    check(&answer, values, now, request)
}

fn check(answer: &Answer, values: &mut Values, now: u64, request: &Request) -> Result<(), String> {
    let expected = &request.answer;
    let got = || format!("got {} {:.2000}", answer.status, answer.text());
    if answer.status != expected.status {
        return Err(format!("expected status {}, {}", expected.status, got()));
    }
    let bodiless = request.method == "HEAD" || answer.status == 304;
    if bodiless && !answer.body.is_empty() {
        return Err(format!("expected no body, {}", got()));
    }
    if let Some(code) = &expected.code {
        check_error(answer, code).map_err(|fault| format!("{fault}, {}", got()))?;
    }
    if let Some(body) = &expected.body {
        let body = values.fill(body, now)?;
        if answer.body != body.as_bytes() {
            return Err(format!("expected the body {body:.200?}, {}", got()));
        }
    }
    for (name, value) in &expected.facts {
        let capital = name.contains(|letter: char| letter.is_ascii_uppercase());
        let found = if capital {
            let found = answer.all(name);
            (!found.is_empty()).then(|| found.join("|"))
        } else {
            answer.header(name)
        };
        if let (Some(name), Some(found)) = (value.strip_prefix('?'), &found) {
            values.set(name, found);
            continue;
        }
        let wanted = if value == "-" { None } else { Some(values.fill(value, now)?) };
        if found != wanted || value.starts_with('?') {
            return Err(format!("expected {name} {wanted:?}, got {found:?}; {}", got()));
        }
    }
    Ok(())
}

/// What every error document has.
fn check_error(answer: &Answer, code: &str) -> Result<(), String> {
    let root = xml::parse(&answer.text()).ok_or("expected a document")?;
    if root.name != "Error" || root.attributes.contains("xmlns") {
        return Err("expected the root <Error> without a namespace".to_owned());
    }
    if answer.header("content-type").as_deref() != Some("application/xml") {
        return Err("expected content-type application/xml".to_owned());
    }
    if answer.code() != code {
        return Err(format!("expected the code {code}"));
    }
    for element in ["Message", "RequestId", "HostId"] {
        if answer.all(element).concat().is_empty() {
            return Err(format!("expected <{element}>"));
        }
    }
    Ok(())
}

async fn replay_group(name: &str, on: On) {
    let rig = Rig::new(on).await;
    let cases = assay_fixtures::group(name).unwrap().cases();
    let mut failed = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        if let Err(fault) = replay(&rig, case, &format!("{name}-{number}")).await {
            failed.push(format!(
                "[{}] {}\n  {}.txt {fault}\n  source: {}",
                case.id, case.says, name, case.source
            ));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} cases failed on {on:?}:\n{}",
        failed.len(),
        cases.len(),
        failed.join("\n")
    );
}

macro_rules! for_each_group {
    ($($group:ident),+ $(,)?) => {
        $(mod $group {
            #[tokio::test]
            async fn in_memory() {
                super::replay_group(stringify!($group), super::On::Memory).await;
            }

            #[tokio::test]
            async fn on_disk() {
                super::replay_group(stringify!($group), super::On::Disk).await;
            }
        })+

        #[test]
        fn no_group_is_left_out() {
            let mut replayed = vec![$(stringify!($group)),+];
            let mut known: Vec<_> =
                assay_fixtures::S3.iter().chain([&assay_fixtures::CHOICES]).map(|group| group.name).collect();
            replayed.sort_unstable();
            known.sort_unstable();
            assert_eq!(replayed, known);
        }
    };
}

for_each_group![
    put, copy, complete, delete, get, range, retry, keys, multipart, checksum, listing, versions, object,
    lifecycle, reports, choices,
];

/// A replay that takes whatever comes would prove nothing.
#[tokio::test]
async fn a_wrong_expectation_is_found() {
    let rig = Rig::new(On::Memory).await;
    for (number, (text, fault)) in [
        ("GET k\n= 200", "expected status 200"),
        ("GET k\n= 404 NoSuchBucket", "expected the code NoSuchBucket"),
        ("GET k\n= 404 NoSuchKey\n  Key: other", "expected Key Some(\"other\")"),
        ("GET k\n= 404 NoSuchKey\n  Key: -", "expected Key None"),
        ("PUT k < a\n= 200\n  x-none: ?v", "expected x-none"),
        ("PUT k < a\n= 200\nGET k\n= 200 > b", "expected the body \"b\""),
        ("PUT k < a\n= 200\n  etag: \"x\"", "expected etag"),
    ]
    .into_iter()
    .enumerate()
    {
        let cases = assay_fixtures::parse(&format!("[a] b\n{text}\n")).unwrap();
        let found = replay(&rig, &cases[0], &format!("wrong-{number}")).await.unwrap_err();
        assert!(found.contains(fault), "{found}");
    }
}
