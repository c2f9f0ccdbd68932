//! probe
use super::*;
#[test]
fn gaps() {
    let (p,m,f,b,w,c,..) = TABLE[6]; let share = 32./74.;
    let costs = StageCosts { forward: Seconds(f), input_gradient: Seconds(b), weight_gradient: Seconds(w), communication: Seconds(c) };
    let s = Schedule::fitted(ScheduleKind::Zb2p, p, 1, m, &Fitting { costs, weight_gradient_activations: share }).unwrap();
    let t = simulate(&s, &costs).unwrap();
    for r in 0..p {
        let mut line = format!("{r} span {:.0} busy {:.0} ", t.span(r).0, t.busy(r).0);
        let mut last = t.events[r as usize][0].start.0;
        for e in &t.events[r as usize] {
            if e.start.0 - last > 2.0 { line += &format!(" <{:.0}>", e.start.0 - last); }
            last = e.finish.0;
            line += &format!("{}{} ", match e.event.pass { Pass::Forward => "F", Pass::WeightGradient => "W", _ => "B" }, e.event.micro_batch);
        }
        eprintln!("{line}");
    }
}
#[test]
fn probe() {
    for kind in [ScheduleKind::DualPipe, ScheduleKind::DualPipeV] {
        for (p, m) in [(2, 12), (4, 12), (4,32), (6, 24), (8, 64), (16,128)] {
            let v = if kind == ScheduleKind::Interleaved { 2 } else { 1 };
            let s = match Schedule::new(kind, p, v, m) { Ok(s) => s, Err(e) => { eprintln!("{kind} {p} {m}: {e}"); continue } };
            let t = match simulate(&s, &StageCosts::EQUAL) { Ok(t) => t, Err(e) => { eprintln!("{e}"); continue } };
            let longest = (0..p).map(|r| t.span(r).0).fold(0.0, f64::max);
            eprintln!("{kind:12} p={p} m={m} makespan-3m {} span-3m {} peak {} sends {} {}", t.makespan().0 - 3.0*m as f64, longest - 3.0*m as f64, s.peak_activations_max(), s.forward_sends_per_rank_max(), s.backward_sends_per_rank_max());
        }
    }
    for kind in [ScheduleKind::DualPipe, ScheduleKind::DualPipeV] {
        let v = if kind == ScheduleKind::Interleaved { 2 } else { 1 };
        let s = Schedule::new(kind, 4, v, 8).unwrap();
        let t = simulate(&s, &StageCosts::EQUAL).unwrap();
        eprintln!("{kind}\n{}", timeline_text(&t, timeline_text_columns(&t, if kind.is_v_shaped() {2} else {3})));
    }

    for (k,(p,m,f,b,w,c,t1,h1,h2,z1,z2)) in TABLE.into_iter().enumerate() { let share = if k < 3 { 32./(34.+160./3.) } else { 32./74. };
        let costs = StageCosts { forward: Seconds(f), input_gradient: Seconds(b), weight_gradient: Seconds(w), communication: Seconds(c) };
        let mut line = format!("{p} {m}:");
        for (kind, want) in [(ScheduleKind::OneForwardOneBackward, t1),(ScheduleKind::ZbH1,h1),(ScheduleKind::ZbH2,h2),(ScheduleKind::Zb1p,z1),(ScheduleKind::Zb2p,z2)] {
            let s = Schedule::fitted(kind, p, 1, m, &Fitting { costs, weight_gradient_activations: share }).unwrap();
            let t = simulate(&s, &costs).unwrap();
            line += &format!("  {kind} {:.4}/{want:.4}", t.bubble_fraction_of_longest_span());
        }
        for kind in [ScheduleKind::ZbV, ScheduleKind::VHalf, ScheduleKind::VMin] {
            let s = Schedule::fitted(kind, p, 1, m, &Fitting { costs, weight_gradient_activations: share }).unwrap();
            let t = simulate(&s, &costs).unwrap();
            line += &format!("  {kind} {:.4} mem {}", t.bubble_fraction_of_longest_span(), s.peak_activations_max());
        }
        eprintln!("{line}");
    }
}
const TABLE: [(u32,u32,f64,f64,f64,f64,f64,f64,f64,f64,f64); 12] = [
(8,24,18.522,18.086,9.337,0.601,0.2431,0.1585,0.1083,0.1585,0.0433),
(8,32,18.513,18.086,9.331,0.626,0.1985,0.1242,0.0837,0.1242,0.0039),
(8,64,18.546,18.097,9.321,0.762,0.1240,0.0674,0.0444,0.0674,0.0026),
(8,24,29.718,29.444,19.927,0.527,0.2347,0.1323,0.0698,0.1323,0.0029),
(8,32,29.802,29.428,19.530,0.577,0.1898,0.1045,0.0559,0.1045,0.0022),
(8,64,29.935,29.621,19.388,0.535,0.1091,0.0554,0.0294,0.0554,0.0010),
(16,48,11.347,11.248,8.132,0.377,0.2552,0.1397,0.0672,0.1397,0.0066),
(16,64,11.307,11.254,8.101,0.379,0.2082,0.1088,0.0516,0.1088,0.0054),
(16,128,11.325,11.308,8.109,0.378,0.1251,0.0576,0.0266,0.0576,0.0028),
(32,96,10.419,10.207,7.715,0.408,0.2646,0.1421,0.0641,0.1421,0.0038),
(32,128,10.408,10.204,7.703,0.408,0.2168,0.1106,0.0490,0.1106,0.0029),
(32,256,10.402,10.248,7.698,0.460,0.1352,0.0594,0.0257,0.0594,0.0018),
];
