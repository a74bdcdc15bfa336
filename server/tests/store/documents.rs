//! Documents that requests bring: the largest that S3 takes, and those that nobody should take.

use crate::client::{On, Rig};

fn delete_of(keys: impl Iterator<Item = String>) -> String {
    let objects: String = keys.map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
    format!("<Delete>{objects}</Delete>")
}

async fn a_thousand_keys_go_at_once_and_not_one_more(on: On) {
    let rig = Rig::new(on).await;
    for n in 0..5 {
        rig.put(&format!("k{n}"), vec![b'x'; 100_000]).await.expect(200);
    }
    let answer =
        rig.send("POST", "?delete", &[], delete_of((0..1000).map(|n| format!("k{n}")))).await.expect(200);
    assert_eq!(answer.all("Deleted/Key").len(), 1000);
    assert!(rig.files().is_empty());
    let too_many = delete_of((0..1001).map(|n| format!("k{n}")));
    rig.put("k0", "x").await.expect(200);
    rig.send("POST", "?delete", &[], too_many).await.expect_code(400, "MalformedXML");
    rig.call("HEAD", "k0").await.expect(200);
}

async fn what_is_not_the_document_asked_for_is_malformed(on: On) {
    let rig = Rig::new(on).await;
    rig.put("k", "x").await.expect(200);
    let bomb = "<!DOCTYPE d [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>\
                <Delete><Object><Key>&b;</Key></Object></Delete>";
    let outside = "<!DOCTYPE d [<!ENTITY a SYSTEM \"file:///etc/passwd\">]><Delete><Object><Key>&a;</Key></Object></Delete>";
    let deep = "<Delete>".repeat(200_000);
    let wide = format!("<Delete>{}</Delete>", "<x/>".repeat(150_000));
    for document in [
        bomb,
        outside,
        &deep,
        &wide,
        "<Delete><Object><Key>&unknown;</Key></Object></Delete>",
        "<Delete><Object><Key>k</Key></Object>",
        "<Delete><Object><Key>k</Object></Key></Delete>",
        "<Other><Object><Key>k</Key></Object></Other>",
        "<Delete></Delete>",
        "<Delete><Object></Object></Delete>",
        "<Delete><Object><Key></Key></Object></Delete>",
        "not XML",
        "\u{0}",
    ] {
        let answer = rig.send("POST", "?delete", &[], document.to_owned()).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "MalformedXML"), "{document:.80}");
    }
    let answer = rig.send("POST", "?delete", &[], vec![0xFF; 100]).await;
    answer.expect_code(400, "MalformedXML");
    let answer = rig.send("POST", "?delete", &[], vec![b' '; 9 * 1024 * 1024]).await;
    answer.expect_code(400, "MaxMessageLengthExceeded");
    rig.call("HEAD", "k").await.expect(200);
}

async fn what_means_the_same_is_read_the_same(on: On) {
    let rig = Rig::new(on).await;
    for document in [
        "<Delete><Object><Key>a&amp;&lt;&#x62;&#99;</Key></Object></Delete>",
        "<?xml version=\"1.0\"?>\n<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n  <Object>\n    <Key>a&amp;&lt;bc</Key>\n  </Object>\n</Delete>\n",
        "<s:Delete xmlns:s=\"http://s3.amazonaws.com/doc/2006-03-01/\"><s:Object><s:Key><![CDATA[a&<bc]]></s:Key></s:Object></s:Delete>",
        "<Delete><!-- a note --><Object><Extra/><Key>a&amp;&lt;bc</Key></Object></Delete>",
    ] {
        rig.put("a%26%3Cbc", "x").await.expect(200);
        let answer = rig.send("POST", "?delete", &[], document).await.expect(200);
        assert_eq!(answer.all("Deleted/Key"), ["a&<bc"], "{document}");
        rig.call("HEAD", "a%26%3Cbc").await.expect(404);
    }
}

/// Keys with every character that XML treats apart come back from a list as they were.
async fn keys_survive_a_list_without_encoding(on: On) {
    let rig = Rig::new(on).await;
    let keys = ["a&b", "a<b", "a>b", "a\"b", "a'b", "a\nb", "a\tb", "a\rb", " a ", "]]>", "é\u{1f600}"];
    for key in keys {
        rig.put(&crate::encoded(key), "x").await.expect(200);
    }
    let mut listed = rig.call("GET", "?list-type=2").await.expect(200).all("Contents/Key");
    let mut keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    listed.sort();
    keys.sort();
    assert_eq!(listed, keys);
}

crate::on_both_stores![
    a_thousand_keys_go_at_once_and_not_one_more,
    what_is_not_the_document_asked_for_is_malformed,
    what_means_the_same_is_read_the_same,
    keys_survive_a_list_without_encoding,
];
