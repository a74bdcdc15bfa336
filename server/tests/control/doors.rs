//! The same text means the same at every door.

use std::net::SocketAddr;

use assay_server::{AuthMode, Builder, Rule, Server};

use crate::process::{Process, command, run};
use crate::{control, exchange, json};

/// A rule in its three forms, and what three requests see of it: create, create again, read.
struct Case {
    text: &'static str,
    json: &'static str,
    toml: &'static str,
    seen: [&'static str; 3],
}

const CASES: [Case; 4] = [
    Case {
        text: "name=slow operation=PutObject key=locks/* condition=If-None-Match first=1 effect=refuse code=SlowDown \
               retry-after=7",
        json: r#"{"name": "slow", "operation": "PutObject", "key": "locks/*", "condition": "If-None-Match", "first": 1,
                  "effect": "refuse", "code": "SlowDown", "retry-after": 7}"#,
        toml: "[[fault]]\nname = 'slow'\noperation = 'PutObject'\nkey = 'locks/*'\ncondition = 'If-None-Match'\n\
               first = 1\neffect = 'refuse'\ncode = 'SlowDown'\nretry-after = 7\n",
        seen: ["503 retry-after: 7", "200", "200"],
    },
    Case {
        text: "name=lost method=PUT nth=1 effect=lose-answer how=reset",
        json: r#"{"name": "lost", "method": "PUT", "nth": "1", "effect": "lose-answer", "how": "reset"}"#,
        toml: "[[fault]]\nname = 'lost'\nmethod = 'PUT'\nnth = 1\neffect = 'lose-answer'\nhow = 'reset'\n",
        seen: ["lost", "412", "200"],
    },
    Case {
        text: "name=\"two words\" key=locks/a probability=1 effect=fail-after code=InternalError",
        json: r#"{"name": "two words", "key": "locks/a", "probability": 1, "effect": "fail-after",
                  "code": "InternalError"}"#,
        toml: "[[fault]]\nname = 'two words'\nkey = 'locks/a'\nprobability = 1\neffect = 'fail-after'\n\
               code = 'InternalError'\n",
        seen: ["500", "412", "500"],
    },
    Case {
        text: "name=cut operation=GetObject size=..0 effect=cut at=2",
        json: r#"{"name": "cut", "operation": "GetObject", "size": "..0", "effect": "cut", "at": 2}"#,
        toml: "[[fault]]\nname = 'cut'\noperation = 'GetObject'\nsize = '..0'\neffect = 'cut'\nat = 2\n",
        seen: ["200", "412", "200 cut"],
    },
];

fn builder() -> Builder {
    Server::builder().bucket("bucket").auth(AuthMode::None)
}

/// What a client sees of one request.
async fn sees(address: SocketAddr, method: &str, fault: Option<&str>) -> String {
    let mut headers = if method == "PUT" { vec![("if-none-match", "*")] } else { Vec::new() };
    headers.extend(fault.map(|fault| ("x-assay-fault", fault)));
    let body = if method == "PUT" { "body" } else { "" };
    let answer = exchange(address, method, "/bucket/locks/a", &headers, body).await;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return "lost".to_owned() };
    let mut seen = head.split(' ').nth(1).unwrap_or_default().to_owned();
    if let Some(line) = head.lines().find(|line| line.starts_with("retry-after")) {
        seen = format!("{seen} {line}");
    }
    if seen == "200" && method == "GET" && body != "body" {
        seen += " cut";
    }
    seen
}

/// The rule as it is listed, and what the three requests see.
async fn shown(address: SocketAddr) -> (String, Vec<String>) {
    let listed = json(control(address, "GET", "faults", "").await, 200);
    assert_eq!(listed["faults"].as_array().unwrap().len(), 1, "{listed}");
    let mut seen = Vec::new();
    for method in ["PUT", "PUT", "GET"] {
        seen.push(sees(address, method, None).await);
    }
    (listed["faults"][0]["rule"].as_str().unwrap().to_owned(), seen)
}

#[tokio::test]
async fn the_same_text_means_the_same_at_every_door() {
    let directory = tempfile::tempdir().unwrap();
    for Case { text, json: object, toml, seen } in CASES {
        let rule: Rule = text.parse().unwrap();
        let mut doors = Vec::new();

        let server = builder().fault(rule.clone()).start().await.unwrap();
        doors.push(("builder", shown(server.address()).await));
        let server = builder().start().await.unwrap();
        let guard = server.fault(rule.clone()).unwrap();
        doors.push(("handle", shown(server.address()).await));
        drop(guard);
        assert!(server.faults().is_empty());

        for (door, method, body) in [
            ("JSON", "POST", object),
            ("lines", "POST", text),
            ("TOML", "PUT", toml),
            ("an array", "PUT", object),
        ] {
            let body = if door == "an array" { format!("[{body}]") } else { body.to_owned() };
            let server = builder().start().await.unwrap();
            json(control(server.address(), method, "faults", &body).await, 200);
            doors.push((door, shown(server.address()).await));
        }

        for (door, content) in
            [("a file of lines", text), ("a file of TOML", toml), ("a file of JSON", object)]
        {
            let file = directory.path().join("faults");
            std::fs::write(&file, content).unwrap();
            let process = Process::start(&["--bucket", "bucket", "--faults", file.to_str().unwrap()]);
            doors.push((door, shown(process.address).await));
        }
        let process = Process::start(&["--bucket", "bucket", "--fault", text]);
        doors.push(("a flag", shown(process.address).await));

        for (door, (listed, there)) in doors {
            assert_eq!(
                (listed.as_str(), &there[..]),
                (rule.to_string().as_str(), &seen.map(str::to_owned)[..]),
                "{door}"
            );
        }

        // A header is about its own request only, so each is the first.
        let server = builder().start().await.unwrap();
        let method = if seen[0] == "200" { "GET" } else { "PUT" };
        if method == "GET" {
            sees(server.address(), "PUT", None).await;
        }
        let expected = if method == "GET" { seen[2] } else { seen[0] };
        assert_eq!(sees(server.address(), method, Some(text)).await, expected, "header {text}");
        assert!(server.faults().is_empty());
    }
}

#[tokio::test]
async fn what_does_not_parse_is_said_alike_at_every_door() {
    let text = "effect=drop nth=often";
    let said = text.parse::<Rule>().unwrap_err().to_string();
    assert_eq!(said, "field nth = \"often\": accepts a number above 0");
    let server = builder().start().await.unwrap();
    for body in [text, r#"{"effect": "drop", "nth": "often"}"#, "[[fault]]\neffect = 'drop'\nnth = 'often'\n"]
    {
        for method in ["POST", "PUT"] {
            let refused = json(control(server.address(), method, "faults", body).await, 400);
            assert_eq!(refused["error"], said.as_str());
            assert_eq!((&refused["field"], &refused["value"]), (&"nth".into(), &"often".into()));
        }
    }
    let answer = exchange(server.address(), "GET", "/bucket", &[("x-assay-fault", text)], "").await;
    assert!(answer.contains(&said.replace('"', "&quot;")), "{answer}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("faults");
    std::fs::write(&file, text).unwrap();
    for arguments in [["--faults", file.to_str().unwrap()], ["--fault", text], ["--latency-ms", "often"]] {
        let ended = run(command(&[&["--listen", "127.0.0.1:0"][..], &arguments].concat()));
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let said = if arguments[0] == "--latency-ms" { "milliseconds" } else { &said };
        assert!(ended.stderr.contains(said) && ended.stderr.contains(arguments[0]), "{ended:?}");
    }
}

#[tokio::test]
async fn short_flags_are_rules() {
    let arguments = ["--latency-ms", "1..2", "--error-rate", "1", "--bandwidth", "1000000", "--seed", "7"];
    let process = Process::start(&arguments);
    let listed = json(control(process.address, "GET", "faults", "").await, 200);
    let rules: Vec<&str> =
        listed["faults"].as_array().unwrap().iter().map(|fault| fault["rule"].as_str().unwrap()).collect();
    let expected = [
        "name=latency-ms effect=delay ms=1..2",
        "name=error-rate probability=1 effect=refuse code=SlowDown",
        "name=bandwidth effect=bandwidth bytes-per-s=1000000",
    ];
    assert_eq!(rules, expected);
    assert_eq!(json(control(process.address, "GET", "seed", "").await, 200)["seed"], 7);
    let answer = exchange(process.address, "GET", "/", &[], "").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("<Code>SlowDown</Code>"), "{answer}");
    process.signal("-TERM");
    let ended = process.ended();
    assert!(ended.stdout.contains(", seed 7\n"), "{ended:?}");
}

#[tokio::test]
async fn a_server_may_take_no_faults_from_requests() {
    for (arguments, expected) in [(&["--bucket", "bucket"][..], "503"), (&["--no-request-faults"], "200")] {
        let arguments = [&["--bucket", "bucket"], arguments].concat();
        let process = Process::start(&arguments);
        let fault = [("x-assay-fault", "effect=refuse code=SlowDown")];
        let answer = exchange(process.address, "GET", "/bucket", &fault, "").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{arguments:?}: {answer}");
    }
    // What is stale is what changed since a rule was set, and a header's rule is set too late for that.
    let server = builder().start().await.unwrap();
    let answer = exchange(server.address(), "GET", "/bucket", &[("x-assay-fault", "effect=stale")], "").await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("set it beforehand"), "{answer}");
}

#[tokio::test]
async fn a_fault_that_never_fired_is_exit_code_3() {
    let arguments = ["--bucket", "bucket", "--strict-faults", "--fault", "name=a method=PUT effect=drop"];
    let never = [&arguments[..], &["--fault", "name=b key=nowhere effect=drop"]].concat();
    for (arguments, code, lines) in
        [(&arguments[..], 0, vec![]), (&never, 3, vec!["name=b key=nowhere effect=drop"])]
    {
        let process = Process::start(arguments);
        assert_eq!(exchange(process.address, "PUT", "/bucket/k", &[], "body").await, "");
        process.signal("-TERM");
        let ended = process.ended();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        let said: Vec<&str> = ended.stderr.lines().collect();
        assert_eq!(said.len(), lines.len(), "{ended:?}");
        for (said, line) in said.iter().zip(lines) {
            assert!(said.contains("never fired") && said.contains(line), "{ended:?}");
        }
    }
}
