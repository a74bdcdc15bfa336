//! Signatures: which requests are let in, and what the others are told.

use crate::call::Call;
use crate::check::{Check, Done, Severity};
use crate::expect::{expect_body, expect_element, expect_error, expect_status};
use crate::sign::{Form, Signing};
use crate::trial::Trial;
use time::Duration;

const RECORDED: &str = "AWS recording 2026-02: signature and presigned tests of test_s3";
const V4: &str = "Authenticating Requests (AWS Signature Version 4); S3 API Reference: Error responses";

pub(super) const ALL: &[Check] = &[
    WRONG_SECRET,
    UNKNOWN_KEY,
    ANONYMOUS,
    SKEW,
    SKEW_ALLOWED,
    WITHHELD,
    UNSIGNED,
    UNSIGNED_PLAIN,
    PRESIGNED,
    PRESIGNED_PUT,
    EXPIRED,
    LACKING,
    PRESIGNED_CONDITION,
    PRESIGNED_WITHHELD,
];

const BASE: Check = Check {
    id: "signature",
    proves: "",
    severity: Severity::Expected,
    condition: None,
    needs: &[],
    source: V4,
    broken_by: &["accept-any-signature", "wrong-signature-codes"],
    run: |t| Box::pin(wrong_secret(t)),
};

fn query(expires: u32) -> Signing {
    Signing { form: Form::Query(expires), ..Signing::default() }
}

/// A PUT, signed so, must be refused with this code, and write nothing.
async fn refused(t: &Trial, signing: Signing, statuses: &[u16], code: &str) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    let answer = t.send(Call::put(&key, t.body("new", 0)).signing(signing)).await?;
    expect_error(&answer, statuses, code)?;
    t.holds(&key, &old).await
}

const WRONG_SECRET: Check = Check {
    id: "signature.wrong-secret",
    proves: "a request signed with another secret is 403 SignatureDoesNotMatch, and writes nothing",
    source: RECORDED,
    ..BASE
};

async fn wrong_secret(t: &Trial) -> Done {
    let signing = Signing { secret_key: Some("another-secret".to_owned()), ..Signing::default() };
    refused(t, signing, &[403], "SignatureDoesNotMatch").await
}

const UNKNOWN_KEY: Check = Check {
    id: "signature.unknown-key",
    proves: "a request of an access key that nobody has is 403 InvalidAccessKeyId, and writes nothing",
    run: |t| Box::pin(unknown_key(t)),
    ..BASE
};

async fn unknown_key(t: &Trial) -> Done {
    let signing = Signing { access_key: Some("AKIAASSAYNOBODY00000".to_owned()), ..Signing::default() };
    refused(t, signing, &[403], "InvalidAccessKeyId").await
}

const ANONYMOUS: Check = Check {
    id: "signature.anonymous",
    proves: "a request without a signature is 403 AccessDenied, for a read and for a write",
    run: |t| Box::pin(anonymous(t)),
    ..BASE
};

async fn anonymous(t: &Trial) -> Done {
    let absent = || Signing { form: Form::Absent, ..Signing::default() };
    refused(t, absent(), &[403], "AccessDenied").await?;
    expect_error(&t.send(Call::get(&t.key("k")).signing(absent())).await?, &[403], "AccessDenied")
}

const SKEW: Check = Check {
    id: "signature.skew",
    proves: "a request whose date is 20 minutes off, either way, is 403 RequestTimeTooSkewed with the limit",
    source: "versitygw issue 1514, aws-sdk-php issue 612: transcripts of AWS",
    run: |t| Box::pin(skew(t)),
    broken_by: &["accept-any-signature", "wrong-signature-codes", "no-skew-allowed"],
    ..BASE
};

async fn skew(t: &Trial) -> Done {
    for minutes in [-20, 20] {
        let signing = Signing { skew: Duration::minutes(minutes), ..Signing::default() };
        let answer = t.send(Call::put(&t.key("k"), t.body("new", 0)).signing(signing)).await?;
        expect_error(&answer, &[403], "RequestTimeTooSkewed")?;
        expect_element(&answer, "MaxAllowedSkewMilliseconds", "900000")?;
        t.lacks(&t.key("k")).await?;
    }
    Ok(())
}

const SKEW_ALLOWED: Check = Check {
    id: "signature.skew.allowed",
    proves: "a request whose date is 10 minutes off, either way, is let in",
    source: "Authenticating Requests (AWS Signature Version 4): within 15 minutes",
    broken_by: &["no-skew-allowed"],
    run: |t| Box::pin(skew_allowed(t)),
    ..BASE
};

async fn skew_allowed(t: &Trial) -> Done {
    for minutes in [-10, 10] {
        let signing = Signing { skew: Duration::minutes(minutes), ..Signing::default() };
        let put = Call::put(&t.key("k"), t.body("new", 0)).signing(signing);
        expect_status(&t.send(put).await?, &[200])?;
    }
    Ok(())
}

const WITHHELD: Check = Check {
    id: "signature.header-withheld",
    proves: "a condition that was signed and then taken out on the way is 403, and nothing is written",
    source: V4,
    run: |t| Box::pin(withheld(t)),
    ..BASE
};

async fn withheld(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    let signing = Signing { withheld: Some("if-none-match"), ..Signing::default() };
    let answer = t.send(Call::put(&key, t.body("new", 0)).if_none_match("*").signing(signing)).await?;
    expect_error(&answer, &[403], "SignatureDoesNotMatch")?;
    t.holds(&key, &old).await
}

const UNSIGNED: Check = Check {
    id: "signature.amz-header-unsigned",
    proves: "an x-amz- header that the signature does not cover is 403 AccessDenied, and nothing is written",
    source: RECORDED,
    run: |t| Box::pin(unsigned(t)),
    broken_by: &["accept-any-signature", "wrong-signature-codes"],
    ..BASE
};

async fn unsigned(t: &Trial) -> Done {
    let put = Call::put(&t.key("k"), t.body("new", 0)).unsigned_header("x-amz-meta-added", "on the way");
    let answer = t.send(put).await?;
    expect_error(&answer, &[403], "AccessDenied")?;
    t.lacks(&t.key("k")).await
}

const UNSIGNED_PLAIN: Check = Check {
    id: "signature.other-header-unsigned",
    proves: "another header that the signature does not cover, such as Content-Type, is accepted",
    source: RECORDED,
    broken_by: &["sign-every-header"],
    run: |t| Box::pin(unsigned_plain(t)),
    ..BASE
};

async fn unsigned_plain(t: &Trial) -> Done {
    let put = Call::put(&t.key("k"), t.body("new", 0)).unsigned_header("content-type", "text/x-assay");
    expect_status(&t.send(put).await?, &[200])
}

const PRESIGNED: Check = Check {
    id: "presigned.get",
    proves: "a presigned GET gives the object",
    source: "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)",
    broken_by: &["refuse-presigned"],
    run: |t| Box::pin(presigned(t)),
    ..BASE
};

async fn presigned(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("shared", 0));
    t.put(&key, &body).await?;
    let answer = t.send(Call::get(&key).signing(query(60))).await?;
    expect_status(&answer, &[200])?;
    expect_body(&answer, &body)
}

const PRESIGNED_PUT: Check = Check {
    id: "presigned.put",
    proves: "a presigned PUT stores the bytes, which it did not have to know when it was signed",
    source: "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)",
    broken_by: &["refuse-presigned"],
    run: |t| Box::pin(presigned_put(t)),
    ..BASE
};

async fn presigned_put(t: &Trial) -> Done {
    let (key, body) = (t.key("k"), t.body("uploaded", 0));
    expect_status(&t.send(Call::put(&key, body.clone()).signing(query(60))).await?, &[200])?;
    t.holds(&key, &body).await
}

const EXPIRED: Check = Check {
    id: "presigned.expired",
    proves: "a presigned request after its time is 403 AccessDenied, and writes nothing",
    source: RECORDED,
    broken_by: &["accept-any-signature", "wrong-signature-codes", "refuse-presigned"],
    run: |t| Box::pin(expired(t)),
    ..BASE
};

async fn expired(t: &Trial) -> Done {
    let signing = Signing { skew: -Duration::minutes(5), ..query(60) };
    refused(t, signing, &[403], "AccessDenied").await
}

const LACKING: Check = Check {
    id: "presigned.lacking-parameter",
    proves: "a presigned request without one of its parameters is 400 AuthorizationQueryParametersError",
    source: RECORDED,
    broken_by: &["accept-any-signature", "wrong-signature-codes", "refuse-presigned"],
    run: |t| Box::pin(lacking(t)),
    ..BASE
};

async fn lacking(t: &Trial) -> Done {
    let signing = Signing { withheld: Some("X-Amz-Expires"), ..query(60) };
    refused(t, signing, &[400], "AuthorizationQueryParametersError").await
}

const PRESIGNED_CONDITION: Check = Check {
    id: "presigned.condition",
    proves: "a condition that a presigned PUT carries is enforced",
    source: "S3 User Guide: conditional writes; Using Query Parameters (AWS Signature Version 4)",
    broken_by: &[
        "refuse-presigned",
        "ignore-if-none-match-put",
        "refuse-if-none-match-put",
        "failed-write-304",
    ],
    run: |t| Box::pin(presigned_condition(t)),
    ..BASE
};

async fn presigned_condition(t: &Trial) -> Done {
    let (key, first) = (t.key("k"), t.body("first", 0));
    let create = |body| Call::put(&key, body).if_none_match("*").signing(query(60));
    expect_status(&t.send(create(first.clone())).await?, &[200])?;
    expect_status(&t.send(create(t.body("second", 0))).await?, &[412])?;
    t.holds(&key, &first).await
}

const PRESIGNED_WITHHELD: Check = Check {
    id: "presigned.condition.withheld",
    proves: "a condition that was signed into a URL cannot be left out: 403 SignatureDoesNotMatch",
    source: "Authenticating Requests: Using Query Parameters; AWS recording 2026-02 of signed headers",
    broken_by: &["accept-any-signature", "wrong-signature-codes", "refuse-presigned"],
    run: |t| Box::pin(presigned_withheld(t)),
    ..BASE
};

async fn presigned_withheld(t: &Trial) -> Done {
    let (key, old) = (t.key("k"), t.body("old", 0));
    t.put(&key, &old).await?;
    let signing = Signing { withheld: Some("if-none-match"), ..query(60) };
    let answer = t.send(Call::put(&key, t.body("new", 0)).if_none_match("*").signing(signing)).await?;
    expect_error(&answer, &[403], "SignatureDoesNotMatch")?;
    t.holds(&key, &old).await
}
