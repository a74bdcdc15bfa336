use super::*;
use crate::xml;

fn read(rules: &str) -> Result<Lifecycle, S3Error> {
    let document = format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>");
    let document = xml::parse(document.as_bytes(), "LifecycleConfiguration").unwrap();
    let mut ids = ["new-1", "new-2"].into_iter();
    let mut new_id = || ids.next().unwrap().to_owned();
    lifecycle(&document, TransitionMinimum::AllStorageClasses128K, &mut new_id)
}

/// A rule with these elements beside its status.
fn rule(rest: &str) -> String {
    format!("<Rule><Status>Enabled</Status>{rest}</Rule>")
}

const DAYS: &str = "<Expiration><Days>40</Days></Expiration>";
const ABORT: &str = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation></AbortIncompleteMultipartUpload>";

#[test]
fn a_rule_without_an_id_gets_one() {
    let two = rule(&format!("<Filter/>{ABORT}")) + &rule(&format!("<ID></ID><Prefix>a/</Prefix>{ABORT}"));
    let rules = read(&two).unwrap().rules;
    assert_eq!(rules.iter().map(|rule| rule.id.as_str()).collect::<Vec<_>>(), ["new-1", "new-2"]);
    assert_eq!(rules[0].abort_after_days, Some(2));
    assert_eq!((rules[0].filter.form, rules[0].filter.prefix.as_deref()), (FilterForm::One, None));
    assert_eq!(
        (rules[1].filter.form, rules[1].filter.prefix.as_deref()),
        (FilterForm::BarePrefix, Some("a/"))
    );
}

#[test]
fn what_a_configuration_may_not_be() {
    let filter = |inner: &str, action: &str| rule(&format!("<Filter>{inner}</Filter>{action}"));
    let moves = |days: u32, class: &str| {
        format!("<Transition><Days>{days}</Days><StorageClass>{class}</StorageClass></Transition>")
    };
    let tag = "<Tag><Key>k</Key><Value>v</Value></Tag>";
    let larger = "<ObjectSizeGreaterThan>9</ObjectSizeGreaterThan>";
    let markers = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
    let named = |id: &str| rule(&format!("<ID>{id}</ID><Filter/>{DAYS}"));
    use Code::{
        InvalidArgument as Argument, InvalidRequest as Request, InvalidTag, MalformedXML as Malformed,
    };
    for (rules, code, says) in [
        (String::new(), Malformed, ""),
        (named("a").repeat(2), Argument, "unique"),
        (named(&"a".repeat(256)), Argument, "255"),
        (named("a").replace("Enabled", "enabled"), Malformed, ""),
        (filter("", ""), Request, "At least one action"),
        (filter("", "<AbortIncompleteMultipartUploads/>"), Malformed, ""),
        (filter("", &DAYS.repeat(2)), Malformed, ""),
        (filter("", &DAYS.replace("40", "0")), Argument, "'Days' for Expiration action must be a positive"),
        (filter("", &DAYS.replace("40", "x")), Malformed, ""),
        (filter("", &DAYS.replace("40", "2147483648")), Malformed, ""),
        (filter("", &ABORT.replace('2', "0")), Argument, "'DaysAfterInitiation' for Abort"),
        (filter("", "<AbortIncompleteMultipartUpload/>"), Malformed, ""),
        (filter(tag, ABORT), Request, "AbortIncompleteMultipartUpload cannot be specified with Tags."),
        (
            filter(larger, ABORT),
            Request,
            "AbortIncompleteMultipartUpload cannot be specified with Object Size",
        ),
        (filter(tag, markers), Request, "ExpiredObjectDeleteMarker cannot be specified with Tags."),
        (filter(&tag.replace(">v<", ">#<"), DAYS), InvalidTag, ""),
        (filter(&format!("<Prefix>{}</Prefix>", "a".repeat(1025)), DAYS), Request, "1024"),
        (
            filter(&format!("<And>{larger}<ObjectSizeLessThan>9</ObjectSizeLessThan></And>"), DAYS),
            Request,
            "Less",
        ),
        (rule(&format!("<Prefix/><Filter/>{DAYS}")), Malformed, ""),
        (filter("", &moves(5, "STANDARD_IA")), Argument, "greater than or equal to 30"),
        (filter("", &moves(30, "STANDARD")), Malformed, ""),
        (filter("", &moves(0, "GLACIER").repeat(2)), Request, "must be different"),
        (filter("", &(moves(40, "GLACIER") + DAYS)), Argument, "greater than 'Days' in the Transition"),
        (
            filter("", &(moves(4, "GLACIER") + "<Expiration><Date>2027-01-01T00:00:00Z</Date></Expiration>")),
            Request,
            "Found mixed",
        ),
    ] {
        let error = read(&rules).expect_err(&rules);
        assert_eq!(error.code, code, "{rules}: {error}");
        assert!(error.message.contains(says), "{rules}: {error}");
    }
}

#[test]
fn every_action_is_read() {
    let all = "<ID>a</ID><Filter><And><Prefix>p</Prefix></And></Filter>\
        <Transition><Days>30</Days><StorageClass>STANDARD_IA</StorageClass></Transition>\
        <Transition><Days>35</Days><StorageClass>GLACIER</StorageClass></Transition>\
        <NoncurrentVersionTransition><NoncurrentDays>0</NoncurrentDays>\
        <NewerNoncurrentVersions>3</NewerNoncurrentVersions><StorageClass>DEEP_ARCHIVE</StorageClass>\
        </NoncurrentVersionTransition>\
        <NoncurrentVersionExpiration><NewerNoncurrentVersions>5</NewerNoncurrentVersions></NoncurrentVersionExpiration>";
    let read = read(&rule(&format!("{all}{DAYS}{ABORT}"))).unwrap().rules.remove(0);
    let moves = |days, class: &str| Transition { when: When::Days(days), storage_class: class.to_owned() };
    let expected = Rule {
        id: "a".to_owned(),
        enabled: true,
        filter: Filter { form: FilterForm::And, prefix: Some("p".to_owned()), ..Filter::default() },
        transitions: vec![moves(30, "STANDARD_IA"), moves(35, "GLACIER")],
        expiration: Some(Expiration::At(When::Days(40))),
        noncurrent_transitions: vec![NoncurrentTransition {
            days: 0,
            newer_versions: Some(3),
            storage_class: "DEEP_ARCHIVE".to_owned(),
        }],
        noncurrent_expiration: Some(NoncurrentExpiration { days: None, newer_versions: Some(5) }),
        abort_after_days: Some(2),
    };
    assert_eq!(read, expected);
}
