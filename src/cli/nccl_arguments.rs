//! The flags of `--backend nccl`. They are known without it too, so that `commgauge run` can check what it hands on.

use crate::error::{Error, Result};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Flags of every launched program that mean something with `--backend nccl` alone.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "With --backend nccl")]
pub struct NcclArguments {
    /// NCCL's file; without it libnccl.so.2, then libnccl.so, from where the system looks for libraries
    #[arg(long, value_name = "FILE", env = "COMMGAUGE_NCCL_LIBRARY")]
    pub nccl_library: Option<PathBuf>,
    /// The file of cuBLAS for [[compute]]; without it libcublas.so.13 or .12, as the driver serves, from where the system looks for
    /// libraries
    #[arg(long, value_name = "FILE", env = "COMMGAUGE_CUBLAS_LIBRARY")]
    pub cublas_library: Option<PathBuf>,
    /// Device of each rank of a host, in order, such as 0,2,4,6; without it rank i of a host takes device i
    #[arg(long, value_name = "DEVICES", value_delimiter = ',')]
    pub device_map: Option<Vec<u32>>,
    /// Let ranks share a GPU (NCCL 2.30 or newer): data is carried for real, times say nothing of a network, and the record says so
    #[arg(long)]
    pub share_gpu: bool,
    /// Force one algorithm for every call that has it (NCCL_ALGO)
    #[arg(long, value_enum, value_name = "NAME")]
    pub algorithm: Option<Algorithm>,
    /// Force one protocol for every call that has it (NCCL_PROTO)
    #[arg(long, value_enum, value_name = "NAME")]
    pub protocol: Option<Protocol>,
    /// What NCCL is told of buffers: nothing, that they will be used (ncclCommRegister), or that they lie alike on all ranks
    /// (ncclMemAlloc, ncclCommWindowRegister; NCCL 2.27) [default: plain]
    #[arg(long, value_enum, value_name = "KIND")]
    pub buffers: Option<Buffers>,
    /// Fewest thread blocks that NCCL's kernels take
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub min_ctas: Option<u32>,
    /// Most thread blocks that NCCL's kernels take
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub max_ctas: Option<u32>,
}

/// NCCL's algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    Ring,
    Tree,
    CollnetDirect,
    CollnetChain,
    Nvls,
    NvlsTree,
    Pat,
}

/// NCCL's protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    Ll,
    Ll128,
    Simple,
}

/// What NCCL is told of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Buffers {
    /// Nothing.
    Plain,
    /// That they will be used.
    Registered,
    /// That they lie alike on all ranks.
    Symmetric,
}

impl Algorithm {
    /// As NCCL_ALGO has it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "Ring",
            Algorithm::Tree => "Tree",
            Algorithm::CollnetDirect => "CollnetDirect",
            Algorithm::CollnetChain => "CollnetChain",
            Algorithm::Nvls => "NVLS",
            Algorithm::NvlsTree => "NVLSTree",
            Algorithm::Pat => "PAT",
        }
    }
}

impl Protocol {
    /// As NCCL_PROTO has it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Ll => "LL",
            Protocol::Ll128 => "LL128",
            Protocol::Simple => "Simple",
        }
    }
}

impl NcclArguments {
    /// What sets the cases of a run with these flags apart from the same cases without.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let buffers = match self.buffers {
            None | Some(Buffers::Plain) => None,
            Some(Buffers::Registered) => Some("registered"),
            Some(Buffers::Symmetric) => Some("symmetric"),
        };
        let set = [
            ("algorithm", self.algorithm.map(|algorithm| algorithm.name().to_owned())),
            ("protocol", self.protocol.map(|protocol| protocol.name().to_owned())),
            ("buffers", buffers.map(str::to_owned)),
            ("min_ctas", self.min_ctas.map(|blocks| blocks.to_string())),
            ("max_ctas", self.max_ctas.map(|blocks| blocks.to_string())),
        ];
        set.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Refuses flags that would mean nothing on another backend, and limits that leave nothing.
    ///
    /// # Errors
    /// Usage errors that name the flag. NCCL's file may stay in the environment of a run that does without it.
    pub fn check(&self, is_nccl: bool) -> Result<()> {
        let given = [
            ("--device-map", self.device_map.is_some()),
            ("--share-gpu", self.share_gpu),
            ("--algorithm", self.algorithm.is_some()),
            ("--protocol", self.protocol.is_some()),
            ("--buffers", self.buffers.is_some()),
            ("--min-ctas", self.min_ctas.is_some()),
            ("--max-ctas", self.max_ctas.is_some()),
        ];
        if let Some((flag, _)) = given.iter().find(|(_, given)| *given && !is_nccl) {
            return Err(Error::usage(format!("{flag} is for --backend nccl; leave it out")));
        }
        match (self.min_ctas, self.max_ctas) {
            (Some(least), Some(most)) if least > most => {
                Err(Error::usage(format!("--min-ctas {least} is more than --max-ctas {most}")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        nccl: NcclArguments,
    }

    fn parse(line: &str) -> std::result::Result<NcclArguments, String> {
        let words = std::iter::once("program").chain(line.split_whitespace());
        Program::try_parse_from(words).map(|program| program.nccl).map_err(|error| error.to_string())
    }

    #[test]
    fn what_nccl_does_not_know_is_refused_with_what_it_does() {
        for (line, words) in [
            ("--algorithm rign", "possible values: ring, tree, collnet-direct"),
            ("--protocol ll256", "possible values: ll, ll128, simple"),
            ("--device-map 0,x", "invalid digit"),
            ("--max-ctas 0", "0 is not in 1..=64"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn flags_without_the_backend_and_limits_without_room_are_refused() {
        for (line, is_nccl, words) in [
            ("--share-gpu", false, "--share-gpu is for --backend nccl"),
            ("--device-map 0,1", false, "--device-map is for --backend nccl"),
            ("--min-ctas 8 --max-ctas 4", true, "--min-ctas 8 is more than --max-ctas 4"),
        ] {
            let error = parse(line).unwrap().check(is_nccl).expect_err(line);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(parse("--device-map 0,1 --share-gpu").unwrap().check(true).is_ok());
        assert!(parse("--nccl-library /x").unwrap().check(false).is_ok());
    }
}
