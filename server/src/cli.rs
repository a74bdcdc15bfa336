//! The command line: flags, and the server that they describe.

use std::net::SocketAddr;
use std::path::PathBuf;

use assay_server::{AuthMode, Builder, Server};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// A local S3 server that answers as AWS does.
#[derive(Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  assay-server --bucket data\n  assay-server --listen 127.0.0.1:0 --ready-file endpoint --data ./s3\n  eval \"$(assay-server env)\"; aws s3 ls\n\nExit codes: 0 stopped by SIGTERM, 2 usage or configuration, 4 own fault, 5 damaged data directory, 130 interrupted (SIGINT)."
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
    /// What is logged to standard error: a level (error, warn, info, debug), or filters such as
    /// `assay_server=debug`.
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    pub(crate) log: String,
    /// Logs as JSON, a line an event.
    #[arg(long)]
    pub(crate) json: bool,
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

/// The server that the flags describe.
pub(crate) fn builder(options: &Serve) -> Builder {
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
        builder = builder.data(data);
    }
    for bucket in &options.buckets {
        builder = builder.bucket(bucket);
    }
    for domain in &options.domains {
        builder = builder.domain(domain);
    }
    builder
}
