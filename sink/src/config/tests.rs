use super::*;

const GUIDE: &str = "sinks:\n  - type: s3\n    bucket: my-bucket\n    # durability: durable_v2   # the default; may be omitted\n";

fn read(text: &str) -> Result<Config, ConfigError> {
    Config::read(text, |_| None)
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = read(text).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn the_guides_yaml_is_a_pipeline() {
    let config = read(GUIDE).unwrap();
    assert_eq!(config.bucket.name, "my-bucket");
    assert_eq!(config.root.as_str(), "default");
    assert_eq!((config.bucket.region.as_str(), &config.bucket.endpoint), ("us-east-1", &None));
    assert_eq!(config.metrics, Some(([127, 0, 0, 1], 9464).into()));
    assert_eq!(config.local_checkpoint, PathBuf::from("assay-sink.default.redb"));
    let explicit = GUIDE.replace("# durability: durable_v2  ", "durability: durable_v2  ");
    assert_eq!(read(&explicit).unwrap(), config);
}

#[test]
fn every_key_can_be_set() {
    let config = read(include_str!("every-key.yaml")).unwrap();
    let absent: Vec<&str> = keys::KEYS
        .iter()
        .map(|key| key.path)
        .filter(|path| {
            let name = path.rsplit('.').next().unwrap_or(path);
            !include_str!("every-key.yaml").contains(&format!("{name}: "))
        })
        .collect();
    assert_eq!(absent, ["source.snapshot_tables"], "a list has no text behind its name");
    assert_eq!(config.root.as_str(), "lake/raw/orders");
    assert_eq!(config.source.pg_scope.as_deref(), Some("7301234567890123456/1"));
    assert_eq!(config.source.position, Some(PositionType::PgLsn));
    assert_eq!(config.limits.max_age_ms, 250);
    assert!(!config.limits.respect_source_tx);
    assert_eq!(config.encoding, Encoding::JsonlZstd);
    assert!(config.bucket.virtual_host);
    assert_eq!(config.metrics, None);
}

#[test]
fn the_environment_fills_what_is_left_out() {
    let variable = |name: &str| match name {
        "AWS_ENDPOINT_URL" => Some("http://127.0.0.1:9000".to_owned()),
        "AWS_REGION" => Some("eu-central-1".to_owned()),
        _ => None,
    };
    let config = Config::read(GUIDE, variable).unwrap();
    assert_eq!(config.bucket.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
    assert_eq!(config.bucket.region, "eu-central-1");
    let set = format!("{GUIDE}    region: us-west-2\n");
    assert_eq!(Config::read(&set, variable).unwrap().bucket.region, "us-west-2");
}

#[test]
fn unknown_keys_are_refused_by_name_and_place() {
    refused(
        &format!("{GUIDE}    bukcet: x\n"),
        "unknown key sinks[0].bukcet; known here: type, name, bucket",
    );
    refused(
        &format!("{GUIDE}piepline: x\n"),
        "unknown key piepline; known here: pipeline, instance, source, sinks",
    );
    refused(
        &format!("{GUIDE}    batch:\n      max_row: 1\n"),
        "unknown key sinks[0].batch.max_row; known here: max_tr",
    );
    refused(&format!("source:\n  generaton: 2\n{GUIDE}"), "unknown key source.generaton");
    refused(&format!("{GUIDE}{GUIDE}"), "duplicate");
}

#[test]
fn one_sink_is_wanted() {
    refused("pipeline: x\n", "sinks[0].type is missing");
    refused("sinks: []\n", "sinks has 0 sinks, one is wanted");
    refused("sinks:\n- {type: s3, bucket: a}\n- {type: s3, bucket: b}\n", "sinks has 2 sinks");
    refused("sinks: {type: s3}\n", "a list of one sink is wanted");
    refused(
        "sinks:\n- {type: kafka, bucket: b}\n",
        "sinks[0].type: \"kafka\" can't be it: one of s3 is wanted",
    );
    refused("sinks:\n- {type: s3}\n", "sinks[0].bucket is missing");
    refused("sinks:\n- {type: s3, bucket: ''}\n", "sinks[0].bucket is missing");
}

#[test]
fn only_the_word_itself_gives_durability_up() {
    let text = "sinks:\n  - type: s3\n    bucket: my-bucket\n    durability: legacy_rolling   # explicit\n";
    let config = read(text).unwrap();
    assert_eq!(config.durability, Durability::LegacyRolling);
    assert_eq!((config.rolling.max_bytes, config.rolling.max_age_ms), (128 << 20, 300_000));
    assert_eq!(read(GUIDE).unwrap().durability, Durability::DurableV2);
    refused(&text.replace("legacy_rolling", "durable_v3"), "one of durable_v2, legacy_rolling is wanted");
}

#[test]
fn nothing_is_deleted_unless_it_is_asked_for() {
    let Lifecycle { mark_entries, expire_entries, compact, delete_originals, reconcile, .. } =
        read(GUIDE).unwrap().lifecycle;
    assert_eq!((mark_entries, expire_entries, delete_originals, reconcile), (true, false, false, false));
    assert!(!compact);
    let all = read(include_str!("every-key.yaml")).unwrap().lifecycle;
    assert!(all.expire_entries && all.compact && all.delete_originals && all.reconcile && !all.mark_entries);
}

#[test]
fn a_grace_period_outlasts_the_longest_write() {
    let text = |timeout: u64, grace: u64| {
        format!("{GUIDE}    send_timeout_ms: {timeout}\n    grace_period_ms: {grace}\n")
    };
    assert_eq!(read(&text(60_000, 120_000)).unwrap().lifecycle.grace_period_ms, 120_000);
    refused(
        &text(60_000, 119_999),
        "sinks[0].grace_period_ms: 119999 is less than twice send_timeout_ms, which is 60000: an object could be taken \
         for an orphan before its batch is committed; set at least 120000",
    );
    refused(
        &format!("{GUIDE}    compaction: {{min_inputs: 9, max_inputs: 8}}\n"),
        "sinks[0].compaction.max_inputs: it is at least compaction.min_inputs",
    );
}

#[test]
fn secrets_are_refused_and_not_shown() {
    for name in ["secret_key", "secret_access_key", "AWS_SECRET_ACCESS_KEY", "access_key", "session_token"] {
        let error = read(&format!("{GUIDE}    {name}: s3cr3t\n")).unwrap_err();
        assert_eq!(error, ConfigError::Secret { path: format!("sinks[0].{name}") });
        assert!(!error.to_string().contains("s3cr3t") && error.to_string().contains("AWS_SECRET_ACCESS_KEY"));
    }
}

#[test]
fn values_are_checked_where_they_stand() {
    let batch = |text: &str| format!("{GUIDE}    batch:\n      {text}\n");
    refused(&batch("max_rows: 0"), "sinks[0].batch.max_rows: \"0\" can't be it: a whole number from 1 to");
    refused(&batch("max_age_ms: 1s"), "sinks[0].batch.max_age_ms: \"1s\" can't be it");
    refused(&batch("respect_source_tx: maybe"), "true or false is wanted");
    refused(&format!("{GUIDE}metrics: {{listen: localhost}}\n"), "metrics.listen: \"localhost\"");
    refused(&format!("{GUIDE}source: {{id: ''}}\n"), "source.id: the source id is empty");
    refused(
        &format!("{GUIDE}source: {{timeline: 1}}\n"),
        "system_identifier and timeline are set both or neither",
    );
    refused(
        &format!("{GUIDE}source: {{gtid_start: '0-1-270'}}\n"),
        "source.gtid_start: unsupported position",
    );
    refused(&format!("{GUIDE}source: {{server_uuid: x}}\n"), "source.server_uuid: scope \"x\"");
    refused(&format!("{GUIDE}source: {{snapshot_tables: [orders]}}\n"), "namespace.table is wanted");
    refused("[]", "a mapping is wanted at the top");
    refused(": :\n  -", "not a pipeline's YAML");
}

#[test]
fn prefix_and_pipeline_must_leave_room() {
    let long = |bytes: usize| vec!["p".repeat(100); bytes / 101 + 1].join("/")[..bytes].to_owned();
    let text = |bytes| format!("pipeline: x\nsinks:\n- {{type: s3, bucket: b, prefix: {}}}\n", long(bytes));
    assert!(read(&text(557)).is_ok());
    refused(&text(558), "take 560 bytes; with files ending in .jsonl they may take 559");
    refused("sinks:\n- {type: s3, bucket: b, prefix: a//b}\n", "segment \"\" of the prefix is empty");
}

#[test]
fn the_guide_prints_the_table() {
    let guide = include_str!("../../README.md");
    let table = keys::table();
    assert!(guide.contains(&table), "sink/README.md lacks this table; paste it:\n{table}");
}

#[test]
fn formats_have_their_compressions() {
    let of = |format: &str, compression: &str, durability: &str| {
        read(&format!(
            "sinks: [{{type: s3, bucket: b, format: {format}, compression: {compression}, durability: {durability}}}]"
        ))
    };
    for (format, compression, encoding) in [
        ("jsonl", "none", Encoding::Jsonl),
        ("jsonl", "gzip", Encoding::JsonlGzip),
        ("parquet", "snappy", Encoding::ParquetSnappy),
        ("parquet", "zstd", Encoding::ParquetZstd),
    ] {
        assert_eq!(of(format, compression, "durable_v2").map(|config| config.encoding), Ok(encoding));
    }
    for (format, compression, durability, why) in [
        ("jsonl", "snappy", "durable_v2", "no compression that jsonl is written with"),
        ("parquet", "gzip", "durable_v2", "no compression that parquet is written with"),
        ("parquet", "zstd", "legacy_rolling", "can't be appended to"),
    ] {
        let error = of(format, compression, durability).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
