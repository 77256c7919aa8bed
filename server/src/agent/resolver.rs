//! Where the server is: its addresses, asked for when they are old, and not before each batch.
//!
//! `ureq` looks a host up before it takes the connection that it has kept, on a thread of its own: a thread and a dozen
//! files a second on every node, for an answer that does not change. An address that stands as a number is never asked
//! for. Its interface is not covered by semver; the lock file holds the version.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use ureq::{
    Error,
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::NextTimeout,
    },
};

/// Addresses are asked for again after this. Of a server that moves, at most so much waits in the spool.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Answers from what it was told last. It is asked for one host only: an agent has one server, and follows no redirect.
#[derive(Debug, Default)]
pub(super) struct KeptAddresses {
    ask: DefaultResolver,
    last: Mutex<Option<(Instant, String, ResolvedSocketAddrs)>>,
}

impl Resolver for KeptAddresses {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        if let Some(address) = literal(uri) {
            let mut addresses = self.empty();
            addresses.push(address);
            return Ok(addresses);
        }
        let asked = uri.authority().map(ToString::to_string).unwrap_or_default();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, of, addresses)) = &*last
            && since.elapsed() < KEPT_FOR
            && *of == asked
        {
            return Ok(addresses.clone());
        }
        let addresses = self.ask.resolve(uri, config, timeout)?;
        *last = Some((Instant::now(), asked, addresses.clone()));
        Ok(addresses)
    }
}

/// The address that a host is when it stands as a number.
fn literal(uri: &Uri) -> Option<SocketAddr> {
    let host = uri.host()?;
    let address: IpAddr =
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()?;
    let port = uri.port_u16().or(match uri.scheme_str()? {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    })?;
    Some(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(resolver: &KeptAddresses, uri: &str) -> Result<Vec<SocketAddr>, Error> {
        let timeout = NextTimeout { after: Duration::from_secs(5).into(), ..NextTimeout::default() };
        let addresses = resolver.resolve(&uri.parse().unwrap(), &Config::default(), timeout)?;
        Ok(addresses.iter().copied().collect())
    }

    #[test]
    fn numbers_are_addresses() {
        let resolver = KeptAddresses::default();
        for (uri, address) in [
            ("http://127.0.0.1:8717/api", "127.0.0.1:8717"),
            ("http://10.1.2.3/", "10.1.2.3:80"),
            ("https://[::1]/x", "[::1]:443"),
            ("https://[fd00::2]:99/x", "[fd00::2]:99"),
        ] {
            assert_eq!(resolve(&resolver, uri).unwrap(), [address.parse().unwrap()], "{uri}");
        }
        assert!(resolver.last.lock().unwrap().is_none(), "nobody was asked");
    }

    #[test]
    fn a_name_is_asked_for_once_and_no_other_name_gets_its_answer() {
        let resolver = KeptAddresses::default();
        let first = resolve(&resolver, "http://localhost:8717/").unwrap();
        assert!(first.iter().all(|address| address.ip().is_loopback() && address.port() == 8717));
        let since = || resolver.last.lock().unwrap().as_ref().unwrap().0;
        let asked = since();
        assert_eq!(resolve(&resolver, "http://localhost:8717/elsewhere").unwrap(), first);
        assert_eq!(since(), asked);
        let other = resolve(&resolver, "http://localhost:9999/").unwrap();
        assert!(other.iter().all(|address| address.port() == 9999));
        assert!(resolve(&resolver, "http://host.invalid:1/").is_err());
    }
}
