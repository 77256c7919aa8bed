//! The command line. Its words are a public contract: see docs/architecture.md.

use crate::{
    accounts::NewUsers,
    http::PublicUrl,
    limits::parse_bytes,
    oidc::{Issuer, Label},
    prometheus::address::Source,
    store::{BucketSettings, BucketUrl, DatabaseUrl, Endpoint, Style},
};
use axum::http::HeaderName;
use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use rankscope_telemetry::sampler::Hz;
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

/// Help for what `serve` and `user` share; an attribute, because what documentation marks would be printed as marks.
const DATABASE_URL: &str = "PostgreSQL for everything but files: postgres://user:password@host/name. With a bucket several \
    servers may share it; without one live samples stay in the folder. Without it the database is a file there";

/// Help for what names a bucket, which would be marked in the same way.
const OBJECTS: &str = "Bucket for uploaded files and reports, s3://bucket/prefix: of AWS, or of a server that speaks as it \
    does. Without it they are in the data folder. Credentials come from the environment (AWS_ACCESS_KEY_ID and \
    AWS_SECRET_ACCESS_KEY, or a role) or from a file";
const OBJECTS_ENDPOINT: &str = "Server of the bucket, if it is not AWS: https://host:port";
const OBJECTS_STYLE: &str = "How the bucket is named: path for https://server/bucket, which is usual with an endpoint, or host \
    for https://bucket.server, which is usual for AWS";
const OBJECTS_REGION: &str = "Region of the bucket; otherwise that of AWS_REGION, or us-east-1";

/// Help with a name that documentation would mark.
const OIDC_ISSUER: &str = "Provider with which people sign in, by OpenID Connect: its issuer, as it writes it itself";

/// Help for what becomes of strangers.
const OIDC_NEW_USERS: &str = "What becomes of who comes from the provider for the first time: ask lets nobody in until an \
    administrator has said whose account it is, account makes an account without rights in any project, viewer makes one that \
    may look at the runs of the project Default";

/// Help for the commands that read it.
const CONFIG: &str = "File with settings: TOML, keys as the long options of serve. What is given here or in the \
    environment counts more";

/// Why does one GPU use more memory than the others?
#[derive(Debug, Parser)]
#[command(name = "rankscope", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the pages and the API.
    Serve(ServeArgs),
    /// Sample the GPUs of this node and send what is read to a server.
    Agent(AgentArgs),
    /// Diagnose files here, without a server.
    Diagnose(DiagnoseArgs),
    /// Add users and give them passwords, also while a server runs.
    User(UserArgs),
    /// Save all that a data folder holds in one file, also while a server runs.
    Backup(BackupArgs),
    /// Make a data folder of such a file.
    Restore(RestoreArgs),
    /// Move what a data folder holds to a database server, and to a bucket.
    MigrateData(MigrateDataArgs),
    /// Do work in the background for servers that share a database and a bucket.
    Worker(WorkerArgs),
    /// Look at the settings of a server before it is started.
    Config {
        /// What to do.
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

/// `rankscope serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Where more settings are.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_CONFIG", help = CONFIG)]
    pub config: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3000", env = "RANKSCOPE_LISTEN")]
    pub listen: SocketAddr,
    /// Folder for the database and the files.
    #[arg(long, value_name = "DIR", default_value = "./data", env = "RANKSCOPE_DATA")]
    pub data: PathBuf,
    /// Where the rows are, if not in a file of the folder.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_DATABASE_URL", hide_env_values = true, help = DATABASE_URL)]
    pub database_url: Option<DatabaseUrl>,
    /// Where the files are, if not in the folder.
    #[command(flatten)]
    pub objects: ObjectsArgs,
    /// Largest accepted file, for instance 500MiB or 2GiB.
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_bytes)]
    pub max_file_bytes: u64,
    /// Largest accepted upload in all.
    #[arg(long, value_name = "SIZE", default_value = "8GiB", value_parser = parse_bytes)]
    pub max_request_bytes: u64,
    /// Address under which people reach this server, if it stands behind a proxy or has a name: used in links, and
    /// accepted as host name.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_PUBLIC_URL")]
    pub public_url: Option<PublicUrl>,
    /// File with the token that agents and probes must show. Without it only this machine may send.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_AGENT_TOKEN_FILE")]
    pub agent_token_file: Option<PathBuf>,
    /// Room for live samples on disk, or in a shared database; the oldest go first, those of jobs that have ended before others.
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_bytes)]
    pub live_keep_bytes: u64,
    /// Jobs in the background at once: files that take long to read, and runs past the limits of their project. With 0 they
    /// wait for a rankscope worker.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(0..=16), env = "RANKSCOPE_WORKERS")]
    pub workers: u8,
    /// Address that is told, once per run, when an imbalance or a context leak is found while a job runs: a JSON text
    /// as Slack and others take it.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_WEBHOOK_URL", hide_env_values = true)]
    pub webhook_url: Option<String>,
    /// Prometheus-compatible server (Thanos, Mimir, VictoriaMetrics) from which visitors may bring in GPU memory as a run.
    /// May be given several times; no other address is ever asked.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_PROMETHEUS", value_delimiter = ',')]
    pub prometheus: Vec<Source>,
    /// Serve without accounts also where other machines can reach it: whoever does can read, change and delete every
    /// run. Without this, such an address asks for a first administrator.
    #[arg(long)]
    pub open_to_network: bool,
    /// Network of proxies that may say from where people come (X-Forwarded-For). May be given several times.
    #[arg(long, value_name = "CIDR", value_parser = network, value_delimiter = ',', env = "RANKSCOPE_TRUSTED_PROXY")]
    pub trusted_proxy: Vec<IpNet>,
    /// Header in which those proxies name the user for whom they ask. They must remove it from what people send.
    #[arg(long, value_name = "NAME", env = "RANKSCOPE_PROXY_USER_HEADER")]
    pub proxy_user_header: Option<HeaderName>,
    /// Who else says who comes.
    #[command(flatten)]
    pub oidc: OidcArgs,
    /// Do not sample this machine's own GPUs.
    #[arg(long)]
    pub no_sampler: bool,
    /// The driver's management library, where it is not the system's.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_NVML_LIBRARY")]
    pub nvml_library: Option<PathBuf>,
    /// Where the processes on this machine's GPUs are looked up: the host's /proc, if that is mounted elsewhere.
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub proc: PathBuf,
}

impl ServeArgs {
    /// Settings that do not go together, wherever each of them comes from; one sentence each.
    pub fn contradictions(&self) -> Vec<&'static str> {
        let larger = (self.max_request_bytes < self.max_file_bytes).then_some(
            "max-request-bytes is smaller than max-file-bytes, so no file of that size could ever arrive: make it larger",
        );
        let trusted = (self.proxy_user_header.is_some() && self.trusted_proxy.is_empty()).then_some(
            "proxy-user-header names a header, and trusted-proxy nobody who may send it: say from which network the proxy \
             comes",
        );
        let sign_in = self.oidc.contradictions(self);
        let nobody = (self.workers == 0 && (self.database_url.is_none() || self.objects.objects.is_none())).then_some(
            "workers is 0, and without database-url and objects no `rankscope worker` can do the work for this server",
        );
        larger.into_iter().chain(nobody).chain(trusted).chain(self.objects.contradiction()).chain(sign_in).collect()
    }
}

/// `rankscope worker`
#[derive(Debug, Args)]
#[command(
    after_help = "Servers do this work themselves, one job at a time (`serve --workers`). Workers take it off them, on the same \
    machine or on others, as many as are wanted: each job is done by one of them, and by another if that one ends."
)]
pub struct WorkerArgs {
    /// Where more settings are.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_CONFIG", help = CONFIG)]
    pub config: Option<PathBuf>,
    /// Folder for files while they are read; each worker needs one of its own.
    #[arg(long, value_name = "DIR", default_value = "./data", env = "RANKSCOPE_DATA")]
    pub data: PathBuf,
    /// Where the servers' rows are.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_DATABASE_URL", hide_env_values = true, help = DATABASE_URL)]
    pub database_url: Option<DatabaseUrl>,
    /// Where the servers' files are.
    #[command(flatten)]
    pub objects: ObjectsArgs,
    /// Jobs at once.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub at_once: u8,
}

/// A provider of sign-ins.
#[derive(Debug, Args)]
pub struct OidcArgs {
    /// Which one.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_OIDC_ISSUER", help = OIDC_ISSUER)]
    pub oidc_issuer: Option<Issuer>,
    /// Name under which the provider knows this server.
    #[arg(long, value_name = "ID", env = "RANKSCOPE_OIDC_CLIENT_ID", value_parser = one_line)]
    pub oidc_client_id: Option<String>,
    /// File with the secret that belongs to it.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_OIDC_CLIENT_SECRET_FILE")]
    pub oidc_client_secret_file: Option<PathBuf>,
    /// What people know the provider by: the button says Sign in with LABEL. Otherwise the name of its host.
    #[arg(long, value_name = "LABEL", env = "RANKSCOPE_OIDC_LABEL")]
    pub oidc_label: Option<Label>,
    /// What becomes of who comes for the first time.
    #[arg(
        long,
        value_enum,
        value_name = "ask|account|viewer",
        default_value = "ask",
        env = "RANKSCOPE_OIDC_NEW_USERS",
        hide_possible_values = true,
        help = OIDC_NEW_USERS
    )]
    pub oidc_new_users: NewUsers,
    /// Domain of e-mail addresses, verified by the provider, whose owners may come in; nobody else. May be given several
    /// times.
    #[arg(long, value_name = "DOMAIN", value_parser = domain, value_delimiter = ',', env = "RANKSCOPE_OIDC_EMAIL_DOMAIN")]
    pub oidc_email_domain: Vec<String>,
    /// Group of the provider whose members may come in; nobody else. May be given several times.
    #[arg(long, value_name = "GROUP", value_parser = one_line, value_delimiter = ',', env = "RANKSCOPE_OIDC_GROUP")]
    pub oidc_group: Vec<String>,
    /// Claim in which the provider lists somebody's groups.
    #[arg(long, value_name = "NAME", default_value = "groups", env = "RANKSCOPE_OIDC_GROUPS_CLAIM", value_parser = one_line)]
    pub oidc_groups_claim: String,
    /// What the provider is asked to say of somebody, beside openid. May be given several times.
    #[arg(
        long,
        value_name = "SCOPE",
        default_values = ["profile", "email"],
        value_parser = scope,
        value_delimiter = ',',
        env = "RANKSCOPE_OIDC_SCOPE"
    )]
    pub oidc_scope: Vec<String>,
    /// File with the certificates (PEM) of the authorities from which the provider's certificate may come, instead of
    /// Mozilla's list.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_OIDC_CA_FILE")]
    pub oidc_ca_file: Option<PathBuf>,
}

impl OidcArgs {
    fn contradictions(&self, serve: &ServeArgs) -> Vec<&'static str> {
        let is_told_how = self.oidc_client_id.is_some()
            || self.oidc_client_secret_file.is_some()
            || self.oidc_label.is_some()
            || self.oidc_ca_file.is_some()
            || !self.oidc_email_domain.is_empty()
            || !self.oidc_group.is_empty();
        if self.oidc_issuer.is_none() {
            let alone = "settings of oidc- are there, and oidc-issuer, which names the provider, is not: nobody could sign in \
                with it";
            return if is_told_how { vec![alone] } else { Vec::new() };
        }
        let is_whole = self.oidc_client_id.is_some() && self.oidc_client_secret_file.is_some();
        [
            (!is_whole).then_some(
                "oidc-issuer names a provider, and oidc-client-id or oidc-client-secret-file, by which it knows this server, \
                 is missing",
            ),
            serve.public_url.is_none().then_some(
                "oidc-issuer names a provider, and public-url, the address to which it sends people back, is missing",
            ),
            serve.proxy_user_header.is_some().then_some(
                "oidc-issuer and proxy-user-header both say who comes, and one could give the other's names to strangers: \
                 leave one out",
            ),
            serve.open_to_network.then_some(
                "open-to-network serves everybody without accounts, and oidc-issuer signs people in: leave one out",
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Where objects are: files as uploaded, and what was made of them. For every command that touches them.
#[derive(Debug, Default, Args)]
pub struct ObjectsArgs {
    /// Which bucket, and where in it.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_OBJECTS", help = OBJECTS)]
    pub objects: Option<BucketUrl>,
    /// Who keeps it.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_OBJECTS_ENDPOINT", help = OBJECTS_ENDPOINT)]
    pub objects_endpoint: Option<Endpoint>,
    /// Its region.
    #[arg(long, value_name = "NAME", env = "RANKSCOPE_OBJECTS_REGION", help = OBJECTS_REGION)]
    pub objects_region: Option<String>,
    /// How it is named.
    #[arg(
        long,
        value_enum,
        value_name = "path|host",
        env = "RANKSCOPE_OBJECTS_STYLE",
        hide_possible_values = true,
        help = OBJECTS_STYLE
    )]
    pub objects_style: Option<Style>,
    /// File with the credentials, in the form of ~/.aws/credentials, instead of those of the environment.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_OBJECTS_CREDENTIALS_FILE")]
    pub objects_credentials_file: Option<PathBuf>,
    /// File with the certificates (PEM) of the authorities from which the certificate of the bucket's server may come,
    /// instead of Mozilla's list.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_OBJECTS_CA_FILE")]
    pub objects_ca_file: Option<PathBuf>,
    /// Let the bucket's server be asked without TLS, where its address begins with http://.
    #[arg(long)]
    pub objects_plain_http: bool,
}

impl ObjectsArgs {
    /// What is set about the bucket, if there is one.
    pub fn bucket(&self) -> Option<BucketSettings> {
        Some(BucketSettings {
            url: self.objects.clone()?,
            endpoint: self.objects_endpoint.clone(),
            region: self.objects_region.clone(),
            style: self.objects_style,
            plain_http: self.objects_plain_http,
            credentials_file: self.objects_credentials_file.clone(),
            ca_file: self.objects_ca_file.clone(),
        })
    }

    fn contradiction(&self) -> Option<&'static str> {
        let is_told_how = self.objects_endpoint.is_some() || self.objects_credentials_file.is_some();
        (self.objects.is_none() && is_told_how).then_some(
            "objects-endpoint or objects-credentials-file is set, and objects, which names the bucket, is not: files would \
             go into the data folder",
        )
    }
}

/// `rankscope agent`
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Address of the server.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_URL")]
    pub server: PublicUrl,
    /// File with the token that the server asks for. Read anew for each batch.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// File with the certificates (PEM) of the authorities from which the server's certificate may come, instead of
    /// Mozilla's list.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Name of this node, if it is not to be its host name.
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    pub node: Option<String>,
    /// Samples of memory per second, 1 to 50.
    #[arg(long, value_name = "N", default_value = "10", value_parser = hz)]
    pub hz: Hz,
    /// Folder for what the server has not taken yet.
    #[arg(long, value_name = "DIR", default_value = "./agent-spool", env = "RANKSCOPE_SPOOL")]
    pub spool: PathBuf,
    /// Most bytes in it; beyond that the oldest samples are given up, and counted.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub spool_bytes: u64,
    /// The driver's management library, where it is not the system's.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_NVML_LIBRARY")]
    pub nvml_library: Option<PathBuf>,
    /// Where processes are looked up: the host's /proc, if that is mounted elsewhere.
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub proc: PathBuf,
}

fn hz(text: &str) -> Result<Hz, String> {
    let hz = text.parse().ok().and_then(Hz::new);
    hz.ok_or_else(|| format!("{text:?} is not a whole number from 1 to {}", Hz::MOST))
}

/// As batches carry it.
fn node_name(text: &str) -> Result<String, String> {
    let fits = !text.trim().is_empty() && text.len() <= 128 && !text.contains(char::is_control);
    fits.then(|| text.trim().to_owned())
        .ok_or_else(|| "a node's name has 1 to 128 bytes and no control characters".into())
}

/// What must not be empty and stands on one line.
fn one_line(text: &str) -> Result<String, String> {
    let text = text.trim();
    let fits = !text.is_empty() && text.len() <= 256 && !text.contains(char::is_control);
    fits.then(|| text.to_owned()).ok_or_else(|| "it has 1 to 256 bytes and no control characters".into())
}

/// A domain as it stands behind the @ of an address.
fn domain(text: &str) -> Result<String, String> {
    let domain = text.trim().trim_start_matches('@').to_lowercase();
    let is_plain = domain.chars().all(|sign| sign.is_alphanumeric() || matches!(sign, '.' | '-'));
    let fits = is_plain && domain.len() <= 253 && domain.starts_with(char::is_alphanumeric);
    fits.then_some(domain).ok_or_else(|| format!("{text:?} is not a domain such as example.org"))
}

/// A word of RFC 6749.
fn scope(text: &str) -> Result<String, String> {
    let is_word = text.bytes().all(|sign| sign.is_ascii_graphic() && !matches!(sign, b'"' | b'\\'));
    let fits = is_word && !text.is_empty() && text.len() <= 128;
    fits.then(|| text.to_owned()).ok_or_else(|| format!("{text:?} is not a scope such as email"))
}

/// `10.0.0.0/8`, or one address.
fn network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    let network = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    network.ok_or_else(|| format!("{text:?} is not a network such as 10.0.0.0/8"))
}

/// `rankscope user`
#[derive(Debug, Args)]
pub struct UserArgs {
    /// Where more settings are.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_CONFIG", global = true, help = CONFIG)]
    pub config: Option<PathBuf>,
    /// Folder of the server.
    #[arg(long, value_name = "DIR", default_value = "./data", env = "RANKSCOPE_DATA", global = true)]
    pub data: PathBuf,
    /// Where the server's rows are, if not in a file of the folder.
    #[arg(
        long,
        value_name = "URL",
        env = "RANKSCOPE_DATABASE_URL",
        hide_env_values = true,
        global = true,
        help = DATABASE_URL
    )]
    pub database_url: Option<DatabaseUrl>,
    /// Address under which people reach the server, for links.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_PUBLIC_URL", global = true)]
    pub public_url: Option<PublicUrl>,
    /// What to do.
    #[command(subcommand)]
    pub command: UserCommand,
}

/// What `rankscope user` does.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a user and print the link with which the user chooses a password. The first user is an administrator.
    Add {
        /// Letters, digits and . _ - @ +
        name: String,
        /// May do everything.
        #[arg(long)]
        admin: bool,
        /// Read the password from standard input instead.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Print a link with which a user chooses a new password.
    Passwd {
        /// Name of the user.
        name: String,
        /// Read the password from standard input instead, and end the user's sessions.
        #[arg(long)]
        password_stdin: bool,
    },
    /// List the users.
    List,
}

/// `rankscope backup`
#[derive(Debug, Args)]
#[command(
    after_help = "The file holds runs, files, reports, shares and accounts as they were at one moment. Live samples \
    that still move are not in it. Files in a bucket are read from it; the data folder needs room for them once. Where \
    the rows are in PostgreSQL, save them with pg_dump, and then the folder objects or the bucket."
)]
pub struct BackupArgs {
    /// Where more settings are.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_CONFIG", help = CONFIG)]
    pub config: Option<PathBuf>,
    /// Folder of the server.
    #[arg(long, value_name = "DIR", default_value = "./data", env = "RANKSCOPE_DATA")]
    pub data: PathBuf,
    /// Where its objects are.
    #[command(flatten)]
    pub objects: ObjectsArgs,
    /// Tar file to write; it must not exist. - for standard output.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `rankscope restore`
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Where more settings are.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_CONFIG", help = CONFIG)]
    pub config: Option<PathBuf>,
    /// Folder to make; it must not exist, or be empty.
    #[arg(long, value_name = "DIR", default_value = "./data", env = "RANKSCOPE_DATA")]
    pub data: PathBuf,
    /// Where its objects are to be.
    #[command(flatten)]
    pub objects: ObjectsArgs,
    /// File that `rankscope backup` wrote, or - for standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `rankscope migrate-data`
#[derive(Debug, Args)]
#[command(
    after_help = "The server must be stopped, and the database empty. Rows and objects are counted and compared by their \
    hashes before anything is said to be moved; the folder stays as it was. Samples of jobs that still run stay in it."
)]
pub struct MigrateDataArgs {
    /// Where more settings are.
    #[arg(long, value_name = "FILE", env = "RANKSCOPE_CONFIG", help = CONFIG)]
    pub config: Option<PathBuf>,
    /// Folder of the server, with the database in it.
    #[arg(long, value_name = "DIR", default_value = "./data", env = "RANKSCOPE_DATA")]
    pub data: PathBuf,
    /// Where the rows are to be.
    #[arg(long, value_name = "URL", env = "RANKSCOPE_DATABASE_URL", hide_env_values = true, help = DATABASE_URL)]
    pub database_url: DatabaseUrl,
    /// Where the objects are to be; without it they stay in the folder.
    #[command(flatten)]
    pub objects: ObjectsArgs,
}

/// What `rankscope config` does.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print each setting with where it comes from, and try what can be tried without starting the server.
    Check(CheckArgs),
}

/// `rankscope config check`
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status:\n  0  the server would start\n  1  it would not, or not work as set: the reasons are \
    printed\n  2  the command line cannot be read"
)]
pub struct CheckArgs {
    /// The configuration file; without it the one that the environment names, if it names one.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// What else serve is given.
    #[command(flatten)]
    pub serve: ServeArgs,
}

impl CheckArgs {
    /// The configuration file, if there is one.
    pub fn config(&self) -> Option<&std::path::Path> {
        self.file.as_deref().or(self.serve.config.as_deref())
    }
}

/// `rankscope diagnose`
#[derive(Debug, Args)]
#[command(after_help = "Exit status:\n  0  done; a file of a folder that cannot be read is named in the result\n  \
    1  the --fail-on condition holds\n  2  nothing to diagnose, or a FILE or DIR that was named cannot be read: the rest \
    is still reported")]
pub struct DiagnoseArgs {
    /// How to write the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Exit with status 1 if this is the verdict.
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub fail_on: Option<FailOn>,
    /// Files or a folder of the run before a fix: says whether the difference is gone. May be given several times.
    #[arg(long, value_name = "FILE|DIR")]
    pub baseline: Vec<PathBuf>,
    /// Also read the GPUs of this machine now, through the driver.
    #[arg(long)]
    pub nvml: bool,
    /// Files, folders (their files, without hidden ones), or - for standard input.
    #[arg(required_unless_present = "nvml", value_name = "FILE|DIR|-")]
    pub inputs: Vec<PathBuf>,
}

/// Formats of `rankscope diagnose`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For reading in the terminal.
    Text,
    /// `rankscope.diagnosis/1`.
    Json,
    /// One self-contained page.
    Html,
    /// For an issue or a chat.
    Markdown,
}

/// Conditions of `--fail-on`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Some ranks or devices use more than the others.
    Imbalance,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_agent_needs_only_its_server() {
        let parsed = |extra: &[&str]| {
            let words = ["rankscope", "agent", "--server", "https://rankscope.example.org/"].iter().chain(extra);
            match Cli::try_parse_from(words) {
                Ok(Cli { command: Command::Agent(args) }) => Some(args),
                _ => None,
            }
        };
        let args = parsed(&[]).unwrap();
        assert_eq!((args.server.to_string().as_str(), args.hz.get()), ("https://rankscope.example.org", 10));
        assert_eq!(args.spool_bytes, 256 << 20);
        assert_eq!(parsed(&["--node", " gpu7 "]).unwrap().node.as_deref(), Some("gpu7"));
        for wrong in [["--hz", "0"], ["--hz", "51"], ["--hz", "1.5"], ["--node", " "], ["--node", "a\nb"]] {
            assert!(parsed(&wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn one_request_holds_the_largest_file() {
        let sizes = |file, request| {
            let words = ["rankscope", "serve", "--max-file-bytes", file, "--max-request-bytes", request];
            let Ok(Cli { command: Command::Serve(args) }) = Cli::try_parse_from(words) else { panic!("{words:?}") };
            args.contradictions().len()
        };
        assert_eq!((sizes("2GiB", "2GiB"), sizes("2GiB", "1GiB")), (0, 1));
    }

    #[test]
    fn a_provider_is_named_whole_and_alone() {
        let parsed = |extra: &[&str]| match Cli::try_parse_from(["rankscope", "serve"].iter().chain(extra)) {
            Ok(Cli { command: Command::Serve(args) }) => Some(args),
            _ => None,
        };
        let whole = [
            "--oidc-issuer",
            "https://id.example.org",
            "--oidc-client-id",
            "rankscope",
            "--oidc-client-secret-file",
            "/etc/secret",
            "--public-url",
            "https://rankscope.example.org",
        ];
        let told = |extra: &[&str]| parsed(&[&whole[..], extra].concat()).unwrap().contradictions();
        assert_eq!(told(&[]), [""; 0]);
        for part in [0, 2, 4, 6] {
            let mut words = whole.to_vec();
            words.drain(part..part + 2);
            assert_eq!(parsed(&words).unwrap().contradictions().len(), 1, "{words:?}");
        }
        assert!(told(&["--open-to-network"])[0].contains("leave one out"));
        let proxy = ["--trusted-proxy", "10.0.0.4", "--proxy-user-header", "X-Remote-User"];
        assert!(told(&proxy)[0].contains("proxy-user-header"));
        assert!(parsed(&["--oidc-group", "ml"]).unwrap().contradictions()[0].contains("oidc-issuer"));

        let args = parsed(&["--oidc-email-domain", "@Example.org,b.org", "--oidc-new-users", "viewer"]).unwrap().oidc;
        assert_eq!(args.oidc_email_domain, ["example.org", "b.org"]);
        assert_eq!((args.oidc_scope.join(" "), args.oidc_groups_claim.as_str()), ("profile email".into(), "groups"));
        for wrong in [
            ["--oidc-issuer", "http://id.example.org"],
            ["--oidc-email-domain", "*"],
            ["--oidc-scope", "a b"],
            ["--oidc-label", " "],
            ["--oidc-new-users", "admin"],
            ["--oidc-client-id", ""],
        ] {
            assert!(parsed(&wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn proxies_are_networks_and_speak_for_nobody_without_one() {
        let parsed = |extra: &[&str]| match Cli::try_parse_from(["rankscope", "serve"].iter().chain(extra)) {
            Ok(Cli { command: Command::Serve(args) }) => Some(args),
            _ => None,
        };
        let args = parsed(&["--trusted-proxy", "10.0.0.0/8,::1", "--proxy-user-header", "X-Remote-User"]).unwrap();
        assert_eq!(args.trusted_proxy.len(), 2);
        assert_eq!(args.contradictions(), [""; 0]);
        let alone = parsed(&["--proxy-user-header", "X-Remote-User"]).unwrap().contradictions();
        assert!(alone.len() == 1 && alone[0].contains("trusted-proxy"), "{alone:?}");
        for wrong in ["10.0.0.0/33", "example.org", "*"] {
            assert!(parsed(&["--trusted-proxy", wrong]).is_none(), "{wrong}");
        }
    }
}
