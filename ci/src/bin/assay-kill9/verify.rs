//! What the restarted server holds, against what the writers know.

use crate::writer::{End, Upload, Writer};
use assay_checks::{Answer, Call, Client, xml};
use http::{Method, StatusCode};
use std::collections::BTreeMap;

/// Reads every key of a writer, its listing and its open upload, and finishes that upload.
///
/// # Errors
/// The server did not answer: nothing is proven then.
pub async fn verify(writer: &mut Writer, client: &Client) -> Result<Vec<String>, String> {
    let mut findings = Vec::new();
    let keys: Vec<String> = writer.model.keys().map(str::to_owned).collect();
    let mut etags = BTreeMap::new();
    for key in &keys {
        let answer = ask(client, Call::get(key)).await?;
        let found = match answer.status {
            StatusCode::OK => Some(&answer.body),
            StatusCode::NOT_FOUND => None,
            status => {
                findings.push(format!("{key}: GET answers {status}"));
                continue;
            }
        };
        if found.is_some() {
            etags.insert(key.clone(), (answer.body.len(), answer.etag().to_owned()));
        }
        findings.extend(writer.model.judge(key, found).err());
    }
    let listed = list(client, &format!("{}/", writer.name)).await?;
    if listed != etags {
        findings.push(format!("{}: the listing has {listed:?}, GET finds {etags:?}", writer.name));
    }
    if let Some(upload) = writer.upload.clone() {
        findings.extend(parts_missing(client, &upload).await?);
        if let Err(End::Wrong(why)) = writer.finish_upload(client).await {
            findings.push(why);
        }
        writer.upload = None;
    }
    Ok(findings)
}

async fn ask(client: &Client, call: Call) -> Result<Answer, String> {
    client.send(call).await.map_err(|lost| format!("the restarted server does not answer: {lost}"))
}

/// Size and ETag of every key below the prefix, page by page.
async fn list(client: &Client, prefix: &str) -> Result<BTreeMap<String, (usize, String)>, String> {
    let mut listed = BTreeMap::new();
    let mut token: Option<String> = None;
    loop {
        let mut call = Call::new(Method::GET, None)
            .query("list-type", "2")
            .query("prefix", prefix)
            .query("max-keys", "10");
        if let Some(token) = &token {
            call = call.query("continuation-token", token);
        }
        let answer = ask(client, call).await?;
        for entry in xml::elements(&String::from_utf8_lossy(&answer.body), "Contents") {
            let field = |name| xml::element(&entry, name).unwrap_or_default();
            listed.insert(field("Key"), (field("Size").parse().unwrap_or_default(), field("ETag")));
        }
        token = answer.element("NextContinuationToken");
        if token.is_none() {
            return Ok(listed);
        }
    }
}

/// Acknowledged parts that ListParts does not show with their size and ETag.
async fn parts_missing(client: &Client, upload: &Upload) -> Result<Vec<String>, String> {
    let answer = ask(client, Call::new(Method::GET, Some(&upload.key)).query("uploadId", &upload.id)).await?;
    let parts = xml::elements(&String::from_utf8_lossy(&answer.body), "Part");
    let shown = |number: usize, length: usize, etag: &str| {
        parts.iter().any(|part| {
            let field = |name| xml::element(part, name).unwrap_or_default();
            field("PartNumber") == number.to_string()
                && field("Size") == length.to_string()
                && field("ETag") == etag
        })
    };
    let acknowledged = upload.etags.iter().zip(upload.lengths()).enumerate();
    let missing = acknowledged.filter(|(index, (etag, length))| !shown(index + 1, *length, etag));
    Ok(missing
        .map(|(index, _)| {
            format!(
                "{}: part {} of upload {} is lost: {}",
                upload.key,
                index + 1,
                upload.id,
                answer.exchange.line()
            )
        })
        .collect())
}
