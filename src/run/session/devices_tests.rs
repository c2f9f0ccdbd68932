//! Tests of the device messages, on synthetic readings.

use super::*;

fn state(clock: f64, reasons: &[&str], is_idle: bool) -> DeviceState {
    DeviceState {
        multiprocessor_clock_mhz: Some(clock),
        memory_clock_mhz: Some(2619.0),
        power_watts: Some(300.0),
        temperature_celsius: Some(50.0),
        throttle_reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        is_idle,
        nvlinks_active: Some(18),
    }
}

#[test]
fn throttling_and_lost_clocks_or_links_are_reported_and_waking_up_is_not() {
    let links = |nvlinks_active| DeviceState { nvlinks_active: Some(nvlinks_active), ..state(1980.0, &[], false) };
    for (before, after, expected) in [
        (state(1980.0, &[], false), state(1980.0, &[], false), None),
        (state(1980.0, &[], false), state(1950.0, &[], false), None),
        (state(345.0, &[], true), state(1980.0, &[], false), None),
        (state(1980.0, &[], false), state(345.0, &[], true), None),
        (state(1980.0, &[], false), state(1410.0, &[], false), Some("multiprocessor clock 1980 -> 1410 MHz")),
        (state(1410.0, &[], false), state(1980.0, &[], false), Some("multiprocessor clock 1410 -> 1980 MHz")),
        (state(1980.0, &["power cap"], false), state(1980.0, &["power cap"], false), Some("throttled by power cap")),
        (links(18), links(17), Some("18 -> 17 NVLinks up")),
        (DeviceState::default(), DeviceState::default(), None),
    ] {
        assert_eq!(change(&before, &after).as_deref(), expected, "{before:?} {after:?}");
    }
}

#[test]
fn the_spread_over_ranks_and_the_first_changes_are_recorded_and_the_others_counted() {
    let readings_of_one = || DeviceReadings {
        before: state(1980.0, &[], false),
        after: state(1410.0, &["thermal slowdown (hardware)"], false),
    };
    let mut all: Vec<Option<DeviceReadings>> = (0..100).map(|_| Some(readings_of_one())).collect();
    all[3] = None;
    let line = readings(&all, 7, 2);
    assert_eq!((line.case, line.replicate, line.ranks_read, line.ranks_changed), (7, 2, 99, 99));
    assert_eq!(line.changes.len(), MAX_CHANGES);
    assert!(line.changes.iter().all(|change| change.rank != 3));
    assert_eq!(line.before.multiprocessor_clock_mhz, Some((1980.0, 1980.0)));
    assert_eq!(line.after.throttle_reasons, ["thermal slowdown (hardware)"]);
    let none = readings(&[None, None], 0, 0);
    assert_eq!((none.ranks_read, none.before), (0, DeviceSpread::default()));
}

#[test]
fn a_host_without_nvml_is_named_and_the_others_are_recorded() {
    let report = |source: std::result::Result<&str, &str>| DeviceReport {
        identity: source.is_ok().then(|| DeviceIdentity { name: "H100".into(), ..DeviceIdentity::default() }),
        source: source.map(str::to_owned).map_err(str::to_owned),
        nvlinks_active: Some(18),
    };
    let line = devices_line(vec![report(Ok("NVML 13")), report(Err("NVML cannot be used"))]);
    assert_eq!((line.source.as_deref(), line.devices.len()), (Some("NVML 13"), 1));
    assert_eq!(line.absent.as_deref(), Some("rank 1: NVML cannot be used"));
}
