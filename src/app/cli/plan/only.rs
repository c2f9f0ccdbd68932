//! Parses `tp=4|8,pp=8,order=tp-pp-dp`: the given part of a layout.

use commgauge_analysis::planner::search::Only;
use commgauge_model::config::likely_key;
use commgauge_model::config::step::parse_order;
use commgauge_model::layout::Axis;

const KEYS: [&str; 12] = [
    "tp",
    "cp",
    "ep",
    "etp",
    "pp",
    "schedule",
    "virtual_stages",
    "dp",
    "zero_stage",
    "micro_batch",
    "recompute",
    "order",
];

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
        match key {
            "tp" => only.tp = values(key, value, whole)?,
            "cp" => only.cp = values(key, value, whole)?,
            "ep" => only.ep = values(key, value, whole)?,
            "etp" => only.etp = values(key, value, whole)?,
            "schedule" => only.schedule = values(key, value, str::parse)?,
            "pp" => only.pp = values(key, value, whole)?,
            "virtual_stages" => only.virtual_stages = values(key, value, whole)?,
            "dp" => only.dp = values(key, value, whole)?,
            "micro_batch" => only.micro_batch = values(key, value, |text| whole(text).map(u64::from))?,
            "zero_stage" => only.zero_stage = values(key, value, zero_stage)?,
            "recompute" => only.recompute = values(key, value, str::parse)?,
            "order" => only.order = values(key, value, axes)?,
            _ => {
                let suggestion = likely_key(key, KEYS.into_iter());
                return Err(format!("found key `{key}`{suggestion} Known: {}", KEYS.join(", ")));
            }
        }
    }
    Ok(only)
}

/// Values with bars between, such as `0|1`.
fn values<T>(key: &str, text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split('|').map(|one| read(one.trim()).map_err(|problem| format!("{key}: {problem}"))).collect()
}

fn whole(text: &str) -> Result<u32, String> {
    let accepted = || format!("found `{text}`; accepted: a whole number from 1, or several such as 1|2");
    text.parse().ok().filter(|number| *number > 0).ok_or_else(accepted)
}

fn zero_stage(text: &str) -> Result<u8, String> {
    text.parse().ok().filter(|stage| *stage <= 3).ok_or_else(|| format!("found `{text}`; accepted: 0 to 3"))
}

fn axes(text: &str) -> Result<Vec<Axis>, String> {
    Ok(parse_order(text)?.into_iter().filter_map(Axis::named).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::config::step::Recompute;

    #[test]
    fn invalid_choices_are_refused_with_the_valid_ones() {
        for (text, expected) in [
            ("tp", "found `tp`; accepted: key=value"),
            ("tp=0", "tp: found `0`; accepted: a whole number from 1"),
            ("tp=8,tp=4", "names tp twice"),
            ("zero_stage=4", "accepted: 0 to 3"),
            ("zero=1", "did you mean `zero_stage`?"),
            ("bogus=1", "found key `bogus`. Known: tp, cp"),
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
        assert_eq!((only.tp, only.pp, only.ep, only.zero_stage), (vec![8], vec![16], vec![], vec![1]));
        assert_eq!(only.order, [[Axis::Tp, Axis::Cp, Axis::Pp, Axis::Dp]]);
    }

    #[test]
    fn schedules_are_named_as_elsewhere() {
        use commgauge_model::config::step::ScheduleKind;
        let only = parse("schedule=zb-h1|dualpipe,etp=2").unwrap();
        assert_eq!((only.schedule, only.etp), (vec![ScheduleKind::ZbH1, ScheduleKind::DualPipe], vec![2]));
        assert!(parse("schedule=zb").unwrap_err().contains("accepted: naive, gpipe, 1f1b"));
    }

    #[test]
    fn several_values_of_a_key_are_all_accepted() {
        let only = parse("zero_stage=0|1,tp=4|8,recompute=none|full").unwrap();
        assert_eq!((only.zero_stage, only.tp), (vec![0, 1], vec![4, 8]));
        assert_eq!(only.recompute, [Recompute::None, Recompute::Full]);
        assert!(parse("tp=4|x").unwrap_err().contains("tp: found `x`"));
    }
}
