//! A store answers as a folder of records does, loses nothing, and can be made again.

use super::*;
use commgauge_analysis::verdict::history::{HistoryRule, history};
use commgauge_analysis::verdict::testing::{copy_lines, lines, loaded, product_lines, with_own_work};
use commgauge_base::message::eprintln;
use commgauge_model::record::{Journal, Line};

const RULE: HistoryRule = HistoryRule { false_alarm_level: 0.05, relevant: 0.03 };

/// Records of a row that is slower from the eighth night on.
fn nights(folder: &Path, count: u32) -> Vec<PathBuf> {
    (0..count).map(|night| record(folder, night, if night >= 7 { 1.2 } else { 1.0 })).collect()
}

fn record(folder: &Path, night: u32, slow: f64) -> PathBuf {
    let scatter = |row: u32| 1.0 + f64::from((night * 7 + row * 5) % 11) * 0.001;
    let rows = [vec![100.0 * scatter(0); 3], vec![200.0 * slow * scatter(1); 3]];
    let mut lines = lines(&format!("run-{night:02}"), &rows);
    if let Line::Header(header) = &mut lines[0] {
        header.started_at = format!("2026-{:02}-{:02}T03:00:00+00:00", 1 + night / 28, night % 28 + 1);
    }
    let path = folder.join(format!("{night}.jsonl"));
    let mut journal = Journal::create(&path).unwrap();
    lines.iter().for_each(|line| journal.write(line).unwrap());
    journal.finish().unwrap();
    path
}

fn answer(input: HistoryInput) -> serde_json::Value {
    let mut answer = serde_json::to_value(history(input, RULE)).unwrap();
    // Where the records lie is what differs.
    answer["lineages"].as_array_mut().unwrap().iter_mut().for_each(|lineage| {
        lineage["runs"].as_array_mut().unwrap().iter_mut().for_each(|run| run["path"] = serde_json::Value::Null);
    });
    answer
}

#[test]
fn a_store_answers_as_a_folder_of_records_does() {
    let folder = tempfile::tempdir().unwrap();
    let records = nights(folder.path(), 12);
    let mut store = Store::open_or_create(&folder.path().join("store")).unwrap();
    let mut input = HistoryInput::default();
    for path in &records {
        assert_eq!(store.add(path).unwrap(), Added::New);
        input.add(path, LoadedRecord::read(path));
    }
    assert_eq!(store.add(&records[0]).unwrap(), Added::Known);
    let expected = answer(input);
    assert_eq!(expected["lineages"][0]["events"].as_array().unwrap().len(), 1);
    assert_eq!(answer(store.history_input(&RowFilter::default()).unwrap()), expected);
    let one = RowFilter { case: Some("all_reduce/1".to_owned()), suite: None };
    assert_eq!(answer(store.history_input(&one).unwrap())["lineages"][0]["rows"].as_array().unwrap().len(), 1);
    let none = RowFilter { suite: Some("another".to_owned()), case: None };
    assert_eq!(answer(store.history_input(&none).unwrap())["lineages"], serde_json::json!([]));
}

#[test]
fn copies_and_products_are_kept_as_calls_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.jsonl");
    let own_work = [copy_lines(&[20.0; 3]), product_lines(&[40.0; 3])].concat();
    let mut journal = Journal::create(&path).unwrap();
    with_own_work(lines("a", &[vec![100.0; 3]]), own_work).iter().for_each(|line| journal.write(line).unwrap());
    journal.finish().unwrap();
    let mut store = Store::open_or_create(&folder.path().join("store")).unwrap();
    store.add(&path).unwrap();
    let kept = store.index.medians(&RowFilter::default()).unwrap();
    let read = RunMedians::of(&LoadedRecord::read(&path).unwrap()).unwrap();
    assert_eq!((&kept[0].rows, kept[0].rows.len()), (&read.rows, 3));
}

#[test]
fn an_index_that_is_lost_or_half_written_is_made_again_of_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store");
    let mut store = Store::open_or_create(&place).unwrap();
    nights(folder.path(), 8).iter().for_each(|path| assert_eq!(store.add(path).unwrap(), Added::New));
    let before = answer(store.history_input(&RowFilter::default()).unwrap());
    drop(store);
    // A killed writer leaves a copy under another name, a file of the dataset, and nothing in the index.
    let leftover = partition::files_below(&place.join("records"), "jsonl").unwrap()[0].with_file_name(".9.jsonl.7.tmp");
    std::fs::write(&leftover, "half").unwrap();
    std::fs::remove_file(place.join("index.sqlite")).unwrap();
    assert_eq!(Store::open(&place).err().unwrap().exit_code(), 2);
    assert_eq!(Store::rebuild(&place).unwrap(), (8, Vec::new()));
    assert_eq!(answer(Store::open(&place).unwrap().history_input(&RowFilter::default()).unwrap()), before);
    assert_eq!(partition::files_below(&place.join("dataset"), "parquet").unwrap().len(), 8);
}

#[test]
fn what_has_no_say_or_is_another_record_of_a_run_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open_or_create(&folder.path().join("store")).unwrap();
    let known = record(folder.path(), 1, 1.0);
    store.add(&known).unwrap();
    std::fs::create_dir(folder.path().join("other")).unwrap();
    let error = store.add(&record(&folder.path().join("other"), 1, 1.5)).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("another record of the run run-01"), "{error}");
    assert_eq!(store.add(&folder.path().join("gone.jsonl")).unwrap_err().exit_code(), 2);
    assert_eq!(store.index.medians(&RowFilter::default()).unwrap().len(), 1);
}

#[test]
fn writers_that_begin_a_store_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let records = nights(folder.path(), 20);
    let place = folder.path().join("store");
    std::thread::scope(|scope| {
        for half in records.chunks(5) {
            let place = &place;
            scope.spawn(move || {
                let mut store = Store::open_or_create(place).unwrap();
                half.iter().for_each(|path| assert_eq!(store.add(path).unwrap(), Added::New));
            });
        }
    });
    let all = Store::open(&place).unwrap().index.medians(&RowFilter::default()).unwrap();
    assert_eq!((all.len(), all.iter().map(|run| run.rows.len()).sum::<usize>()), (20, 40));
}

#[test]
fn of_writers_that_add_one_record_at_once_one_says_that_it_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let (path, place) = (record(folder.path(), 1, 1.0), folder.path().join("store"));
    let add = || Store::open_or_create(&place).unwrap().add(&path).unwrap();
    let added: Vec<Added> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|_| scope.spawn(add)).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(added.iter().filter(|added| **added == Added::New).count(), 1, "{added:?}");
}

/// What all threads of this process have used of processors: other work on the machine makes it no longer.
fn processor_seconds() -> f64 {
    let status = std::fs::read_to_string("/proc/self/stat").unwrap();
    // After the name, which may hold blanks: the 12th and 13th field, in hundredths of a second.
    let fields: Vec<&str> = status.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

#[test]
#[ignore = "a minute: cargo test --release -p commgauge-app --lib -- --ignored ten_thousand --nocapture"]
fn ten_thousand_runs_of_five_hundred_rows_are_asked_and_added_to_in_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store");
    let mut store = Store::open_or_create(&place).unwrap();
    store.index = store.index.without_waiting_for_the_disk();
    let many = |run: usize| -> Vec<Vec<f64>> {
        (0..500).map(|row| vec![100.0 + row as f64 * (1.0 + ((run * 7919 + row * 31) % 97) as f64 * 1e-4); 3]).collect()
    };
    let model = RunMedians::of(&loaded("m.jsonl", lines("model", &many(0)))).unwrap();
    for run in 0..10_000 {
        let mut medians = model.clone();
        medians.run_id = format!("run-{run:05}");
        // Twenty machines, five hundred nights.
        medians.suite = format!("suite-{}", run % 20);
        medians.started_at = jiff::Timestamp::from_second(1_700_000_000 + run as i64 * 3600).unwrap().to_string();
        for (row, (_, seconds)) in medians.rows.iter_mut().enumerate() {
            *seconds = seconds.map(|seconds| seconds * (1.0 + ((run * 7919 + row * 31) % 97) as f64 * 1e-4));
        }
        store.index.add(&medians, "none").unwrap();
    }
    let path = folder.path().join("new.jsonl");
    let mut journal = Journal::create(&path).unwrap();
    lines("new", &many(1)).iter().for_each(|line| journal.write(line).unwrap());
    journal.finish().unwrap();
    drop(store);
    let timed = |name: &str, seconds: f64, work: &mut dyn FnMut()| {
        let begun = (processor_seconds(), std::time::Instant::now());
        work();
        let (took, clock) = (processor_seconds() - begun.0, begun.1.elapsed().as_secs_f64());
        eprintln!("{name}: {took:.2} s of {seconds} s, {clock:.2} s by the clock");
        assert!(took < seconds, "{name}");
    };
    timed("add", 1.0, &mut || {
        Store::open_or_create(&place).unwrap().add(&path).unwrap();
    });
    let asked = |filter: RowFilter| history(Store::open(&place).unwrap().history_input(&filter).unwrap(), RULE);
    let one = RowFilter { case: Some("world/all_reduce/499".to_owned()), suite: Some("suite-3".to_owned()) };
    timed("one row", 1.0, &mut || assert_eq!(asked(one.clone()).lineages[0].runs.len(), 500));
    timed("all rows", 30.0, &mut || assert_eq!(asked(RowFilter::default()).lineages.len(), 21));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    eprintln!("memory: {} MB of 500 MB", kilobytes / 1000);
    assert!(kilobytes < 500_000, "{kilobytes} kB");
}
