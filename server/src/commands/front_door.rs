//! Who may come in to `serve`: builds the gate from the command line, and says on the console what is not as safe as it
//! could be, and where the first administrator is made.

use crate::{
    access::{Gate, Proxies, WithoutUsers},
    accounts::{Accounts, FIRST_LINK},
    cli::ServeArgs,
    oidc::{Admission, CALLBACK, Provider, Settings},
    store::Store,
};
use anyhow::{Context, bail};
use std::{fs, net::SocketAddr, path::Path};

/// The gate of a server that is about to listen.
pub fn gate(args: &ServeArgs, store: &Store) -> Gate {
    let proxies = Proxies { networks: args.trusted_proxy.clone(), user_header: args.proxy_user_header.clone() };
    // Where a proxy or a provider says who comes, it matters who comes, also on a loopback address.
    let asks_others = proxies.user_header.is_some() || args.oidc.oidc_issuer.is_some();
    let is_for_one = args.listen.ip().is_loopback() && !asks_others;
    let without_users = if is_for_one || args.open_to_network { WithoutUsers::Open } else { WithoutUsers::SetUp };
    Gate::new(Accounts::of(store), without_users, proxies)
}

/// The provider with which people sign in, if one is set. Nobody is asked yet: it may be away when a server starts.
pub fn provider(args: &ServeArgs) -> anyhow::Result<Option<Provider>> {
    let oidc = &args.oidc;
    let (Some(issuer), Some(client_id), Some(secret_file), Some(public_url)) =
        (&oidc.oidc_issuer, &oidc.oidc_client_id, &oidc.oidc_client_secret_file, &args.public_url)
    else {
        return Ok(None);
    };
    let label = oidc.oidc_label.as_ref().map_or_else(|| issuer.host(), ToString::to_string);
    let settings = Settings {
        issuer: issuer.clone(),
        client_id: client_id.clone(),
        client_secret: read_secret(secret_file)?,
        redirect: format!("{public_url}{CALLBACK}"),
        label,
        scopes: oidc.oidc_scope.iter().filter(|scope| *scope != "openid").cloned().collect(),
        admission: Admission {
            domains: oidc.oidc_email_domain.clone(),
            groups: oidc.oidc_group.clone(),
            groups_claim: oidc.oidc_groups_claim.clone(),
        },
        ca_file: oidc.oidc_ca_file.clone(),
    };
    Provider::new(settings).map(Some).context("--oidc-issuer")
}

/// The provider's secret from its file, without the line's end.
fn read_secret(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let secret = text.trim();
    if secret.is_empty() || secret.contains(char::is_control) {
        bail!("{} holds no secret of a provider: it must be one line of text", path.display());
    }
    Ok(secret.to_owned())
}

/// Prints the link for the first administrator, if one is needed, and warns of what is open. `has_others`: other servers
/// may have printed a link too, which goes on to work.
pub async fn announce(args: &ServeArgs, gate: &Gate, address: SocketAddr, has_others: bool) -> anyhow::Result<()> {
    let is_local = address.ip().is_loopback();
    let is_https = args.public_url.as_ref().is_some_and(|url| url.to_string().starts_with("https://"));
    if gate.accounts.is_set_up().await? {
        if args.open_to_network {
            tracing::warn!("--open-to-network has no effect: there are accounts, and everybody has to sign in");
        }
        if !is_local && !is_https {
            warn_of_plain_http();
        }
        return Ok(());
    }
    match gate.without_users {
        WithoutUsers::Open if !is_local => tracing::warn!(
            %address,
            "WITHOUT ACCOUNTS AND OPEN TO THE NETWORK: whoever reaches this address can read, change and delete every run"
        ),
        WithoutUsers::Open if args.public_url.is_some() => tracing::warn!(
            "without accounts: whoever the proxy lets through can read, change and delete every run. Make the first \
             account with: rankscope user add NAME"
        ),
        WithoutUsers::Open => {}
        WithoutUsers::SetUp => {
            let secret = if has_others {
                gate.accounts.one_more_first_link().await?
            } else {
                gate.accounts.new_set_up_link(None).await?
            };
            let base =
                args.public_url.as_ref().map_or_else(|| format!("http://{}", reachable(address)), ToString::to_string);
            println!("There is no administrator yet, so nothing else is served. Make the first one here:");
            println!("  {base}/setup/{secret}");
            println!(
                "The link works once, for {} minutes, also under another name of this machine. A restart makes a new one.",
                FIRST_LINK.as_secs() / 60
            );
            if !is_local && !is_https {
                warn_of_plain_http();
            }
        }
    }
    Ok(())
}

fn warn_of_plain_http() {
    tracing::warn!(
        "passwords and sessions cross the network unencrypted: put a proxy with TLS in front, and say so with --public-url \
         https://NAME"
    );
}

/// An address that a browser on this machine can open.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], v4.port())),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], v6.port())),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    async fn without_users(extra: &[&str]) -> WithoutUsers {
        let words = ["rankscope", "serve"].iter().chain(extra);
        let Ok(Cli { command: Command::Serve(args) }) = Cli::try_parse_from(words) else { panic!("{extra:?}") };
        let folder = tempfile::tempdir().unwrap();
        gate(&args, &Store::open(folder.path()).await.unwrap()).without_users
    }

    #[tokio::test]
    async fn only_loopback_and_who_says_so_are_open_without_accounts() {
        assert_eq!(without_users(&[]).await, WithoutUsers::Open);
        assert_eq!(without_users(&["--listen", "[::1]:0"]).await, WithoutUsers::Open);
        assert_eq!(without_users(&["--listen", "0.0.0.0:0"]).await, WithoutUsers::SetUp);
        assert_eq!(without_users(&["--listen", "10.0.0.1:80"]).await, WithoutUsers::SetUp);
        assert_eq!(without_users(&["--listen", "0.0.0.0:0", "--open-to-network"]).await, WithoutUsers::Open);
        let proxied = ["--trusted-proxy", "127.0.0.1", "--proxy-user-header", "X-Remote-User"];
        assert_eq!(without_users(&proxied).await, WithoutUsers::SetUp);
        assert_eq!(without_users(&["--oidc-issuer", "https://id.example.org"]).await, WithoutUsers::SetUp);
    }

    #[test]
    fn links_lead_to_an_address_that_can_be_opened() {
        assert_eq!(reachable("0.0.0.0:3000".parse().unwrap()).to_string(), "127.0.0.1:3000");
        assert_eq!(reachable("[::]:3000".parse().unwrap()).to_string(), "[::1]:3000");
        assert_eq!(reachable("10.0.0.1:3000".parse().unwrap()).to_string(), "10.0.0.1:3000");
    }
}
