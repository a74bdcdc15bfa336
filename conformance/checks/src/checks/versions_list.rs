//! Listings of versions, the null version, and a race over a delete marker.

use super::versions::{BASE, marked, put, version, versions};
use crate::call::Call;
use crate::check::{Check, Condition, Done, Need, Stop};
use crate::expect::{expect_body, expect_list, expect_status, texts};
use crate::race::{Crew, Holds, Round, Shot, Tally, ended, judge};
use crate::trial::Trial;
use bytes::Bytes;
use http::Method;

pub(super) const ALL: &[Check] = &[LIST, LIST_PAGES, NULL, RACE];

const LIST: Check = Check {
    id: "versions.list",
    proves: "versions are listed by key and then newest first, markers too, and exactly one is the latest",
    source: "S3 API Reference: ListObjectVersions",
    broken_by: &["list-versions-oldest-first", "empty-list-404"],
    run: |t| Box::pin(list(t)),
    ..BASE
};

async fn list(t: &Trial) -> Done {
    let key = t.key("k");
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.insert(0, put(t, &key, &t.body(&format!("version {n}"), 0)).await?.1);
    }
    t.delete(&key).await?;
    let listed = versions(t, &[]).await?;
    expect_list("version ids", &ids, &texts(&listed, "Version", "VersionId"), &listed)?;
    expect_list("latest", &["false"; 3].map(str::to_owned), &texts(&listed, "Version", "IsLatest"), &listed)?;
    expect_list("markers", &["true".to_owned()], &texts(&listed, "DeleteMarker", "IsLatest"), &listed)?;
    let plain = super::list::list(t, "", &[]).await?;
    expect_list("keys", &[], &plain.keys, &plain.answer)
}

const LIST_PAGES: Check = Check {
    id: "versions.list.pages",
    proves: "pages of two by key-marker and version-id-marker give every version once",
    source: "S3 API Reference: ListObjectVersions, key-marker and version-id-marker",
    broken_by: &["ignore-version-id-marker", "list-versions-oldest-first"],
    run: |t| Box::pin(list_pages(t)),
    ..BASE
};

async fn list_pages(t: &Trial) -> Done {
    for name in ["a", "b", "b", "b", "c"] {
        put(t, &t.key(name), &t.body(name, 0)).await?;
    }
    let all = versions(t, &[]).await?;
    let ids = texts(&all, "Version", "VersionId");
    expect_list("keys", &["a", "b", "b", "b", "c"].map(|n| t.key(n)), &texts(&all, "Version", "Key"), &all)?;
    let (mut seen, mut query) = (Vec::new(), vec![("max-keys".to_owned(), "2".to_owned())]);
    loop {
        let asked: Vec<_> = query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let page = versions(t, &asked).await?;
        seen.extend(texts(&page, "Version", "VersionId"));
        if page.element("IsTruncated").as_deref() != Some("true") || seen.len() > ids.len() {
            return expect_list("version ids over all pages", &ids, &seen, &page);
        }
        let next = |name: &str| page.element(name).unwrap_or_default();
        query.truncate(1);
        query.push(("key-marker".to_owned(), next("NextKeyMarker")));
        query.push(("version-id-marker".to_owned(), next("NextVersionIdMarker")));
    }
}

const NULL: Check = Check {
    id: "versions.null",
    proves: "what was written before versioning, and while it is suspended, is version null, and is replaced by the next",
    needs: &[Need::OwnBucket],
    source: "S3 User Guide: Working with objects in a versioning-suspended bucket",
    broken_by: &["ignore-version-id", "list-versions-oldest-first"],
    run: |t| Box::pin(null(t)),
    ..BASE
};

async fn null(t: &Trial) -> Done {
    let made = t.send(t.client().create_bucket()).await?;
    if !made.succeeded() {
        return Err(Stop::Skip(format!("no bucket can be made: {}", made.status.as_u16())));
    }
    let (key, before, enabled, suspended) =
        (t.key("k"), t.body("before", 0), t.body("enabled", 0), t.body("suspended", 0));
    t.put(&key, &before).await?;
    configure(t, "Enabled").await?;
    let (_, id) = put(t, &key, &enabled).await?;
    expect_body(&t.send(version(Call::get(&key), "null")).await?, &before)?;
    configure(t, "Suspended").await?;
    let put = t.send(Call::put(&key, suspended.clone())).await?;
    expect_status(&put, &[200])?;
    expect_body(&t.send(version(Call::get(&key), "null")).await?, &suspended)?;
    expect_body(&t.send(version(Call::get(&key), &id)).await?, &enabled)?;
    t.holds(&key, &suspended).await?;
    let listed = versions(t, &[]).await?;
    let ids = ["null".to_owned(), id];
    expect_list("version ids", &ids, &texts(&listed, "Version", "VersionId"), &listed)
}

async fn configure(t: &Trial, status: &str) -> Done {
    let document = format!(
        "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Status>{status}</Status>\
         </VersioningConfiguration>"
    );
    let answer = t.send(Call::new(Method::PUT, None).query("versioning", "").body(document)).await?;
    if answer.succeeded() { Ok(()) } else { Err(Stop::unprepared("PutBucketVersioning", &answer)) }
}

const RACE: Check = Check {
    id: "race.versions.create",
    proves: "of many creators on a delete marker at once exactly one wins, and exactly one version is added",
    condition: Some(Condition::PutCreate),
    source: "S3 User Guide: conditional writes, concurrent requests",
    broken_by: &["ignore-if-none-match-put", "refuse-if-none-match-put", "race-create-put"],
    run: |t| Box::pin(race(t)),
    ..BASE
};

async fn race(t: &Trial) -> Done {
    let (mut crew, mut tally) = (Crew::default(), Tally::default());
    for round in 1..=t.race().rounds.min(10) {
        let key = t.key(&format!("r{round:03}"));
        marked(t, &key).await?;
        let bodies: Vec<Bytes> = (0..t.race().writers).map(|n| t.body(&format!("racer {n}"), 64)).collect();
        let gated = round.is_multiple_of(2);
        let shot = |body: &Bytes| Shot {
            call: Call::put(&key, body.clone()).if_none_match("*"),
            leaves: body.clone(),
            gated,
        };
        let results = crew.fire(t, &key, bodies.iter().map(shot).collect()).await?;
        let ends: Vec<_> = results.iter().map(|result| ended(result, &[409, 412])).collect();
        let seen = t.send(Call::get(&key)).await?;
        let holds = bodies.iter().position(|body| *body == seen.body).map_or(Holds::Foreign, Holds::Of);
        let round = judge(&ends, holds);
        if let Round::Bad(_, Some(class), _) = round {
            t.classify(class);
        }
        tally.add(&ends, &round, &results)?;
        let listed = versions(t, &[]).await?;
        let added = texts(&listed, "Version", "Key").iter().filter(|listed| **listed == key).count();
        if added != 2 && round == Round::Good {
            let got = format!("{added} versions");
            return Err(Stop::fail("the version below the marker, and one more", got, &listed));
        }
    }
    t.note(tally.to_string());
    tally.decided()
}
