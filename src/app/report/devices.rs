//! Marks rows by the readings of the devices: cases during which a device changed its state, and ranks without readings.

use super::row::Row;
use commgauge_model::record::Record;
use std::collections::BTreeMap;

/// Marks the rows, and returns the warnings about the whole record.
pub(super) fn mark(record: &Record, rows: &mut [Row]) -> Vec<String> {
    let mut changed: BTreeMap<u32, (u32, String)> = BTreeMap::new();
    for readings in record.device_readings.iter().filter(|readings| readings.ranks_changed > 0) {
        let Some(first) = readings.changes.first() else { continue };
        let text = || format!("the device of rank {} changed meanwhile ({})", first.rank, first.what);
        let (ranks, _) = changed.entry(readings.case).or_insert_with(|| (0, text()));
        *ranks = (*ranks).max(readings.ranks_changed);
    }
    for (case, (ranks, text)) in changed {
        let more = if ranks > 1 { format!(", and of {} more", ranks - 1) } else { String::new() };
        if let Some(row) = rows.get_mut(case as usize) {
            row.warnings.push(text + &more);
        }
    }
    let absent = record.devices.as_ref().and_then(|devices| devices.absent.as_ref());
    absent.map(|why| format!("clocks, power and temperature of devices are not known: {why}")).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::View;
    use commgauge_model::record::device_line::{DeviceChange, DeviceReadingsLine, DevicesLine};
    use commgauge_model::record::line::Line;

    #[test]
    fn a_case_during_which_a_device_changed_is_marked_and_missing_readings_are_listed() {
        let text = include_bytes!("../../../tests/data/sample-record.jsonl");
        let sample = Record::parse(text, "sample").unwrap();
        let mut lines: Vec<Line> =
            text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        lines.truncate(2);
        let absent = Some("rank 1: NVML (libnvidia-ml.so.1) cannot be used".to_owned());
        lines.push(Line::Devices(Box::new(DevicesLine { absent, ..DevicesLine::default() })));
        let changes = vec![DeviceChange { rank: 3, what: "throttled by power cap".into() }];
        let readings = DeviceReadingsLine { ranks_changed: 2, changes, ..DeviceReadingsLine::default() };
        lines.push(Line::DeviceReadings(Box::new(readings.clone())));
        let view = View::new(&Record::from_lines(lines.clone()).unwrap());
        let said = view.warnings.join("\n");
        let name = &sample.plan.cases[0].name;
        let expected =
            format!("{name}: the device of rank 3 changed meanwhile (throttled by power cap), and of 1 more");
        assert!(said.contains(&expected), "{said}");
        assert!(said.contains("are not known: rank 1: NVML (libnvidia-ml.so.1) cannot be used"), "{said}");
        lines.push(Line::DeviceReadings(Box::new(DeviceReadingsLine { case: 999, ..readings })));
        let error = Record::from_lines(lines).unwrap_err().to_string();
        assert!(error.contains("at case 999, which is not in the plan"), "{error}");
    }
}
