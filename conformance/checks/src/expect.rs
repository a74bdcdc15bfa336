//! What a check compares an answer with, and how a difference is said.

use crate::check::{Done, Stop, describe, says_nothing};
use crate::client::Answer;
use crate::xml;

/// The status must be one of `statuses`. Where it is not, a 5xx other than 501 is a doubt, not a failure.
pub(crate) fn expect_status(answer: &Answer, statuses: &[u16]) -> Done {
    let status = answer.status.as_u16();
    let wanted = statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(" or ");
    if statuses.contains(&status) {
        Ok(())
    } else if says_nothing(status) {
        Err(Stop::doubt(format!("expected {wanted}, got {}", describe(answer)), answer))
    } else {
        Err(Stop::fail(wanted, describe(answer), answer))
    }
}

/// An element of the answer's XML must have this text.
pub(crate) fn expect_element(answer: &Answer, name: &str, text: &str) -> Done {
    match answer.element(name) {
        Some(got) if got == text => Ok(()),
        Some(got) => Err(Stop::fail(format!("<{name}>{text}"), format!("<{name}>{got}"), answer)),
        None => Err(Stop::fail(format!("<{name}>{text}"), format!("no <{name}>"), answer)),
    }
}

/// Two texts must be equal; `what` names them.
pub(crate) fn expect_equal(what: &str, expected: &str, got: &str, answer: &Answer) -> Done {
    if expected == got {
        return Ok(());
    }
    Err(Stop::fail(
        format!("{what} {expected}"),
        format!("{what} {}", if got.is_empty() { "missing" } else { got }),
        answer,
    ))
}

pub(crate) fn excerpt(body: &[u8]) -> String {
    let start = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
    format!("{} bytes, {:?}", body.len(), start.trim_end_matches(['.', ' ']))
}

/// The texts of `name` in each `<group>` of an answer, in order.
pub(crate) fn texts(answer: &Answer, group: &str, name: &str) -> Vec<String> {
    let document = String::from_utf8_lossy(&answer.body).into_owned();
    xml::elements(&document, group)
        .iter()
        .map(|entry| xml::element(entry, name).unwrap_or_default())
        .collect()
}

/// Two lists must be equal; `what` names them.
pub(crate) fn expect_list(what: &str, expected: &[String], got: &[String], answer: &Answer) -> Done {
    match expected == got {
        true => Ok(()),
        false => Err(Stop::fail(
            format!("{what} {}", shortened(expected)),
            format!("{what} {}", shortened(got)),
            answer,
        )),
    }
}

/// A list as people can read it: its length, and its ends when it is long.
fn shortened(list: &[String]) -> String {
    match list {
        [first, .., last] if list.len() > 12 => format!("({}): {first:?} to {last:?}", list.len()),
        _ => format!("({}): {list:?}", list.len()),
    }
}

/// A refusal: one of `statuses`, with this error code.
pub(crate) fn expect_error(answer: &Answer, statuses: &[u16], code: &str) -> Done {
    expect_status(answer, statuses)?;
    expect_element(answer, "Code", code)
}

/// A header must have this text.
pub(crate) fn expect_header(answer: &Answer, name: &str, text: &str) -> Done {
    expect_equal(name, text, answer.header(name).unwrap_or_default(), answer)
}

/// The answer must hold exactly these bytes.
pub(crate) fn expect_body(answer: &Answer, body: &[u8]) -> Done {
    match answer.body == body {
        true => Ok(()),
        false => Err(Stop::fail(excerpt(body), excerpt(&answer.body), answer)),
    }
}
