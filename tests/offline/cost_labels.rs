//! Labels of imported records for algorithm, protocol or statistic separate their curves. Needs nothing.

use commgauge::collective::Collective;
use commgauge::cost::{FitOptions, Labels, Measurements, Predictor, Query, Status, fit};
use commgauge::interop::{Origin, read_csv, record_lines};
use commgauge::record::Record;
use commgauge::record::line::ForeignTool;
use commgauge::units::Bytes;

/// all_gather of 1 KiB to 16 MiB for each of these further columns, slower from line to line.
fn of_columns(heading: &str, columns: &[&str]) -> Measurements {
    let mut text = format!("collective,dtype,ranks,bytes_total,latency_us{heading}\n");
    for (slower, columns) in (1u64..).zip(columns) {
        for power in 10..24 {
            let bytes = 1u64 << power;
            text += &format!("all_gather,half,8,{bytes},{}{columns}\n", slower as f64 * (5.0 + bytes as f64 * 1e-5));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, text).unwrap();
    let imported = read_csv(&path).unwrap();
    assert!(imported.bad_lines.is_empty(), "{:?}", imported.bad_lines);
    let record = Record::from_lines(record_lines("test", &Origin::of(ForeignTool::Csv, &[]), &imported.rows)).unwrap();
    Measurements::of([("rows", &record)]).unwrap()
}

#[test]
fn unlike_things_are_never_one_curve() {
    for (heading, columns) in [
        (",algorithm", &[",ring", ",tree"][..]),
        (",protocol", &[",ll", ",simple"]),
        (",statistic", &[",max_over_ranks", ",mean_over_ranks"]),
        (",in_place", &[",0", ",1"]),
        (",nccl_version", &[",2.27", ",2.29"]),
        (",algorithm", &[",", ",ring"]),
    ] {
        let measurements = of_columns(heading, columns);
        assert_eq!(measurements.curves.len(), 2, "{heading}");
        let fit = fit(&measurements, FitOptions { resamples: 0, ..FitOptions::default() }).unwrap();
        let predictor = Predictor::new(&fit);
        let query = Query {
            collective: Collective::AllGather,
            ranks: 8,
            bytes_total: Bytes(1 << 20),
            element_type: None,
            locality: None,
            cadence: None,
        };
        let refused = predictor.predict(&query);
        assert_eq!(refused.status, Status::Refused, "{heading}");
        assert!(refused.reason.unwrap().contains(&format!("{} ", &heading[1..])), "{heading}");
        let one = Labels::from([(heading[1..].to_owned(), columns[1][1..].to_owned())]);
        let answer = predictor.choosing(one).predict(&query);
        let truth = 2e-6 * (5.0 + f64::from(1 << 20) * 1e-5);
        assert!((answer.seconds.unwrap().0 / truth - 1.0).abs() < 0.01, "{heading}: {answer:?}");
    }
}

#[test]
fn columns_that_number_repetitions_or_never_change_make_no_curves() {
    for (heading, columns) in
        [(",run", &[",1", ",2", ",3"][..]), (",algorithm", &[",ring"]), (",date,note", &[",monday,x", ",friday,y"])]
    {
        let measurements = of_columns(heading, columns);
        let keys: Vec<_> = measurements.curves.keys().collect();
        assert_eq!(keys.len(), 1, "{heading}");
        assert!(keys[0].family.labels.is_empty(), "{heading}");
        assert!(
            measurements.curves.values().flat_map(|curve| curve.values()).all(|times| times.len() == columns.len())
        );
    }
}
