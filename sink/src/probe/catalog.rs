//! The twenty-seven checks: what each does, what its failure means, and what to do then.

/// One check of the probe. Numbers and names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// From 1 to 27.
    pub number: u8,
    /// A few words.
    pub name: &'static str,
    /// Whether durable mode needs it; the others are recorded.
    pub required: bool,
    /// What is done and expected.
    pub does: &'static str,
    /// What a failure means for a stream.
    pub means: &'static str,
    /// What to do then.
    pub remedy: &'static str,
}

const NOT_THIS_STORE: &str = "use a provider or a release that honours If-None-Match: * and If-Match; run no durable \
                              sink here";
const RACES: &str = "the store decides a condition and commits in two steps, or only within one of its nodes: use a \
                     release that locks the key across both; one writer at a time does not help, since a fenced \
                     writer's late requests race too";

macro_rules! checks {
    ($($number:literal $name:literal $required:literal $does:literal; $means:literal; $remedy:expr;)+) => {
        /// All checks, by number.
        pub const CHECKS: [Check; 27] = [$(Check {
            number: $number, name: $name, required: $required, does: $does, means: $means, remedy: $remedy,
        },)+];
    };
}

checks! {
    1 "create on an absent key" true
        "PUT with If-None-Match: * where nothing is: done, with an ETag, and the bytes are there";
        "objects of a batch cannot be written, or are said to be and are not";
        "look at the answer: credentials, bucket and permissions first (s3:PutObject, s3:GetObject)";
    2 "create on an existing key" true
        "the same with other bytes where an object is, on the open connection and on a new one: 412, unchanged";
        "a second writer replaces committed objects: acknowledged data is lost"; NOT_THIS_STORE;
    3 "create with the same bytes" true
        "the same with the bytes that are there: 412, unchanged, the same ETag";
        "the store skips the condition where content is equal, and nobody learns who wrote"; NOT_THIS_STORE;
    4 "create with the same length" true
        "the same with other bytes of equal length: 412, unchanged";
        "the store compares sizes and not existence"; NOT_THIS_STORE;
    5 "create after a delete" true
        "create, delete, create: done, and the new bytes are there";
        "a deleted key stays taken: an interrupted batch cannot be written again";
        "look for delete markers or tombstones: a bucket without versioning, or a fixed release";
    6 "create, large and empty" true
        "2 MiB and no bytes where an object is, and any where an empty one is: 412, unchanged";
        "the condition holds only on the path that one size takes"; NOT_THIS_STORE;
    7 "create beside a longer key" true
        "a key that is another's part before a slash: created or refused, and the other is unchanged";
        "a key swallows another: objects vanish";
        "the store maps keys to files badly: do not use it for durable data";
    8 "swap with the current ETag" true
        "PUT with If-Match and the current ETag: done, with another ETag, and the new bytes are there";
        "HEAD cannot move: nothing is ever committed"; NOT_THIS_STORE;
    9 "swap with an old ETag" true
        "If-Match with an ETag of before, on the open connection and on a new one: 412, unchanged";
        "a fenced writer takes HEAD back: commits are lost"; NOT_THIS_STORE;
    10 "old ETag, current bytes" true
        "If-Match with an ETag of before and the bytes that are there: 412, unchanged";
        "the store compares content in place of the ETag"; NOT_THIS_STORE;
    11 "swap with a foreign ETag" true
        "ETags that no object has: random, and the current one with its first or last digit changed: 412, unchanged";
        "ETags are compared in part or not at all: two writers can both win"; NOT_THIS_STORE;
    12 "swap on an absent key" true
        "If-Match where nothing is: 404 or 412, and nothing is there afterwards";
        "a deleted HEAD comes back with one writer's view of it"; NOT_THIS_STORE;
    13 "forms of an ETag" true
        "the ETag as it was sent works; without quotes, and a star, are recorded";
        "the store does not know its own ETag again"; NOT_THIS_STORE;
    14 "ETag of A, B, A" false
        "whether equal bytes have equal ETags; nothing depends on it";
        "nothing: every HEAD is unique"; "nothing";
    15 "swap, large" true
        "2 MiB with an old ETag: 412, unchanged; with the current one: done, all bytes are there";
        "the condition holds only on the path that one size takes"; NOT_THIS_STORE;
    16 "race of creates" true
        "rounds of creates of one key at once, each on its own connection: one is done, and its bytes are there";
        "two batches both believe that they wrote a key"; RACES;
    17 "race of swaps" true
        "rounds of swaps from one ETag at once: one is done, its bytes and its ETag are there";
        "two owners both commit: one's acknowledged data is lost"; RACES;
    18 "swaps, creates and reads" true
        "rounds of swaps, creates and reads of one key at once: one swap is done, no create, no read is torn";
        "a reader sees half of one HEAD and half of another, or a HEAD beside the wrong ETag"; RACES;
    19 "slow create, fast create" true
        "a create whose body is held half way while another lands: the slow one is 412, the fast one's bytes stay";
        "the condition is decided when a request begins and not when it commits"; RACES;
    20 "a chain of swaps" true
        "64 swaps, each from the last answer: all done, each with a new ETag; then an old ETag and a create: 412";
        "the store answers from a cache of ETags, gives one twice, or honours conditions for a while"; NOT_THIS_STORE;
    21 "read after write" true
        "a read on a new connection right after a create, a swap and a plain overwrite: the new bytes";
        "recovery reads an old HEAD and fences a healthy writer, or misses a commit";
        "read from the primary, turn caches between off, or use strong consistency";
    22 "list after write and delete" true
        "5 keys in pages of 2, then fewer after deletes: in order, each once, none missing, tokens advance";
        "cleaning up cannot trust a listing, and a stream without HEAD looks empty";
        "use a release that lists consistently; turn eventual listings off";
    23 "one ETag everywhere" true
        "PUT, GET, HEAD and LIST show one ETag for one object";
        "what one answer says cannot be used as the condition of the next request"; NOT_THIS_STORE;
    24 "keys are kept as they are" true
        "a segment of 200 bytes, a key of 900, the signs % + = . and case: read and listed byte by byte";
        "two tables share a key, or a manifest names keys that nobody finds";
        "raise the limits of the file system below, or use a store that keeps keys as bytes";
    25 "delete" true
        "after DELETE the key reads 404, and DELETE of an absent key is done; deletes with If-Match are recorded";
        "nothing can be cleaned up"; "allow s3:DeleteObject, and look for retention or object lock";
    26 "user metadata" false
        "metadata comes back with the object; recorded";
        "nothing: it only speeds looking up"; "nothing";
    27 "clock" false
        "the store's Date beside the local clock; recorded";
        "garbage collection and reconciliation stay off, since they measure ages by the store's clock";
        "set the clock of this machine or of the store (NTP)";
}

/// The numbers of the checks that durable mode needs.
pub fn required() -> impl Iterator<Item = u8> {
    CHECKS.iter().filter(|check| check.required).map(|check| check.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_and_names_fit_a_table() {
        for (index, check) in CHECKS.iter().enumerate() {
            assert_eq!(usize::from(check.number), index + 1);
            assert!(check.name.len() <= 28, "{}", check.name);
        }
        assert_eq!(required().count(), 24);
        assert!(!required().any(|number| [14, 26, 27].contains(&number)));
    }
}
