//! A host and a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A host, by name or number, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The name, or the number without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    /// The number, where it is one that other machines cannot reach.
    pub fn loopback(&self) -> Option<IpAddr> {
        let host = if self.host == "localhost" { "127.0.0.1" } else { &self.host };
        host.parse().ok().filter(IpAddr::is_loopback)
    }

    /// Where to listen for those who connect to this address: there, if it is loopback, else on all
    /// interfaces.
    pub(crate) fn interface(&self) -> IpAddr {
        let is_ipv6 = self.host.parse::<Ipv6Addr>().is_ok();
        let all = if is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        self.loopback().unwrap_or(all)
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = "host:port, or [host]:port for IPv6";
        let (host, port) = text.rsplit_once(':').ok_or(wanted)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_plain =
            !host.is_empty() && !host.contains([':', '[', ']']) && !host.contains(char::is_whitespace);
        let host = match bare {
            Some(bare) if bare.parse::<Ipv6Addr>().is_ok() => bare,
            None if is_plain => host,
            _ => return Err(wanted),
        };
        let port = port.parse().map_err(|_| wanted)?;
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(out, "[{}]:{}", self.host, self.port)
        } else {
            write!(out, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, host, port) in
            [("a.b-c:1", "a.b-c", 1), ("10.0.0.1:65535", "10.0.0.1", 65535), ("[fe80::1]:80", "fe80::1", 80)]
        {
            let address: Address = text.parse().unwrap();
            assert_eq!((&*address.host, address.port), (host, port));
            assert_eq!(address.to_string(), text);
        }
        for bad in ["", "a", ":1", "a:", "a:65536", "a:-1", "a b:1", "::1:80", "[a]:1", "[::1:80", "a]:1"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn loopback_is_known() {
        let loopback = |text: &str| text.parse::<Address>().unwrap().loopback().is_some();
        assert!(loopback("localhost:1") && loopback("127.0.0.9:1") && loopback("[::1]:1"));
        assert!(!loopback("10.0.0.1:1") && !loopback("node:1"));
    }

    #[test]
    fn a_store_listens_where_its_address_can_be_reached() {
        for (text, interface) in [
            ("localhost:1", "127.0.0.1"),
            ("[::1]:1", "::1"),
            ("10.0.0.1:1", "0.0.0.0"),
            ("node:1", "0.0.0.0"),
            ("[fe80::1]:1", "::"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.interface().to_string(), interface, "{text}");
        }
    }
}
