//! A listing that decides about deletion: page after page is believed, or none of it.

use std::collections::HashSet;

use crate::env::Env;
use crate::run::recover::reach::Reach;
use crate::stop::{StopReason, Stopped};
use crate::store::{ObjectMeta, Outcome};

/// Keys of one page.
const PAGE: u16 = 1000;

/// A complete listing, held against what HEAD reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// How many objects there are.
    pub objects: u64,
    /// Those that HEAD does not reach.
    pub strays: Vec<ObjectMeta>,
    /// Keys that must exist and are not listed.
    pub absent: Vec<String>,
}

/// Lists everything below `prefix`. Of what `reach` has only the count is kept.
///
/// # Errors
/// [`StopReason::ListingUncertain`] for a page without a usable answer, a token that comes again, and keys that
/// are out of order, there twice, or not below the prefix. Nothing is asked a second time: the next run lists anew.
pub async fn compared(env: &Env, prefix: &str, reach: &Reach) -> Result<Listed, Stopped> {
    let mut listed = Listed::default();
    let mut required = reach.required.iter().peekable();
    let (mut last, mut token) = (None::<String>, None::<String>);
    let mut tokens = HashSet::new();
    loop {
        let page = match env.store.list(prefix, token.as_deref(), PAGE).await {
            Outcome::Done(page) => page,
            other => {
                let seen = listed.objects;
                return Err(uncertain(format!("a page of {prefix:?} after {seen} objects: {other:?}")));
            }
        };
        for object in page.objects {
            if !object.key.starts_with(prefix) {
                return Err(uncertain(format!("{:?} is listed below {prefix:?}", object.key)));
            }
            if let Some(last) = last.filter(|last| *last >= object.key) {
                return Err(uncertain(format!("{:?} is listed after {last:?}", object.key)));
            }
            last = Some(object.key.clone());
            listed.objects += 1;
            while let Some(absent) = required.next_if(|key| **key < object.key) {
                listed.absent.push(absent.clone());
            }
            if required.next_if(|key| **key == object.key).is_none() && !reach.replaced.contains(&object.key)
            {
                listed.strays.push(object);
            }
        }
        let Some(next) = page.next else { break };
        if !tokens.insert(next.clone()) {
            return Err(uncertain(format!("a page of {prefix:?} names a token that was used before")));
        }
        token = Some(next);
    }
    listed.absent.extend(required.cloned());
    Ok(listed)
}

fn uncertain(detail: String) -> Stopped {
    Stopped::new(StopReason::ListingUncertain, detail)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use parking_lot::Mutex;

    use super::*;
    use crate::env::{Clock, Ids};
    use crate::store::{Condition, ETag, Object, Page, Pending, Store, Unanswered};

    #[derive(Debug)]
    struct Noon;

    impl Clock for Noon {
        fn now_ms(&self) -> u64 {
            43_200_000
        }
    }

    /// Answers listings with what it was given, and nothing else.
    #[derive(Debug)]
    struct Pages(Mutex<Vec<Outcome<Page>>>);

    impl Store for Pages {
        fn put<'a>(
            &'a self,
            _: &'a str,
            _: Bytes,
            _: Condition,
            _: &'a [(String, String)],
        ) -> Pending<'a, Outcome<Option<ETag>>> {
            unreachable!("a listing writes nothing")
        }

        fn get<'a>(&'a self, _: &'a str) -> Pending<'a, Outcome<Object>> {
            unreachable!("a listing reads no object")
        }

        fn head<'a>(&'a self, _: &'a str) -> Pending<'a, Outcome<ObjectMeta>> {
            unreachable!("a listing reads no object")
        }

        fn delete<'a>(&'a self, _: &'a str, _: Option<ETag>) -> Pending<'a, Outcome<()>> {
            unreachable!("a listing deletes nothing")
        }

        fn list<'a>(&'a self, _: &'a str, _: Option<&'a str>, _: u16) -> Pending<'a, Outcome<Page>> {
            Box::pin(async move { self.0.lock().remove(0) })
        }
    }

    fn page(keys: &str, next: Option<&str>) -> Outcome<Page> {
        let meta = |key: &str| ObjectMeta {
            key: key.to_owned(),
            etag: ETag("\"e\"".to_owned()),
            size: 1,
            last_modified_ms: 0,
        };
        Outcome::Done(Page {
            objects: keys.split_whitespace().map(meta).collect(),
            next: next.map(str::to_owned),
        })
    }

    /// Strays and absent keys, or the reason of the stop.
    async fn check(pages: Vec<Outcome<Page>>, expected: Result<(u64, &str, &str), &str>) {
        let env = Env {
            store: Arc::new(Pages(Mutex::new(pages))),
            clock: Arc::new(Noon),
            ids: Arc::new(Ids::seeded(1)),
        };
        let reach = Reach {
            required: ["p/b", "p/d", "p/f"].map(str::to_owned).to_vec(),
            replaced: HashSet::from(["p/e".to_owned()]),
        };
        match (compared(&env, "p/", &reach).await, expected) {
            (Ok(listed), Ok((objects, strays, absent))) => {
                let keys: Vec<_> = listed.strays.iter().map(|stray| stray.key.as_str()).collect();
                assert_eq!((listed.objects, keys.join(" ")), (objects, strays.to_owned()));
                assert_eq!(listed.absent.join(" "), absent);
            }
            (Err(stopped), Err(why)) => {
                assert_eq!(stopped.reason, StopReason::ListingUncertain);
                assert!(stopped.detail.contains(why), "{stopped}");
            }
            (found, expected) => panic!("{found:?} where {expected:?} is expected"),
        }
    }

    #[tokio::test]
    async fn what_is_reached_is_told_from_what_is_not() {
        let whole = vec![page("p/a p/b p/c", Some("1")), page("", Some("2")), page("p/d p/e p/f p/g", None)];
        check(whole, Ok((7, "p/a p/c p/g", ""))).await;
        check(vec![page("p/a p/c p/e", None)], Ok((3, "p/a p/c", "p/b p/d p/f"))).await;
        check(vec![page("", None)], Ok((0, "", "p/b p/d p/f"))).await;
    }

    #[tokio::test]
    async fn a_doubt_ends_it() {
        let unanswered =
            Outcome::Unknown(Unanswered { status: Some(503), reason: "503 SlowDown".to_owned() });
        for (pages, why) in [
            (vec![page("p/a", Some("1")), unanswered], "503"),
            (vec![page("p/a", Some("1")), page("p/b", Some("1"))], "token"),
            (vec![page("p/a p/c p/b", None)], "after"),
            (vec![page("p/a", Some("1")), page("p/a", None)], "after"),
            (vec![page("p/a q/b", None)], "below"),
            (vec![Outcome::Missing], "Missing"),
        ] {
            check(pages, Err(why)).await;
        }
    }
}
