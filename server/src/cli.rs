//! The command line: flags, and the server that they describe.

use std::net::SocketAddr;
use std::path::PathBuf;

use assay_server::{
    Addressing, AuthMode, Builder, Deviation, Profile, Rule, RuleError, Server, Upstream as Provider,
};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// A local S3 server that answers as AWS does.
#[derive(Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  assay-server --bucket data\n  assay-server --listen 127.0.0.1:0 --ready-file endpoint --data ./s3\n  eval \"$(assay-server env)\"; aws s3 ls\n\nExit codes: 0 stopped by SIGTERM, 3 a fault never fired (--strict-faults), 2 usage or configuration, 4 own fault, 5 damaged data directory, 130 interrupted (SIGINT)."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Prints the exports that the AWS tools and SDKs read.
    Env(Env),
    /// Lists the ways in which the server can differ from AWS for good, each with who is known for it.
    Deviations(Listing),
    /// Lists the vendors whose differences are known, each with source and date.
    Profiles(Listing),
}

#[derive(Args)]
pub(crate) struct Listing {
    /// Prints JSON for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Credentials {
    /// The access key that requests are signed with.
    #[arg(long, env = "ASSAY_ACCESS_KEY", default_value = "test")]
    pub(crate) access_key: String,
    /// The secret key that requests are signed with.
    #[arg(long, env = "ASSAY_SECRET_KEY", default_value = "test", hide_env_values = true)]
    pub(crate) secret_key: String,
    /// The region of the endpoint.
    #[arg(long, env = "ASSAY_REGION", default_value = "us-east-1")]
    pub(crate) region: String,
}

#[derive(Args)]
pub(crate) struct Serve {
    /// Address and port to listen on; port 0 takes a free one and prints it.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9000")]
    pub(crate) listen: SocketAddr,
    /// Writes the endpoint's URL to this file once requests are answered.
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Keeps everything in this directory; without it, in memory.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Leaves it to the system when writes reach the device: what was acknowledged then survives a kill of the server,
    /// but not a power cut, which may leave a directory that no longer opens.
    #[arg(long, requires = "data")]
    pub(crate) no_flush: bool,
    /// A bucket to have from the start; repeatable.
    #[arg(long = "bucket", value_name = "NAME")]
    pub(crate) buckets: Vec<String>,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
    /// Stands for the endpoints of all regions: takes signatures for any region, and answers as that
    /// region's endpoint does.
    #[arg(long)]
    pub(crate) any_region: bool,
    /// What is checked of a request's credentials: everything; only that there are any; nothing.
    #[arg(long, value_enum, default_value_t = Auth::Strict)]
    pub(crate) auth: Auth,
    /// A domain under which BUCKET.DOMAIN names a bucket, beside path style; repeatable.
    #[arg(long = "domain", value_name = "DOMAIN")]
    pub(crate) domains: Vec<String>,
    #[command(flatten)]
    pub(crate) upstream: Upstream,
    #[command(flatten)]
    pub(crate) faults: Faults,
    /// Differs from AWS in this way, for good; repeatable. `assay-server deviations` lists them.
    #[arg(long = "deviate", value_name = "NAME[=VALUE]")]
    pub(crate) deviations: Vec<Deviation>,
    /// Differs from AWS as a vendor was measured to: the report of `assay-certify --json` about it.
    #[arg(long, value_name = "FILE")]
    pub(crate) emulate: Option<PathBuf>,
    /// Differs from AWS as this vendor does; `assay-server profiles` lists them. Without it, or with `aws`, not at all.
    #[arg(long, value_name = "NAME", value_parser = Profile::named)]
    pub(crate) profile: Option<Profile>,
    #[command(flatten)]
    pub(crate) control: Control,
    /// Gives each access key a store of its own in memory; any access key is then known, with the one secret.
    #[arg(long, conflicts_with = "data")]
    pub(crate) tenant_per_key: bool,
    /// Starts with the state in this file, as `GET /_assay/state` gives it; a data directory must be empty then.
    #[arg(long, value_name = "FILE")]
    pub(crate) load: Option<PathBuf>,
    /// What is logged to standard error: a level (error, warn, info, debug), or filters such as
    /// `assay_server=debug`.
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    pub(crate) log: String,
    /// Logs as JSON, a line an event.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A provider to stand in front of.
#[derive(Args)]
pub(crate) struct Upstream {
    /// Stands in front of the provider at this URL: checks requests, signs them anew for it, and applies faults
    /// and journal on the way. Nothing is stored here.
    #[arg(long = "upstream", env = "ASSAY_UPSTREAM", value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The access key that the upstream knows.
    #[arg(long, env = "ASSAY_UPSTREAM_ACCESS_KEY", value_name = "KEY", default_value = "test")]
    pub(crate) upstream_access_key: String,
    /// The secret key that goes with it.
    #[arg(
        long,
        env = "ASSAY_UPSTREAM_SECRET_KEY",
        value_name = "KEY",
        default_value = "test",
        hide_env_values = true
    )]
    pub(crate) upstream_secret_key: String,
    /// The session token that goes with them, if they are temporary.
    #[arg(long, env = "ASSAY_UPSTREAM_SESSION_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) upstream_session_token: Option<String>,
    /// The region that requests to the upstream are signed for.
    #[arg(long, env = "ASSAY_UPSTREAM_REGION", value_name = "REGION", default_value = "us-east-1")]
    pub(crate) upstream_region: String,
    /// How the upstream is told the bucket: in the path, or in the host.
    #[arg(long, value_enum, default_value_t = UpstreamAddressing::Path)]
    pub(crate) upstream_addressing: UpstreamAddressing,
    /// Trusts the certificates in this file too, PEM, for an upstream on https.
    #[arg(long, env = "ASSAY_UPSTREAM_CA_FILE", value_name = "FILE")]
    pub(crate) upstream_ca_file: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum UpstreamAddressing {
    Path,
    Virtual,
}

impl Upstream {
    /// The provider, if there is one.
    fn provider(&self) -> Option<Provider> {
        let endpoint = self.endpoint.as_ref()?;
        let mut provider = Provider::new(endpoint, &self.upstream_access_key, &self.upstream_secret_key)
            .region(&self.upstream_region)
            .addressing(match self.upstream_addressing {
                UpstreamAddressing::Path => Addressing::Path,
                UpstreamAddressing::Virtual => Addressing::Virtual,
            });
        if let Some(token) = &self.upstream_session_token {
            provider = provider.session_token(token);
        }
        if let Some(file) = &self.upstream_ca_file {
            provider = provider.ca_file(file);
        }
        Some(provider)
    }
}

/// Faults from the start; each flag is a rule.
#[derive(Args)]
pub(crate) struct Faults {
    /// A fault, such as 'operation=PutObject nth=1 effect=lose-answer'; repeatable.
    #[arg(long = "fault", value_name = "RULE")]
    pub(crate) rules: Vec<Rule>,
    /// Sets the faults in this file: lines as for --fault, TOML or JSON.
    #[arg(long = "faults", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Delays every request: milliseconds, MIN..MAX or lognormal:MEDIAN:SIGMA.
    #[arg(long, value_name = "TIME")]
    pub(crate) latency_ms: Option<String>,
    /// Refuses requests with 503 SlowDown, with this probability from 0 to 1.
    #[arg(long, value_name = "P")]
    pub(crate) error_rate: Option<String>,
    /// Sends the bodies of answers at this many bytes a second.
    #[arg(long, value_name = "BYTES")]
    pub(crate) bandwidth: Option<String>,
    /// Draws faults and ids from this seed; without it, from any, which is printed.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// At the end, names each fault that never fired, and exits with 3.
    #[arg(long)]
    pub(crate) strict_faults: bool,
    /// Takes no notice of the request header x-assay-fault.
    #[arg(long)]
    pub(crate) no_request_faults: bool,
}

/// Who controls the server, and where.
#[derive(Args)]
pub(crate) struct Control {
    /// Moves the control paths from the S3 port to one of their own; port 0 takes a free one and prints it.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) control_listen: Option<SocketAddr>,
    /// Lets in control requests with this in the header x-assay-token, from anywhere; without it, from this
    /// machine only.
    #[arg(long, env = "ASSAY_CONTROL_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) control_token: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Auth {
    Strict,
    Any,
    None,
}

#[derive(Args)]
pub(crate) struct Env {
    /// The endpoint's URL.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9000", conflicts_with = "ready_file")]
    pub(crate) endpoint: String,
    /// Takes the endpoint's URL from the file that `--ready-file` wrote.
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
}

impl Faults {
    /// All rules, the flags' first.
    ///
    /// # Errors
    /// What is wrong, with the flag or the file.
    fn all(&self) -> Result<Vec<Rule>, String> {
        let mut rules = self.rules.clone();
        for (flag, value, words) in [
            ("latency-ms", &self.latency_ms, "effect=delay ms"),
            ("error-rate", &self.error_rate, "effect=refuse code=SlowDown probability"),
            ("bandwidth", &self.bandwidth, "effect=bandwidth bytes-per-s"),
        ] {
            let Some(value) = value else { continue };
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let rule = format!("name={flag} {words}=\"{quoted}\"").parse();
            rules.push(
                rule.map_err(|error: RuleError| format!("--{flag} {value}: accepts {}", error.accepts))?,
            );
        }
        if let Some(file) = &self.file {
            let about = |error: &dyn std::fmt::Display| format!("--faults {}: {error}", file.display());
            let text = std::fs::read_to_string(file).map_err(|error| about(&error))?;
            rules.extend(Rule::parse_all(&text).map_err(|error| about(&error))?);
        }
        Ok(rules)
    }
}

/// The server that the flags describe.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn builder(options: &Serve) -> Result<Builder, String> {
    let Credentials { access_key, secret_key, region } = &options.credentials;
    let mut builder =
        Server::builder().listen(options.listen).credentials(access_key, secret_key).region(region).auth(
            match options.auth {
                Auth::Strict => AuthMode::Strict,
                Auth::Any => AuthMode::Any,
                Auth::None => AuthMode::None,
            },
        );
    builder = builder.any_region(options.any_region);
    if let Some(data) = &options.data {
        builder = builder.data(data).flush(!options.no_flush);
    }
    for bucket in &options.buckets {
        builder = builder.bucket(bucket);
    }
    for domain in &options.domains {
        builder = builder.domain(domain);
    }
    let Faults { seed, no_request_faults, .. } = &options.faults;
    builder = builder.faults(options.faults.all()?).request_faults(!no_request_faults);
    if let Some(seed) = seed {
        builder = builder.seed(*seed);
    }
    if let Some(address) = options.control.control_listen {
        builder = builder.control_listen(address);
    }
    if let Some(token) = &options.control.control_token {
        builder = builder.control_token(token);
    }
    if let Some(provider) = options.upstream.provider() {
        builder = builder.upstream(provider);
    }
    if let Some(file) = &options.load {
        builder = builder.load(file);
    }
    for deviation in &options.deviations {
        builder = builder.deviation(deviation.clone());
    }
    if let Some(file) = &options.emulate {
        let text = std::fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
        for deviation in Deviation::measured(&text).map_err(|why| format!("{}: {why}", file.display()))? {
            builder = builder.deviation(deviation);
        }
    }
    if let Some(profile) = &options.profile {
        builder = builder.profile(profile);
    }
    Ok(builder.tenant_per_key(options.tenant_per_key))
}
