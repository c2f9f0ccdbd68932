//! Addresses at which other hosts may reach this one, as listed by the kernel, and its name.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The addresses, followed by the name.
pub(super) fn of_this_host() -> Vec<String> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut found: Vec<String> = version_4(&read("/proc/net/fib_trie")).iter().map(Ipv4Addr::to_string).collect();
    found.extend(version_6(&read("/proc/net/if_inet6")).iter().map(Ipv6Addr::to_string));
    found.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
    found
}

/// Parses the routing table's tree: an address on one line, and on the next whether it is local.
fn version_4(text: &str) -> Vec<Ipv4Addr> {
    let mut found: Vec<Ipv4Addr> = Vec::new();
    let mut latest = None;
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            latest = address.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = latest.filter(|address: &Ipv4Addr| !address.is_loopback())
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// Addresses of 32 hexadecimal digits, one per line; link-local ones are useless without the interface name.
fn version_6(text: &str) -> Vec<Ipv6Addr> {
    let addresses = text.lines().filter_map(|line| u128::from_str_radix(line.split(' ').next()?, 16).ok());
    addresses.map(Ipv6Addr::from_bits).filter(|a| !a.is_loopback() && !a.is_unicast_link_local()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_others_can_reach_are_found_once() {
        let tree = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.77.0.0\n        /24 link UNICAST\n     |-- 10.77.0.2\n        /32 host LOCAL\n     \
                    |-- 127.0.0.1\n        /32 host LOCAL\nLocal:\n     |-- 10.77.0.2\n        /32 host LOCAL\n";
        assert_eq!(version_4(tree), [Ipv4Addr::new(10, 77, 0, 2)]);
        let six = "00000000000000000000000000000001 01 80 10 80 lo\nfe800000000000000000000000000001 02 40 20 80 eth0\n\
                   fd000000000000000000000000000007 02 40 00 80 eth0\nnonsense\n";
        assert_eq!(version_6(six), ["fd00::7".parse::<Ipv6Addr>().unwrap()]);
        assert_eq!((version_4("").len(), version_6("").len()), (0, 0));
    }
}
