//! An exchange as a command that a person can run.

use assay_checks::{EXCERPT_BYTES, Exchange};

/// Headers that curl makes itself when it signs and sends.
const CURLS_OWN: [&str; 6] =
    ["host", "content-length", "x-amz-date", "x-amz-content-sha256", "authorization", "x-amz-security-token"];

/// The request as a shell command for curl 7.86 or later, which signs it anew with the credentials that the variables
/// of a run name. Of a long body only the start is in the report; what follows it is the dots that the suite's own
/// long bodies are padded with.
pub fn command(exchange: &Exchange, region: &str) -> String {
    let mut parts = vec![
        "curl -sS -i --path-as-is".to_owned(),
        quoted(&format!("--aws-sigv4=aws:amz:{region}:s3")),
        "--user \"$DELTAFORGE_IT_S3_ACCESS_KEY:$DELTAFORGE_IT_S3_SECRET_KEY\"".to_owned(),
        match exchange.method.as_str() {
            "HEAD" => "--head".to_owned(),
            method => format!("-X {method}"),
        },
    ];
    let sent = exchange.headers.iter().filter(|(name, _)| !CURLS_OWN.contains(&name.as_str()));
    parts.extend(sent.map(|(name, value)| match value.is_empty() {
        true => format!("-H {}", quoted(&format!("{name};"))),
        false => format!("-H {}", quoted(&format!("{name}: {value}"))),
    }));
    let body = &exchange.body;
    let padding = body.length.saturating_sub(EXCERPT_BYTES as u64);
    if body.length > 0 && !exchange.headers.iter().any(|(name, _)| name == "content-type") {
        parts.push("-H 'content-type:'".to_owned());
    }
    let mut before = String::new();
    match (body.length, padding) {
        (0, _) if exchange.method == "PUT" || exchange.method == "POST" => {
            parts.push("-H 'content-type:' --data-raw ''".to_owned());
        }
        (0, _) => {}
        (_, 0) => parts.push(format!("--data-raw {}", quoted(&body.text))),
        (_, padding) => {
            before = format!(
                "{{ printf %s {}; head -c {padding} /dev/zero | tr '\\0' .; }} |\n  ",
                quoted(&body.text)
            );
            parts.push("--data-binary @-".to_owned());
        }
    }
    parts.push(quoted(&exchange.url));
    before + &parts.join(" \\\n  ")
}

/// A word for the shell, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_checks::Excerpt;

    fn exchange(method: &str, body: &[u8], headers: &[(&str, &str)]) -> Exchange {
        Exchange {
            method: method.into(),
            url: "http://127.0.0.1:9000/b/it's%20k?uploads=".into(),
            headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            body: Excerpt::of(body),
            answer: Err("not sent".into()),
            duration_ms: 0,
        }
    }

    #[test]
    fn a_request_as_a_command() {
        let headers = [("host", "h"), ("if-match", "\"a'b\""), ("x-amz-date", "now"), ("x-amz-meta-e", "")];
        insta::assert_snapshot!(command(&exchange("PUT", b"it's", &headers), "eu-west-1"), @r#"
        curl -sS -i --path-as-is \
          '--aws-sigv4=aws:amz:eu-west-1:s3' \
          --user "$DELTAFORGE_IT_S3_ACCESS_KEY:$DELTAFORGE_IT_S3_SECRET_KEY" \
          -X PUT \
          -H 'if-match: "a'\''b"' \
          -H 'x-amz-meta-e;' \
          -H 'content-type:' \
          --data-raw 'it'\''s' \
          'http://127.0.0.1:9000/b/it'\''s%20k?uploads='
        "#);
        assert!(command(&exchange("HEAD", b"", &[]), "r").contains(" --head "));
        assert!(!command(&exchange("GET", b"", &[]), "r").contains("--data"));
    }

    #[test]
    fn a_long_body_is_made_again() {
        let long = "start".to_owned() + &".".repeat(3000);
        let command = command(&exchange("PUT", long.as_bytes(), &[]), "r");
        let (before, after) = command.split_once(" |\n  ").expect("a pipe");
        assert!(after.contains("--data-binary @-"), "{after}");
        let made = std::process::Command::new("sh").args(["-c", before]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&made.stdout), long);
    }
}
