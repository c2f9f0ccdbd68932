//! NCCL's configuration files. A line `NAME=value` sets a variable that the environment does not set (NCCL, `src/misc/param.cc`), so a file
//! that one host alone has makes another library of NCCL there.

use crate::digest::sha256;

/// The parts of NCCL's log that a run asks for itself, in `NCCL_DEBUG_SUBSYS`: nothing is logged in calls.
pub const OWN_LOG: &str = "INIT,NET,P2P,SHM,COLL_NET";

/// Read on every host; after the user's file.
const OF_THE_HOST: &str = "/etc/nccl.conf";

/// A file that NCCL reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclConf {
    /// Its path.
    pub path: String,
    /// SHA-256 of its text, in hexadecimal.
    pub sha256: String,
    /// The variables that it sets in effect, in its order.
    pub variables: Vec<(String, String)>,
}

impl NcclConf {
    /// The names of its variables, whose values may be secret.
    pub fn names(&self) -> String {
        self.variables.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(", ")
    }
}

/// The files that there are, in the order in which NCCL reads them. The environment and the text of a file are asked for by name.
pub fn nccl_conf(variable: &dyn Fn(&str) -> Option<String>, read: &dyn Fn(&str) -> Option<String>) -> Vec<NcclConf> {
    let named = variable("NCCL_CONF_FILE").filter(|path| !path.is_empty());
    let of_user = named.or_else(|| Some(format!("{}/.nccl.conf", variable("HOME")?)));
    let mut files: Vec<NcclConf> = Vec::new();
    for path in of_user.into_iter().chain([OF_THE_HOST.to_owned()]) {
        let Some(text) = read(&path) else { continue };
        let mut variables: Vec<(String, String)> = Vec::new();
        for (name, value) in text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='))
        {
            let mut before = files.iter().flat_map(|file| &file.variables).chain(&variables);
            if variable(name).is_none() && !before.any(|(known, _)| known == name) {
                variables.push((name.to_owned(), value.to_owned()));
            }
        }
        files.push(NcclConf { path, sha256: sha256(text.as_bytes()), variables });
    }
    files
}

/// Those of this process.
pub fn nccl_conf_of_this_process() -> Vec<NcclConf> {
    nccl_conf(&|name| std::env::var(name).ok(), &|path| std::fs::read_to_string(path).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_comes_first_then_the_file_of_the_user_then_that_of_the_host() {
        let files = [
            (
                "/home/u/.nccl.conf",
                "# NCCL_ALGO=Tree\nNCCL_ALGO=Ring\r\nNCCL_DEBUG=WARN\nno assignment\nNCCL_ALGO=Tree\n",
            ),
            ("/etc/nccl.conf", "NCCL_ALGO=Tree\nNCCL_IB_HCA=mlx5_0=1\nNCCL_PROTO=LL"),
            ("/shared/c", "NCCL_NVLS_ENABLE=0"),
        ];
        let read = |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
        type Set = &'static [(&'static str, &'static str)];
        for (environment, expected) in [
            (
                &[("HOME", "/home/u"), ("NCCL_PROTO", "Simple")][..],
                &[
                    ("/home/u/.nccl.conf", &[("NCCL_ALGO", "Ring"), ("NCCL_DEBUG", "WARN")][..]),
                    ("/etc/nccl.conf", &[("NCCL_IB_HCA", "mlx5_0=1")]),
                ][..],
            ),
            (
                &[("HOME", "/home/u"), ("NCCL_CONF_FILE", "/shared/c"), ("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL")],
                &[("/shared/c", &[("NCCL_NVLS_ENABLE", "0")]), ("/etc/nccl.conf", &[("NCCL_IB_HCA", "mlx5_0=1")])],
            ),
            (
                &[("HOME", "/home/other"), ("NCCL_ALGO", "x"), ("NCCL_IB_HCA", "x"), ("NCCL_PROTO", "x")],
                &[("/etc/nccl.conf", &[] as Set)],
            ),
        ] {
            let variable =
                |name: &str| environment.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
            let found = nccl_conf(&variable, &read);
            let found: Vec<(&str, Vec<(&str, &str)>)> = (found.iter())
                .map(|file| (&*file.path, file.variables.iter().map(|(name, value)| (&**name, &**value)).collect()))
                .collect();
            let expected: Vec<(&str, Vec<(&str, &str)>)> =
                expected.iter().map(|(path, set)| (*path, set.to_vec())).collect();
            assert_eq!(found, expected, "{environment:?}");
        }
        assert!(nccl_conf(&|_| None, &|_| None).is_empty());
    }
}
