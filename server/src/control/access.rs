//! Who may control the server: whoever sits at this machine, or knows the token.

use std::net::IpAddr;

use http::StatusCode;
use http::header::ORIGIN;
use http::request::Parts;
use subtle::ConstantTimeEq as _;

use super::reply::Refused;
use crate::service::Peer;

/// The header with the token.
const TOKEN: &str = "x-assay-token";

/// Who may control the server, and where.
#[derive(Clone, Default)]
pub(crate) struct Access {
    /// Without one, connections from this machine are trusted and no others.
    pub(crate) token: Option<String>,
    /// Whether the control paths have a port of their own; then they are on no other.
    pub(crate) own_port: bool,
}

impl Access {
    /// A request without a socket comes from this very process.
    pub(super) fn check(&self, head: &Parts, peer: Option<Peer>) -> Result<(), Refused> {
        let Some(peer) = peer else { return Ok(()) };
        let Some(token) = &self.token else {
            local(peer.address)?;
            // Any page that this machine's user visits can send requests to this machine.
            return if head.headers.contains_key(ORIGIN) { Err(of_a_page()) } else { Ok(()) };
        };
        let given = head.headers.get(TOKEN).map(|value| value.as_bytes());
        // Unlike lengths are told apart at once; a token's length is no secret.
        if given.is_some_and(|given| bool::from(given.ct_eq(token.as_bytes()))) {
            return Ok(());
        }
        let what = if given.is_some() { "has another token" } else { "has no token" };
        let why = format!("the request {what}; send the one of --control-token in the header {TOKEN}");
        Err(Refused::new(StatusCode::FORBIDDEN, why))
    }
}

fn local(address: IpAddr) -> Result<(), Refused> {
    if address.to_canonical().is_loopback() {
        return Ok(());
    }
    let why = format!(
        "control requests come from this machine only, and this one came from {address}; start the server with \
         --control-token or ASSAY_CONTROL_TOKEN and send it in the header {TOKEN}"
    );
    Err(Refused::new(StatusCode::FORBIDDEN, why))
}

fn of_a_page() -> Refused {
    let why = format!(
        "the request has an Origin, so a page in a browser sends it; start the server with --control-token and send \
         that in the header {TOKEN}"
    );
    Refused::new(StatusCode::FORBIDDEN, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Door;

    #[test]
    fn a_page_needs_the_token() {
        let peer = Peer { connection: 1, address: IpAddr::from([127, 0, 0, 1]), door: Door::S3 };
        let request = http::Request::post("/_assay/faults").header("origin", "https://example.com");
        let (head, ()) = request.header(TOKEN, "secret").body(()).unwrap().into_parts();
        assert_eq!(Access::default().check(&head, Some(peer)).unwrap_err().status, 403);
        let with = Access { token: Some("secret".to_owned()), own_port: false };
        assert!(with.check(&head, Some(peer)).is_ok());
    }

    #[test]
    fn this_machine_or_the_token() {
        let without = Access::default();
        let with = Access { token: Some("secret".to_owned()), own_port: false };
        for (access, address, token, allowed) in [
            (&without, "127.0.0.1", None, true),
            (&without, "127.8.9.1", None, true),
            (&without, "::1", None, true),
            (&without, "::ffff:127.0.0.1", None, true),
            (&without, "10.0.0.1", None, false),
            (&without, "::ffff:10.0.0.1", Some("secret"), false),
            (&with, "127.0.0.1", None, false),
            (&with, "127.0.0.1", Some("secreT"), false),
            (&with, "127.0.0.1", Some("secret"), true),
            (&with, "10.0.0.1", Some("secret"), true),
            (&with, "10.0.0.1", Some(""), false),
        ] {
            let mut request = http::Request::get("/_assay/faults");
            if let Some(token) = token {
                request = request.header(TOKEN, token);
            }
            let (head, ()) = request.body(()).unwrap().into_parts();
            let peer = Peer { connection: 1, address: address.parse().unwrap(), door: Door::S3 };
            let checked = access.check(&head, Some(peer));
            assert_eq!(checked.is_ok(), allowed, "{address} {token:?}");
            if let Err(refused) = checked {
                assert_eq!(refused.status, 403);
                assert!(refused.document["error"].as_str().unwrap().contains("--control-token"));
                assert!(!refused.document.to_string().contains("secret"));
            }
        }
    }
}
