//! Copies and matrix products are in every format for programs, in the way of calls.

use super::*;
use commgauge_analysis::verdict::testing::{copy_lines, lines, product_lines, with_own_work};
use commgauge_model::record::line::Outcome;
use commgauge_model::record::{Line, Record};

const EVERY: [Format; 7] =
    [Format::Json, Format::Csv, Format::Junit, Format::Prometheus, Format::Superbench, Format::NcclTests, Format::Osu];

/// A call, a copy of a gigabyte in 20 ms and a product of two billion operations in 40 ms, after a change of their lines.
fn record(change: impl Fn(&mut Outcome)) -> Record {
    let mut own_work = [copy_lines(&[20.0; 3]), product_lines(&[40.0; 3])].concat();
    for line in &mut own_work {
        match line {
            Line::Copy(copy) => change(&mut copy.outcome),
            Line::Product(product) => change(&mut product.outcome),
            _ => {}
        }
    }
    Record::from_lines(with_own_work(lines("a", &[vec![100.0; 3]]), own_work)).unwrap()
}

fn rendered(record: &Record, format: Format) -> String {
    let mut out = Vec::new();
    render(&View::new(record), format, 100, Paint::Plain, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn copies_and_products_have_a_line_in_each_format_for_programs() {
    let record = record(|_| {});
    let (copy, product) = ("copy/host-to-device/pinned/1000000000/alone", "product/float32/1000x1000x1000");
    for (format, words) in [
        (
            Format::Junit,
            vec![format!("name=\"{copy}\""), format!("name=\"{product}\""), "rank.host-to-device".to_owned()],
        ),
        (
            Format::Prometheus,
            vec![
                format!(
                    "commgauge_row_copy_bytes_per_second{{axis=\"rank\",backend=\"mpi\",bytes=\"1000000000\",case=\"{copy}\""
                ),
                format!("commgauge_row_flops_per_second{{axis=\"rank\",backend=\"mpi\",bytes=\"\",case=\"{product}\""),
                "commgauge_record_rows{status=\"verified\"} 3".to_owned(),
                "statistic=\"median\"} 0.02\n".to_owned(),
            ],
        ),
        (
            Format::Superbench,
            vec![
                "copy_host-to-device_pinned_1000000000_alone_bw\":50.0".to_owned(),
                "product_float32_1000x1000x1000_flops\":50.0".to_owned(),
                "rows_verified\":3.0".to_owned(),
            ],
        ),
        (Format::Csv, vec![format!("\n{copy},rank,"), format!("\n{product},rank,"), ",50000000000\n".to_owned()]),
        (Format::NcclTests, vec!["copies (1) and matrix products (1) have no columns here".to_owned()]),
        (Format::Osu, vec!["copies (1) and matrix products (1) have no columns here".to_owned()]),
    ] {
        let text = rendered(&record, format);
        for word in words {
            assert!(text.contains(&word), "{format:?} lacks {word}: {text}");
        }
    }
    assert_eq!(View::new(&record).exit_code(), 0);
}

#[test]
fn a_wrong_copy_has_no_numbers_in_any_format_and_one_that_nobody_checked_is_no_success() {
    let wrong = Outcome::Corrupt {
        when: "after".into(),
        rank: 1,
        element: 7,
        expected: "3".into(),
        got: "4".into(),
        count: 1,
        call: None,
    };
    let corrupt = record(|outcome| *outcome = wrong.clone());
    assert_eq!(View::new(&corrupt).exit_code(), 4);
    for format in EVERY {
        let text = rendered(&corrupt, format);
        for number in ["50000000000", "\":50.0", "bytes_per_second\": 5"] {
            assert!(!text.contains(number), "{format:?}: {text}");
        }
    }
    assert!(rendered(&corrupt, Format::Junit).contains("<failure"));
    let unchecked = record(|outcome| *outcome = Outcome::Measured { verified: false });
    assert!(rendered(&unchecked, Format::Junit).contains("skipped=\"2\""), "{}", rendered(&unchecked, Format::Junit));
    let table = rendered(&unchecked, Format::Table);
    assert!(table.contains("1 copy: 1 not verified") && !table.contains("1 right"), "{table}");
}

#[test]
fn a_replicate_that_a_copy_lacks_is_missing_as_that_of_a_call_is() {
    let short = Record::from_lines(with_own_work(lines("a", &[vec![100.0; 3]]), copy_lines(&[20.0; 2]))).unwrap();
    assert_eq!(View::new(&short).exit_code(), 7);
    assert!(rendered(&short, Format::Junit).contains("2 of 3 replicates measured"));
}
