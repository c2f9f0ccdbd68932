//! A fit as the calibration files of other planners, each in the units that it expects.
//!
//! Values missing in the fit are never invented: each is a gap, reported with the measurement that would fill it. One
//! file for each foreign format; docs/interop.md describes how each is used.

mod options;
mod planners;

pub use options::{AxisPlace, ExportOptions, parquet_file};
pub use planners::{Export, ExportedFile};

use commgauge_base::error::{Error, Result};
use commgauge_cost::cost::Fit;
use options::Curves;

/// Program that reads the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// Hetu-Galvatron: hardware_configs/*.json (a folder)
    Galvatron,
    /// Calculon: a system file, from --base
    Calculon,
    /// ASTRA-sim: network.yml and system.json (a folder)
    AstraSim,
    /// SimAI-Analytical in earlier versions: busbw.yaml, from --axis
    #[value(name = "simai")]
    SimAi,
    /// Alpa: its profiling results as JSON; the docs have a loader
    Alpa,
    /// aiconfigurator: nccl_perf.parquet
    #[value(name = "aiconfigurator")]
    AiConfigurator,
    /// The columns that `commgauge import --from csv` reads
    Csv,
}

impl Target {
    /// Whether the output is a folder instead of one file.
    pub fn is_folder(self) -> bool {
        matches!(self, Target::Galvatron | Target::AstraSim)
    }
}

/// The files for a planner.
///
/// # Errors
/// A usage error if an option that the format needs is missing; a mismatch if the fit contains nothing that the format needs.
pub fn export(fit: &Fit, target: Target, options: &ExportOptions) -> Result<Export> {
    let curves = Curves::new(fit, options);
    let done = match target {
        Target::Galvatron => planners::galvatron_files(&curves, options),
        Target::Calculon => planners::calculon_files(&curves, options),
        Target::AstraSim => planners::astra_sim_files(&curves, options),
        Target::SimAi => planners::simai_files(&curves, options),
        Target::Alpa => planners::alpa_files(&curves, options),
        Target::AiConfigurator => planners::aiconfigurator_files(&curves),
        Target::Csv => planners::comma_separated_files(&curves),
    }?;
    match (done.files.is_empty(), done.gaps.as_slice()) {
        (false, _) => Ok(done),
        (true, gaps) => Err(Error::mismatch(format!("the fit holds no usable values:\n{}", gaps.join("\n")))),
    }
}

#[cfg(test)]
mod tests {
    // Every format against hand-computed numbers in the planner's own units; gaps are named; synthetic fits are marked.
    use super::*;
    use crate::interop::{Origin, read_csv, record_lines};
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;
    use commgauge_base::sample::Cadence;
    use commgauge_cost::cost::{CurveKey, FamilyKey, FitOptions, Measurements, Place, fit};
    use commgauge_model::record::Record;
    use commgauge_model::record::line::ForeignTool;
    use serde_json::Value;

    const INSIDE: Place = Place { nodes_spanned: 1, concurrent_groups_per_node: 1, stride: 1 };
    /// Bytes of 256 MiB, the size at which bus bandwidths are read.
    const LARGE: f64 = 268_435_456.0;

    /// Seconds of a call on `n` ranks: 2 us and 100 GB/s for each step of a ring.
    fn seconds(collective: Collective, n: u32, bytes: f64) -> f64 {
        let steps = match collective {
            Collective::AllReduce => 2.0 * f64::from(n - 1),
            Collective::SendRecvChain => return 2e-6 + bytes / 100e9,
            _ => f64::from(n - 1),
        };
        steps * (2e-6 + bytes / f64::from(n) / 100e9)
    }

    /// Calls at 1 KiB, 2 KiB ... 1 GiB on one host of eight ranks.
    fn measurements() -> Measurements {
        let mut all = Measurements::default();
        let mut add = |collective: Collective, ranks: u32, place: Place| {
            let element_type = collective.reduces().then_some(ElementType::Float16);
            let family =
                FamilyKey { collective, element_type, cadence: Cadence::Streaming, place, labels: Default::default() };
            let sizes = (10..=30).map(|power| 1u64 << power);
            let times = sizes.map(|bytes| (bytes, vec![seconds(collective, ranks, bytes as f64)])).collect();
            all.curves.insert(CurveKey { family, ranks }, times);
        };
        use Collective::{AllGather, AllReduce, AllToAll, ReduceScatter, SendRecvChain};
        for collective in [AllReduce, AllGather, ReduceScatter, AllToAll] {
            for (ranks, groups) in [(8, 1), (4, 2), (2, 4)] {
                add(collective, ranks, Place { concurrent_groups_per_node: groups, ..INSIDE });
                add(collective, ranks, Place { concurrent_groups_per_node: groups, stride: 8 / ranks, ..INSIDE });
            }
        }
        for (ranks, groups) in [(8, 1), (4, 2), (2, 4)] {
            add(SendRecvChain, ranks, Place { concurrent_groups_per_node: groups, stride: 8 / ranks, ..INSIDE });
        }
        all.sources.push(commgauge_cost::cost::Source {
            file: "r.jsonl".to_owned(),
            run_id: "run".to_owned(),
            backend: "mpi".to_owned(),
            library: "Open MPI".to_owned(),
        });
        all
    }

    fn ring_fit() -> Fit {
        fit(&measurements(), FitOptions { resamples: 0, ..FitOptions::default() }).expect("a fit")
    }

    fn options() -> ExportOptions {
        ExportOptions { nodes: 1, ranks_per_node: Some(8), ..ExportOptions::default() }
    }

    fn axis(axis: &str, ranks: u32, place: Place) -> AxisPlace {
        AxisPlace { axis: axis.to_owned(), ranks, place }
    }

    fn with_axes() -> ExportOptions {
        let pipeline = Place { concurrent_groups_per_node: 2, stride: 2, ..INSIDE };
        ExportOptions { axes: vec![axis("tp", 8, INSIDE), axis("pp", 4, pipeline)], ..options() }
    }

    fn base(old_form: bool) -> Value {
        let ops = match old_form {
            true => serde_json::json!({ "p2p": 1.0, "reduce_scatter": 1.5, "all_gather": 1.5, "all_reduce": 1.0 }),
            false => {
                serde_json::json!({ "p2p": [1.0, null], "reduce_scatter": [1.5, -1], "all_gather": [1.5, -1], "all_reduce": [2.0, -1] })
            }
        };
        let mut network = serde_json::json!({ "bandwidth": 450, "efficiency": 0.6, "size": 16, "latency": 1e-6, "ops": ops,
        "must_be_filled": true, "processor_usage": 0.15 });
        if old_form {
            network["collective_minus1_scalar"] = false.into();
        }
        serde_json::json!({ "matrix": { "tflops": 1000 }, "networks": [network] })
    }

    /// The text of a file of an export that has no gaps.
    fn file(target: Target, options: &ExportOptions, name: &str) -> String {
        let done = export(&ring_fit(), target, options).unwrap_or_else(|error| panic!("{error}"));
        assert!(done.gaps.is_empty(), "{:?}", done.gaps);
        let found = done.files.into_iter().find(|file| file.name == name).unwrap_or_else(|| panic!("no {name}"));
        String::from_utf8(found.content).expect("text")
    }

    fn holds(content: &[u8], text: &str) -> bool {
        content.windows(text.len()).any(|part| part == text.as_bytes())
    }

    fn json(target: Target, options: &ExportOptions, name: &str) -> Value {
        serde_json::from_str(&file(target, options, name)).expect("JSON")
    }

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-3, "{found}, expected {expected}");
    }

    /// Bus bandwidth of an all_reduce of 256 MiB on eight ranks in bytes per second: 28 us and 7/4 of it at 100 GB/s.
    fn all_reduce_rate() -> f64 {
        LARGE * 1.75 / (28e-6 + LARGE * 1.75 / 100e9)
    }

    #[test]
    fn missing_inputs_of_a_format_are_requested() {
        let none = ExportOptions { ranks_per_node: None, ..options() };
        let odd = ExportOptions { nodes: 3, ..options() };
        let no_system = ExportOptions { base: Some(serde_json::json!({ "matrix": {} })), ..options() };
        for (target, options, expected) in [
            (Target::Galvatron, &none, "--ranks-per-node is missing"),
            (Target::AstraSim, &none, "--ranks-per-node is missing"),
            (Target::Alpa, &none, "--ranks-per-node is missing"),
            (Target::Galvatron, &odd, "3 nodes of 8 ranks: Galvatron plans on 2, 4, 8"),
            (Target::SimAi, &options(), "--axis is missing"),
            (Target::Calculon, &options(), "--base is missing"),
            (Target::Calculon, &no_system, "not a Calculon system file"),
        ] {
            let error = export(&ring_fit(), target, options).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn values_missing_in_the_fit_are_gaps_and_never_numbers() {
        let two_hosts = ExportOptions { nodes: 2, ..options() };
        let done = export(&ring_fit(), Target::Galvatron, &two_hosts).unwrap();
        assert!(
            done.gaps
                .iter()
                .any(|gap| gap == "allreduce_size_16_consec_1: all_reduce on 16 ranks at 2n/1g/s1 was not measured")
        );
        let first = String::from_utf8_lossy(&done.files[0].content);
        assert!(!first.contains("allreduce_size_16"), "{first}");
        let error = export(&ring_fit(), Target::AstraSim, &two_hosts).unwrap_err();
        assert!(
            error.exit_code() == 7 && error.to_string().contains("all_reduce on 2 ranks on 2 hosts was not measured"),
            "{error}"
        );
        let elsewhere = ExportOptions { axes: vec![axis("dp", 16, INSIDE)], ..options() };
        assert_eq!(export(&ring_fit(), Target::SimAi, &elsewhere).unwrap_err().exit_code(), 7);
        let wide = ExportOptions { element_type: Some(ElementType::Float32), ..with_axes() };
        let done = export(&ring_fit(), Target::SimAi, &wide).unwrap();
        assert!(
            done.gaps.contains(&"tp: all_reduce of float32 on 8 ranks at 1n/1g/s1 was not measured".to_owned()),
            "{:?}",
            done.gaps
        );
    }

    #[test]
    fn a_synthetic_fit_is_marked_in_every_file() {
        let fit = Fit { synthetic: true, ..ring_fit() };
        let options = ExportOptions { base: Some(base(false)), ..with_axes() };
        for target in [
            Target::Galvatron,
            Target::Calculon,
            Target::AstraSim,
            Target::SimAi,
            Target::Alpa,
            Target::AiConfigurator,
            Target::Csv,
        ] {
            let done = export(&fit, target, &options).unwrap();
            let marked = done.files.iter().filter(|file| holds(&file.content, "SYNTHETIC")).count();
            // system.json of ASTRA-sim contains no measured number.
            let unmarked = usize::from(target == Target::AstraSim);
            assert_eq!(marked + unmarked, done.files.len(), "{target:?}");
        }
    }

    #[test]
    fn comma_separated_values_make_the_same_fit_again() {
        let original = ring_fit();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calibration.csv");
        std::fs::write(&path, file(Target::Csv, &options(), "calibration.csv")).unwrap();
        let imported = read_csv(&path).unwrap();
        assert!(imported.bad_lines.is_empty(), "{:?}", imported.bad_lines);
        let lines =
            record_lines("again", &Origin::of(ForeignTool::Csv, &["calibration.csv".to_owned()]), &imported.rows);
        let record = Record::from_lines(lines).unwrap();
        let again =
            fit(&Measurements::of([("again", &record)]).unwrap(), FitOptions { resamples: 0, ..FitOptions::default() })
                .unwrap();
        assert_eq!(again.families.len(), original.families.len());
        for (one, other) in original.families.iter().zip(&again.families) {
            assert_eq!((&one.key, one.curves.len()), (&other.key, other.curves.len()));
            let seconds = |family: &commgauge_cost::cost::FamilyFit| -> Vec<(u32, u64, f64)> {
                let curves =
                    family.curves.iter().flat_map(|curve| curve.points.iter().map(move |point| (curve.ranks, point)));
                curves.map(|(ranks, point)| (ranks, point.bytes_total.0, point.measured_seconds.0)).collect()
            };
            for (a, b) in seconds(one).into_iter().zip(seconds(other)) {
                // A record stores whole nanoseconds.
                assert!((a.0, a.1) == (b.0, b.1) && (a.2 - b.2).abs() < 1e-9, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn galvatron_reads_mebibytes_per_millisecond_and_milliseconds() {
        let all_reduce = json(Target::Galvatron, &options(), "allreduce_bandwidth_1nodes_8gpus_per_node.json");
        let keys = ["8_consec_1", "4_consec_1", "4_consec_0", "2_consec_1", "2_consec_0"];
        assert!(keys.iter().all(|key| all_reduce[format!("allreduce_size_{key}")].is_f64()), "{all_reduce}");
        assert!(all_reduce.get("allreduce_size_8_consec_0").is_none(), "all ranks are always neighbours");
        close(all_reduce["allreduce_size_8_consec_1"].as_f64().unwrap(), all_reduce_rate() / 1_048_576.0 / 1000.0);
        let messages = json(Target::Galvatron, &options(), "p2p_bandwidth_1nodes_8gpus_per_node.json");
        close(messages["pp_size_4"].as_f64().unwrap(), LARGE / (2e-6 + LARGE / 100e9) / 1_048_576.0 / 1000.0);
        let times = json(Target::Galvatron, &options(), "sp_time_1nodes_8gpus_per_node.json");
        close(times["allreduce_size_8_64MB_time"].as_f64().unwrap(), (28e-6 + 1.75 * 67_108_864.0 / 100e9) * 1e3);
        close(times["all2all_size_2_1MB_time"].as_f64().unwrap(), (2e-6 + 0.5 * 1_048_576.0 / 100e9) * 1e3);
        assert_eq!(times.as_object().unwrap().len(), 2 * 3 * 11 + 1);
    }

    #[test]
    fn aiconfigurator_reads_elements_and_milliseconds() {
        use parquet::file::reader::{FileReader, SerializedFileReader};
        use parquet::record::RowAccessor;
        let done = export(&ring_fit(), Target::AiConfigurator, &options()).unwrap();
        assert_eq!(done.files[0].name, "nccl_perf.parquet");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nccl_perf.parquet");
        std::fs::write(&path, &done.files[0].content).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap()).collect();
        let of = |op: &str, dtype: &str, ranks: i64, elements: i64| {
            let is = |row: &&parquet::record::Row| {
                let same = |index: usize, text: &str| row.get_string(index).unwrap() == text;
                same(3, op)
                    && same(5, dtype)
                    && row.get_long(6).unwrap() == ranks
                    && row.get_long(7).unwrap() == elements
            };
            rows.iter().find(is).map(|row| row.get_double(8).unwrap())
        };
        // 1 MiB of float16 are 524,288 elements: 28 us and 7/4 of 1 MiB at 100 GB/s.
        close(of("all_reduce", "half", 8, 524_288).unwrap(), 0.028 + 1.75 * 1_048_576.0 / 100e9 * 1e3);
        assert!(of("alltoall", "int8", 4, 1_048_576).is_some() && of("all_reduce", "int8", 8, 524_288).is_none());
    }

    #[test]
    fn messages_that_were_not_measured_follow_from_rings_and_say_so() {
        let mut without = measurements();
        without.curves.retain(|key, _| key.family.collective != Collective::SendRecvChain);
        let fit = fit(&without, FitOptions { resamples: 0, ..FitOptions::default() }).unwrap();
        let done = export(&fit, Target::Galvatron, &options()).unwrap();
        assert!(done.gaps.is_empty(), "{:?}", done.gaps);
        let note = "pp_size_4: DERIVED from all_gather at the same place; no messages were measured";
        assert!(done.notes.iter().any(|found| found == note), "{:?}", done.notes);
        let messages = done.files.iter().find(|file| file.name.starts_with("p2p_bandwidth")).unwrap();
        let messages: Value = serde_json::from_slice(&messages.content).unwrap();
        assert!(messages["_derived"].as_str().unwrap().starts_with("pp_size_8 from all_gather"), "{messages}");
        // Three steps of a quarter each, 2 us and 100 GB/s.
        let expected = LARGE * 0.75 / (6e-6 + LARGE * 0.75 / 100e9) / 1_048_576.0 / 1000.0;
        close(messages["pp_size_4"].as_f64().unwrap(), expected);
    }

    #[test]
    fn astra_sim_reads_binary_gigabytes_and_the_latency_of_a_link() {
        let network = file(Target::AstraSim, &options(), "network.yml");
        let value = |key: &str| -> f64 {
            let line = network.lines().find(|line| line.starts_with(key)).unwrap();
            line.split(['[', ']']).nth(1).unwrap().trim().parse().unwrap()
        };
        close(value("bandwidth"), all_reduce_rate() / 1_073_741_824.0);
        // 28 us in 14 steps of two links each.
        assert!((value("latency") - 1000.0).abs() < 20.0, "{network}");
        assert!(network.contains("topology: [ Switch ]\nnpus_count: [ 8 ]\n"), "{network}");
        let system = json(Target::AstraSim, &options(), "system.json");
        assert_eq!(system["all-reduce-implementation"], serde_json::json!(["ring"]));
    }

    #[test]
    fn simai_reads_binary_gigabytes_and_null() {
        let text = file(Target::SimAi, &with_axes(), "busbw.yaml");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[1], lines[6], lines[7], lines[16]), ("TP:", "DP:", "allreduce,: null", "PP:"));
        close(lines[2].strip_prefix("allreduce,: ").unwrap().parse().unwrap(), all_reduce_rate() / 1_073_741_824.0);
        close(
            lines[17].strip_prefix("busbw: ").unwrap().parse().unwrap(),
            LARGE / (2e-6 + LARGE / 100e9) / 1_073_741_824.0,
        );
    }

    #[test]
    fn calculon_reckons_the_measured_times_in_both_forms_of_its_file() {
        for old_form in [true, false] {
            let options = ExportOptions { base: Some(base(old_form)), ..options() };
            // A message inside the host was measured in pairs, fours and on all eight.
            let system = json(Target::Calculon, &options, "system.json");
            assert_eq!((&system["matrix"]["tflops"], &system["networks"][0]["size"]), (&1000.into(), &8.into()));
            let network = &system["networks"][0];
            let rate = network["bandwidth"].as_f64().unwrap() * 1e9 * network["efficiency"].as_f64().unwrap();
            for (name, collective) in [("all_reduce", Collective::AllReduce), ("all_gather", Collective::AllGather)] {
                let op = &network["ops"][name];
                let scalar = op.as_f64().or_else(|| op[0].as_f64()).unwrap();
                let found = network["latency"].as_f64().unwrap() + scalar * LARGE * 7.0 / 8.0 / rate;
                let expected = seconds(collective, 8, LARGE);
                assert!((found / expected - 1.0).abs() < 0.02, "{name}: {found}, measured {expected}");
            }
            assert_eq!(network.get("collective_minus1_scalar").is_some(), old_form);
        }
    }

    #[test]
    fn alpa_counts_elements_of_the_whole_buffer() {
        let document = json(Target::Alpa, &options(), "alpa.json");
        assert_eq!((&document["mesh_shape"], &document["synthetic"]), (&serde_json::json!([1, 8]), &false.into()));
        let entries = document["entries"].as_array().unwrap();
        let of = |call: &str, groups: usize| {
            let fits = |entry: &&Value| entry["call"] == call && entry["groups"].as_array().unwrap().len() == groups;
            entries.iter().find(|entry| fits(entry) && entry["dtype"] == "f16").unwrap_or_else(|| panic!("{call}"))
        };
        assert_eq!(of("all_reduce", 2)["groups"], serde_json::json!([[0, 1, 2, 3], [4, 5, 6, 7]]));
        assert_eq!(of("all_reduce", 1)["points"][0][0], 512);
        assert_eq!(of("all_to_all", 1)["points"][0][0], 8 * 512);
        close(of("all_reduce", 1)["points"][10][1].as_f64().unwrap(), seconds(Collective::AllReduce, 8, 1_048_576.0));
    }
}
