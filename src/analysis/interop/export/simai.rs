//! `busbw.yaml` of SimAI-Analytical (aliyun/SimAI): one bus bandwidth for each call of each axis.
//!
//! Its reader (`AstraParamParse.hh`) skips the first line, treats `#` as a comment, requires a comma behind the name
//! of a call, and reads `null` as unknown. It computes times with `GBps` = 1/1024^3 (`Common.hh`): a GB is 2^30 bytes.
//! It has no latency.

use super::files::Export;
use super::options::ExportOptions;
use super::pick::{Curves, Wanted};
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use std::fmt::Write;

const GIBI: f64 = (1u64 << 30) as f64;
const CALLS: [(&str, Collective); 4] = [
    ("allreduce", Collective::AllReduce),
    ("allgather", Collective::AllGather),
    ("reducescatter", Collective::ReduceScatter),
    ("alltoall", Collective::AllToAll),
];

pub(super) fn files(curves: &Curves, options: &ExportOptions) -> Result<Export> {
    if options.axes.is_empty() {
        return Err(Error::usage(
            "--axis is missing; SimAI wants one bus bandwidth for each axis, so say its group size and place, such as \
             --axis tp=8@1n/1g/s1 --axis dp=2@2n/8g/s8",
        ));
    }
    let mut export = Export::default();
    let mut text = format!("{}\n", curves.source());
    let mut known = 0;
    for section in ["tp", "dp", "ep"] {
        let _ = writeln!(text, "{}:", section.to_ascii_uppercase());
        let axis_place = options.axes.iter().find(|axis| axis.axis == section);
        for (name, collective) in CALLS {
            let value = axis_place.and_then(|axis| {
                let found = curves.find(&[collective], axis.ranks, Wanted::At(axis.place));
                let rate = found.and_then(|found| {
                    let (rate, bytes) = curves.bus_bandwidth(&found).ok_or("no usable curve")?;
                    export.notes.push(format!("{section} {name}: bus bandwidth at {bytes} B"));
                    Ok(rate)
                });
                rate.map_err(|gap| export.gaps.push(format!("{section}: {gap}"))).ok()
            });
            known += u32::from(value.is_some());
            let value = value.map_or_else(|| "null".to_owned(), |rate| format!("{:.4}", rate / GIBI));
            let _ = writeln!(text, "{name},: {value}");
        }
    }
    let _ = writeln!(text, "PP:");
    let pipeline = options.axes.iter().find(|axis| axis.axis == "pp").map(|axis| {
        let messages = [Collective::SendRecvChain, Collective::SendRecv];
        let found = curves.find(&messages, axis.ranks, Wanted::At(axis.place))?;
        curves.bus_bandwidth(&found).map(|(rate, _)| rate).ok_or_else(|| "no usable curve".to_owned())
    });
    let value = match pipeline {
        Some(Ok(rate)) => {
            known += 1;
            format!("{:.4}", rate / GIBI)
        }
        Some(Err(gap)) => {
            export.gaps.push(format!("pp: {gap}"));
            "null".to_owned()
        }
        None => "null".to_owned(),
    };
    let _ = writeln!(text, "busbw: {value}");
    if known > 0 {
        export.add("busbw.yaml", text);
    }
    Ok(export)
}
