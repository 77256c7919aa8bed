//! Proxies that are trusted: they may say for whom they speak, and from where that one comes. Anybody else who sends
//! such headers is not listened to.

use crate::{accounts::UserName, listener::Peer};
use axum::http::{Extensions, HeaderMap, HeaderName};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr};

/// Networks from which trusted proxies come, and the header in which they name their user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// Networks.
    pub networks: Vec<IpNet>,
    /// Without it proxies say from where people come, but not who they are.
    pub user_header: Option<HeaderName>,
}

impl Proxies {
    fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The other side of the connection.
    fn peer(extensions: &Extensions) -> IpAddr {
        // Only tests ask without a connection.
        let peer = extensions.get::<Peer>().map(|Peer(peer)| peer.ip());
        peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)).to_canonical()
    }

    /// From where a request comes: the other side of the connection, or what the trusted proxies there say. The list is
    /// read from its end, where the last proxy wrote; what a visitor put in front counts for nothing.
    pub fn client(&self, extensions: &Extensions, headers: &HeaderMap) -> IpAddr {
        let mut client = Self::peer(extensions);
        let hops: Vec<&str> = headers
            .get_all("x-forwarded-for")
            .iter()
            .filter_map(|hops| hops.to_str().ok())
            .flat_map(|hops| hops.split(','))
            .collect();
        for hop in hops.into_iter().rev() {
            if !self.trusts(client) {
                break;
            }
            let Ok(address) = hop.trim().parse::<IpAddr>() else { break };
            client = address.to_canonical();
        }
        client
    }

    /// The user for whom a trusted proxy speaks. Two names are none.
    pub fn user(&self, extensions: &Extensions, headers: &HeaderMap) -> Option<UserName> {
        let header = self.user_header.as_ref()?;
        if !self.trusts(Self::peer(extensions)) {
            return None;
        }
        let mut names = headers.get_all(header).iter();
        let name = names.next()?.to_str().ok()?.parse().ok()?;
        names.next().is_none().then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies() -> Proxies {
        Proxies {
            networks: vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()],
            user_header: Some(HeaderName::from_static("x-remote-user")),
        }
    }

    fn from(address: &str) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(Peer((address.parse::<IpAddr>().unwrap(), 1).into()));
        extensions
    }

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_trusted_networks_name_a_user() {
        let ada = headers(&[("x-remote-user", "Ada")]);
        let user =
            |from: &Extensions, headers: &HeaderMap| proxies().user(from, headers).map(|name| name.as_str().to_owned());
        assert_eq!(user(&from("10.1.2.3"), &ada).as_deref(), Some("ada"));
        assert_eq!(user(&from("::ffff:10.1.2.3"), &ada).as_deref(), Some("ada"));
        for stranger in ["10.2.0.1", "127.0.0.1", "::1", "192.168.0.1"] {
            assert_eq!(user(&from(stranger), &ada), None, "{stranger}");
        }
        assert_eq!(user(&from("10.1.2.3"), &headers(&[("x-remote-user", "a"), ("x-remote-user", "b")])), None);
        assert_eq!(user(&from("10.1.2.3"), &headers(&[("x-remote-user", "a b")])), None);
        let without = Proxies { user_header: None, ..proxies() };
        assert_eq!(without.user(&from("10.1.2.3"), &ada), None);
    }

    #[test]
    fn visitors_cannot_choose_their_address() {
        let client =
            |from: &Extensions, hops: &str| proxies().client(from, &headers(&[("x-forwarded-for", hops)])).to_string();
        assert_eq!(client(&from("203.0.113.9"), "1.1.1.1"), "203.0.113.9");
        assert_eq!(client(&from("10.1.0.1"), "203.0.113.9"), "203.0.113.9");
        assert_eq!(client(&from("10.1.0.1"), "1.1.1.1, 203.0.113.9"), "203.0.113.9");
        assert_eq!(client(&from("10.1.0.1"), "1.1.1.1, 203.0.113.9, 10.1.0.2"), "203.0.113.9");
        assert_eq!(client(&from("10.1.0.1"), "garbage"), "10.1.0.1");
        assert_eq!(proxies().client(&from("10.1.0.1"), &HeaderMap::new()).to_string(), "10.1.0.1");
    }
}
