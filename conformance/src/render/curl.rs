//! An exchange as a command that a person can run.

use crate::report::Entry;
use assay_checks::{EXCERPT_BYTES, Exchange};

/// Headers that curl makes itself when it signs and sends.
const CURLS_OWN: [&str; 5] =
    ["host", "content-length", "x-amz-date", "authorization", "x-amz-security-token"];

/// What shows the end of a check again: all its requests in order, where the report has them, else the deciding one.
/// `None` where there is neither. An upload id in it is the one that was given then.
pub fn script(entry: &Entry, region: &str) -> Option<String> {
    let commands: Vec<String> = match entry.steps.as_slice() {
        [] => entry.exchange().into_iter().map(told).collect(),
        steps => steps.iter().map(|step| told(step)).collect(),
    };
    (!commands.is_empty()).then(|| format!("{}\n{}", function(region), commands.join("\n")))
}

/// The function `s3` of the commands: curl 7.87 or later, which signs with the credentials that the variables of a run
/// name.
pub fn function(region: &str) -> String {
    format!(
        "s3() {{ curl -sS -i --path-as-is --aws-sigv4 {} \\\n  \
         --user \"$DELTAFORGE_IT_S3_ACCESS_KEY:$DELTAFORGE_IT_S3_SECRET_KEY\" \"$@\"; }}",
        quoted(&format!("aws:amz:{region}:s3"))
    )
}

/// A command, and the status that its request had.
pub fn told(exchange: &Exchange) -> String {
    let status = exchange.answer.as_ref().map_or("no answer".to_owned(), |reply| reply.status.to_string());
    format!("{} # {status}", command(exchange))
}

/// The request as a command. Of a long body only the start is in the report; what follows it is the dots that the
/// suite's own long bodies are padded with.
fn command(exchange: &Exchange) -> String {
    let mut parts = vec![match exchange.method.as_str() {
        "HEAD" => "s3 --head".to_owned(),
        method => format!("s3 -X {method}"),
    }];
    let sent = exchange.headers.iter().filter(|(name, _)| !CURLS_OWN.contains(&name.as_str()));
    parts.extend(sent.map(|(name, value)| match value.is_empty() {
        true => format!("-H {}", quoted(&format!("{name};"))),
        false => format!("-H {}", quoted(&format!("{name}: {value}"))),
    }));
    let body = &exchange.body;
    let writes = exchange.method == "PUT" || exchange.method == "POST";
    if writes && !exchange.headers.iter().any(|(name, _)| name == "content-type") {
        // curl's own would be a form's; and it signs a header that is taken away as if it were sent empty.
        parts.push("-H 'content-type: application/octet-stream'".to_owned());
    }
    let mut before = String::new();
    match body.length.saturating_sub(EXCERPT_BYTES as u64) {
        0 if writes || body.length > 0 => parts.push(format!("--data-raw {}", quoted(&body.text))),
        0 => {}
        padding => {
            let start = quoted(&body.text);
            before = format!("{{ printf %s {start}; head -c {padding} /dev/zero | tr '\\0' .; }} |\n  ");
            parts.push("--data-binary @-".to_owned());
        }
    }
    parts.push(quoted(&exchange.url));
    before + &parts.join(" \\\n  ")
}

/// A word for the shell, whatever is in it; no word can hold a NUL.
fn quoted(text: &str) -> String {
    let text: String = text.chars().map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect();
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
        let shown = function("eu-west-1") + "\n" + &told(&exchange("PUT", b"it's", &headers));
        insta::assert_snapshot!(shown, @r#"
        s3() { curl -sS -i --path-as-is --aws-sigv4 'aws:amz:eu-west-1:s3' \
          --user "$DELTAFORGE_IT_S3_ACCESS_KEY:$DELTAFORGE_IT_S3_SECRET_KEY" "$@"; }
        s3 -X PUT \
          -H 'if-match: "a'\''b"' \
          -H 'x-amz-meta-e;' \
          -H 'content-type: application/octet-stream' \
          --data-raw 'it'\''s' \
          'http://127.0.0.1:9000/b/it'\''s%20k?uploads=' # no answer
        "#);
        assert!(command(&exchange("HEAD", b"", &[])).starts_with("s3 --head "));
        assert!(!command(&exchange("GET", b"", &[])).contains("--data"));
    }

    #[test]
    fn a_long_body_is_made_again() {
        let long = "start".to_owned() + &".".repeat(3000);
        let command = command(&exchange("PUT", long.as_bytes(), &[]));
        let (before, after) = command.split_once(" |\n  ").expect("a pipe");
        assert!(after.contains("--data-binary @-"), "{after}");
        let made = std::process::Command::new("sh").args(["-c", before]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&made.stdout), long);
    }

    /// Whatever a provider or a check put into it, the shell sees words.
    #[test]
    fn a_hostile_request_stays_one_command() {
        let report = crate::report::tests::hostile();
        let script = script(&report.checks[0], "'; touch /tmp/x; '").expect("it has steps");
        let shown = format!("curl() {{ printf '[%s]\\n' \"$#\"; }}\n{script}");
        let ran = std::process::Command::new("sh").args(["-c", &shown]).output().expect("a shell");
        // -sS -i --path-as-is --aws-sigv4 V --user V -X PUT -H V -H V --data-raw V URL, twice.
        assert_eq!(
            String::from_utf8_lossy(&ran.stdout),
            "[16]\n[16]\n",
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
    }
}
