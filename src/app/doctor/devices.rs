//! State of the devices according to NVML: reasons for reduced performance, with a fix for each.

use super::document::{Finding, Section, State};
use super::system::{Query, Response, System};
use commgauge_run::device_probe::{NvmlAnswer, NvmlDevice, Probe};

const INSTALL: &str = "libnvidia-ml.so.1 comes with NVIDIA's driver; in a container it needs the capability `utility` (NVIDIA_DRIVER_CAPABILITIES=compute,utility). Without it records say nothing about clocks, power and temperature";

/// `devices` is the number of devices according to the driver: without any, NVML is not needed.
pub(super) fn check(system: &dyn System, devices: usize) -> Section {
    let missing = if devices > 0 { State::Warning } else { State::Note };
    let findings = match system.query(Query::Library(Probe::Nvml)) {
        Response::Absent(why) | Response::Failed(why) => {
            let finding = Finding::new("NVML", missing, format!("it cannot be used: {why}"));
            vec![if devices > 0 { finding.with_fix(INSTALL) } else { finding }]
        }
        Response::Died(how) => {
            let found = format!("asking NVML ended badly: {how}");
            vec![
                Finding::new("NVML", State::Warning, found)
                    .with_fix("does `nvidia-smi` answer? If not, look at dmesg for XID errors, and restart the host"),
            ]
        }
        Response::Text(text) => match serde_json::from_str::<NvmlAnswer>(&text) {
            Ok(answer) => nvml_findings(&answer),
            Err(cause) => vec![Finding::new("NVML", State::Warning, format!("its answer does not read: {cause}"))],
        },
    };
    Section::new("Devices now (NVML)", findings)
}

fn nvml_findings(answer: &NvmlAnswer) -> Vec<Finding> {
    let mut findings = vec![Finding::new("NVML", State::Fine, format!("{}, driver {}", answer.version, answer.driver))];
    if let Some(problem) = &answer.problem {
        findings.push(Finding::new("devices", State::Warning, problem.clone()).with_fix("does `nvidia-smi` answer?"));
    }
    for (number, device) in answer.devices.iter().enumerate() {
        findings.extend(one(&format!("device {number}"), number, device));
    }
    findings.extend(differing(&answer.devices));
    findings
}

/// Findings about one device: a summary line, then its problems.
fn one(item: &str, number: usize, device: &NvmlDevice) -> Vec<Finding> {
    if let Some(problem) = &device.problem {
        let fix = "it may have fallen off the bus: look at dmesg for XID 79, and restart the host";
        return vec![Finding::new(item, State::Broken, format!("it cannot be opened: {problem}")).with_fix(fix)];
    }
    let problems = problems(number, device);
    let state = if problems.is_empty() { State::Fine } else { State::Note };
    let mut findings = vec![Finding::new(item, state, summary(device))];
    findings.extend(problems.into_iter().map(|(state, found, fix)| Finding::new(item, state, found).with_fix(fix)));
    findings
}

fn summary(device: &NvmlDevice) -> String {
    let mut parts = vec![format!("{}, {}", device.name, device.pci)];
    let of = |what: &str, now: Option<u32>, most: Option<u32>, unit: &str| match (now, most) {
        (Some(now), Some(most)) => Some(format!("{what} {now} of {most} {unit}")),
        (Some(now), None) => Some(format!("{what} {now} {unit}")),
        _ => None,
    };
    let idle = if device.is_idle { " (idle)" } else { "" };
    parts.extend(
        of("SM clock", device.multiprocessor_clock_mhz, device.highest_multiprocessor_clock_mhz, "MHz")
            .map(|text| text + idle),
    );
    parts.extend(of("memory clock", device.memory_clock_mhz, device.highest_memory_clock_mhz, "MHz"));
    parts.extend(of("power", device.power_watts, device.power_limit_watts, "W"));
    parts.extend(of("temperature", device.temperature_celsius, None, "C"));
    if device.nvlinks > 0 {
        parts.push(format!("{} of {} NVLinks up", device.nvlinks_active, device.nvlinks));
    }
    let switch = |name: &str, on: Option<bool>| on.map(|on| format!("{name} {}", if on { "on" } else { "off" }));
    parts.extend(switch("ECC", device.ecc.map(|ecc| ecc.0)));
    parts.extend(switch("MIG", device.mig.map(|mig| mig.0)));
    parts.extend(switch("persistence", device.is_persistent));
    parts.join(", ")
}

type Problem = (State, String, String);

fn problems(number: usize, device: &NvmlDevice) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    let mut add_problem = |found: String, fix: String| problems.push((State::Warning, found, fix));
    for reason in &device.throttled_by {
        add_problem(format!("its clocks are throttled by {reason}"), throttle_fix(reason, number));
    }
    if let (Some(limit), Some(usual)) = (device.power_limit_watts, device.usual_power_limit_watts)
        && limit < usual
    {
        let found = format!("its power is limited to {limit} W, of {usual} W that are usual");
        add_problem(found, format!("unless that is wanted: nvidia-smi -i {number} -pl {usual}"));
    }
    if let (Some(now), Some(slow)) = (device.temperature_celsius, device.slowdown_celsius)
        && now + 5 >= slow
    {
        add_problem(
            format!("{now} C is near {slow} C, from which it slows down"),
            "look at the airflow or coolant of this host, and at its neighbours".to_owned(),
        );
    }
    if device.nvlinks_active < device.nvlinks {
        let found = format!("{} of its {} NVLinks are down", device.nvlinks - device.nvlinks_active, device.nvlinks);
        add_problem(found, "look at `nvidia-smi nvlink -s`, at the fabric manager (systemctl status nvidia-fabricmanager), and reset the device".to_owned());
    }
    if let Some(errors) = device.uncorrected_errors.filter(|errors| *errors > 0) {
        let found = format!("{errors} uncorrected memory errors since the driver was loaded");
        add_problem(
            found,
            format!(
                "look at `nvidia-smi -i {number} -q -d ECC,ROW_REMAPPER`; reset it, and replace it if they come again"
            ),
        );
    }
    match device.ecc {
        Some((true, true)) | None => {}
        Some((false, false)) => add_problem(
            "ECC is off: a bit that turns over is not noticed, and memory is a little faster than elsewhere".to_owned(),
            format!("unless that is wanted: nvidia-smi -i {number} -e 1, and restart"),
        ),
        Some(_) => add_problem(
            "ECC changes with the next restart".to_owned(),
            "restart, so that it is what was requested".to_owned(),
        ),
    }
    match device.mig {
        Some((true, _)) => add_problem(
            "MIG is on: a rank has a part of the device, and NCCL has no NVLink".to_owned(),
            format!("for whole devices: nvidia-smi -i {number} -mig 0, and a reset"),
        ),
        Some((false, true)) => add_problem(
            "MIG will be on after a reset".to_owned(),
            format!("for whole devices: nvidia-smi -i {number} -mig 0"),
        ),
        _ => {}
    }
    if device.is_persistent == Some(false) {
        add_problem(
            "persistence is off: where nothing else uses it, the driver starts anew with every run, and clocks with it"
                .to_owned(),
            "systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1".to_owned(),
        );
    }
    problems
}

fn throttle_fix(reason: &str, number: usize) -> String {
    match reason {
        "power cap" => {
            format!("at full load that is as it should be; when idle, look at `nvidia-smi -i {number} -q -d POWER`")
        }
        "sync boost" => {
            "another device of its group runs slower; look at `nvidia-smi -q -d PERFORMANCE` of all".to_owned()
        }
        "power brake" => {
            "the host's power supply limits it: look at its supplies and at the chassis' limits".to_owned()
        }
        other if other.contains("thermal") => "it is too hot: look at the airflow or coolant of this host".to_owned(),
        _ => format!("heat or power: look at `nvidia-smi -i {number} -q -d PERFORMANCE`"),
    }
}

/// Reports different devices on one host: the slowest determines the speed.
fn differing(devices: &[NvmlDevice]) -> Option<Finding> {
    let readable: Vec<&NvmlDevice> = devices.iter().filter(|device| device.problem.is_none()).collect();
    let mut models: Vec<&str> = readable.iter().map(|device| device.name.as_str()).collect();
    models.sort_unstable();
    models.dedup();
    let mut limits: Vec<u32> = readable.iter().filter_map(|device| device.power_limit_watts).collect();
    limits.sort_unstable();
    limits.dedup();
    let found = match (&models[..], &limits[..]) {
        ([_, _, ..], _) => format!("the devices are not alike: {}", models.join("; ")),
        (_, [least, .., most]) => format!("the devices have different power limits, {least} to {most} W"),
        _ => return None,
    };
    Some(
        Finding::new("all devices", State::Warning, found)
            .with_fix("the slowest sets the pace of every collective; choose like ones with --device-map"),
    )
}
