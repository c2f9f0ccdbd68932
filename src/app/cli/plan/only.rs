//! Parses `tp=8,pp=8,order=tp-pp-dp`: the given part of a layout.

use commgauge_analysis::planner::search::Only;
use commgauge_model::config::step::{Recompute, parse_order};
use commgauge_model::layout::Axis;

const KEYS: [&str; 10] =
    ["tp", "cp", "ep", "pp", "virtual_stages", "dp", "zero_stage", "micro_batch", "recompute", "order"];

/// Parses the list.
pub fn parse(text: &str) -> Result<Only, String> {
    let mut only = Only::default();
    let mut seen: Vec<&str> = Vec::new();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(|| {
            format!("found `{part}`; accepted: key=value, with commas between; keys: {}", KEYS.join(", "))
        })?;
        let (key, value) = (key.trim(), value.trim());
        if seen.contains(&key) {
            return Err(format!("names {key} twice"));
        }
        seen.push(key);
        let degree = || match value.parse::<u32>() {
            Ok(degree) if degree > 0 => Ok(Some(degree)),
            _ => Err(format!("{key}: found `{value}`; accepted: a whole number from 1")),
        };
        match key {
            "tp" => only.tp = degree()?,
            "cp" => only.cp = degree()?,
            "ep" => only.ep = degree()?,
            "pp" => only.pp = degree()?,
            "virtual_stages" => only.virtual_stages = degree()?,
            "dp" => only.dp = degree()?,
            "micro_batch" => only.micro_batch = degree()?.map(u64::from),
            "zero_stage" => {
                let stage = value.parse::<u8>().ok().filter(|stage| *stage <= 3);
                only.zero_stage = Some(stage.ok_or_else(|| format!("zero_stage: found `{value}`; accepted: 0 to 3"))?);
            }
            "recompute" => only.recompute = Some(value.parse::<Recompute>()?),
            "order" => {
                let order = parse_order(value)?;
                only.order = Some(order.into_iter().filter_map(Axis::named).collect());
            }
            _ => {
                let nearest =
                    KEYS.iter().max_by(|a, b| strsim::jaro_winkler(key, a).total_cmp(&strsim::jaro_winkler(key, b)));
                let nearest = nearest.map_or("", |nearest| nearest);
                return Err(format!("found key `{key}`; did you mean `{nearest}`? Known: {}", KEYS.join(", ")));
            }
        }
    }
    Ok(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_choices_are_refused_with_the_valid_ones() {
        for (text, expected) in [
            ("tp", "found `tp`; accepted: key=value"),
            ("tp=0", "tp: found `0`; accepted: a whole number from 1"),
            ("tp=8,tp=4", "names tp twice"),
            ("zero_stage=4", "accepted: 0 to 3"),
            ("zero=1", "did you mean `zero_stage`?"),
            ("recompute=half", "accepted: none, selective, full"),
            ("order=tp-dd", "found `dd`"),
        ] {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn a_whole_layout_reads_back() {
        let only = parse("tp=8,cp=1,pp=16,dp=128,zero_stage=1,micro_batch=1,recompute=none,order=tp-cp-pp-dp").unwrap();
        assert_eq!((only.tp, only.pp, only.ep, only.zero_stage), (Some(8), Some(16), None, Some(1)));
        assert_eq!(only.order.unwrap(), [Axis::Tp, Axis::Cp, Axis::Pp, Axis::Dp]);
    }
}
