//! Faults that releases of NCCL are known to have, by what a run did with them.

use commgauge_base::embedded::rows;
use commgauge_model::config::machine::Version;
use commgauge_model::record::Record;
use commgauge_model::record::library_use::LibraryUse;
use commgauge_model::record::line::CaseFacts;

/// A fault of a release.
pub struct NcclFault {
    /// Which runs meet it, in words.
    pub condition: &'static str,
    /// What happens, what to do, and the source.
    pub text: String,
}

/// The known faults of a library such as `NCCL 2.28.9 (libnccl.so.2)`; none of other libraries.
pub fn known_faults(library: &str) -> Vec<NcclFault> {
    let Some(version) = library.strip_prefix("NCCL ").and_then(Version::at_start) else { return Vec::new() };
    let fault = |row: &'static str| {
        let [first, last, condition, what, remedy, source] = row.split(" | ").collect::<Vec<_>>().try_into().ok()?;
        let is_between = Version::at_start(first)? <= version && version <= Version::at_start(last)?;
        is_between.then(|| NcclFault { condition, text: format!("NCCL {version}: {what}; {remedy} ({source})") })
    };
    rows(include_str!("nccl_faults.txt")).filter_map(fault).collect()
}

/// The faults that a run may have met.
pub(super) fn met_by(record: &Record) -> Vec<String> {
    let is_symmetric = |case: &CaseFacts| case.labels.get("buffers").is_some_and(|kind| kind == "symmetric");
    let used = || record.meanwhile.library_use.iter().flat_map(|line| &line.uses).map(|of_ranks| &of_ranks.used);
    let over_libfabric = |used: &LibraryUse| used.networks_used().iter().any(|network| network.contains("Libfabric"));
    let is_met = |fault: &NcclFault| match fault.condition {
        "with symmetric buffers" => record.plan.cases.iter().any(is_symmetric),
        "over libfabric" => used().any(over_libfabric),
        "with NVLS" => used().any(|used| used.nvls == Some(true)),
        _ => true,
    };
    known_faults(&record.header.backend.library).into_iter().filter(is_met).map(|fault| fault.text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::record::library_use::LibraryUseLine;
    use commgauge_model::record::testing::sample_lines;

    #[test]
    fn every_row_of_the_table_is_read() {
        let table = rows(include_str!("nccl_faults.txt"));
        assert!(table.count() > 0);
        for row in rows(include_str!("nccl_faults.txt")) {
            let first = row.split(" | ").next().unwrap();
            let known = known_faults(&format!("NCCL {first}"));
            assert!(known.iter().any(|fault| row.contains(&format!("| {} |", fault.condition))), "{row}");
        }
    }

    #[test]
    fn a_fault_is_named_where_a_run_may_have_met_it() {
        let mut nvls = LibraryUse::default();
        nvls.observe("NCCL INFO NVLS multicast support is available on dev 0");
        let mut libfabric = LibraryUse::default();
        libfabric.observe("NCCL INFO Using network AWS Libfabric");
        for (library, buffers, used, source) in [
            ("NCCL 2.28.9 (libnccl.so.2)", "symmetric", None, Some("NCCL 2.28.9: kernels on symmetric buffers")),
            ("NCCL 2.30.7 (libnccl.so.2)", "symmetric", None, None),
            ("NCCL 2.28.9 (libnccl.so.2)", "plain", None, None),
            ("NCCL 2.29.7", "plain", Some(nvls.clone()), Some("NVIDIA/nccl#2077")),
            ("NCCL 2.28.9", "plain", Some(nvls), None),
            ("NCCL 2.27.3", "plain", Some(libfabric), Some("NVIDIA/nccl#2001")),
            ("Open MPI 4.1.4", "symmetric", None, None),
        ] {
            let mut record = Record::from_lines(sample_lines()).unwrap();
            library.clone_into(&mut record.header.backend.library);
            record.plan.cases[0].labels.insert("buffers".into(), buffers.into());
            record.meanwhile.library_use = used.map(|used| LibraryUseLine::of(vec![Ok(used)]));
            let found = met_by(&record).join("\n");
            assert!(source.map_or(found.is_empty(), |source| found.contains(source)), "{library} {buffers}: {found}");
        }
    }
}
