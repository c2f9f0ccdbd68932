//! Logs as nccl-tests 2.17 prints them, for times that a test chooses: time, algbw and busbw agree.

use std::fmt::Write;

/// A run of nccl-tests.
#[derive(Clone, Debug)]
pub struct NcclLog {
    /// Such as `all_reduce`; the program's name without `_perf`.
    pub collective: &'static str,
    /// The hosts, each with as many GPUs.
    pub hosts: Vec<String>,
    pub gpus: u32,
    /// The version of NCCL as a number, such as 22703.
    pub nccl: u32,
    /// Bytes, and microseconds out of place and in place.
    pub rows: Vec<(u64, [f64; 2])>,
    /// What the foot says of wrong values.
    pub wrong_values: String,
}

impl NcclLog {
    /// On one host of eight GPUs.
    pub fn of(rows: Vec<(u64, [f64; 2])>) -> NcclLog {
        NcclLog {
            collective: "all_reduce",
            hosts: vec!["worker-1".to_owned()],
            gpus: 8,
            nccl: 22703,
            rows,
            wrong_values: "0 OK".to_owned(),
        }
    }

    fn ranks(&self) -> u32 {
        self.hosts.len() as u32 * self.gpus
    }

    /// Blocks of the buffer, bus factor, operation and root.
    fn call(&self) -> (u64, f64, &'static str, i32) {
        let n = f64::from(self.ranks());
        let blocks = u64::from(self.ranks());
        match self.collective {
            "all_reduce" => (1, 2.0 * (n - 1.0) / n, "sum", -1),
            "reduce_scatter" => (blocks, (n - 1.0) / n, "sum", -1),
            "all_gather" | "alltoall" => (blocks, (n - 1.0) / n, "none", -1),
            "broadcast" => (1, 1.0, "none", 0),
            "reduce" => (1, 1.0, "sum", 0),
            "sendrecv" => (1, 1.0, "sum", -1),
            other => panic!("no collective of nccl-tests: {other}"),
        }
    }

    /// Head, table and foot.
    pub fn text(&self) -> String {
        let (nccl, name) = (self.nccl, self.collective);
        let (blocks, factor, redop, root) = self.call();
        let sizes = || self.rows.iter().map(|(bytes, _)| *bytes);
        let mut out = format!(
            "# nccl-tests version 2.17.1 nccl-headers={nccl} nccl-library={nccl}\n# Collective test starting: {name}_perf\n\
             # nThread 1 nGpus {} minBytes {} maxBytes {} step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0\n\
             #\n# Using devices\n",
            self.gpus,
            sizes().min().unwrap_or(0),
            sizes().max().unwrap_or(0)
        );
        for (rank, (host, device)) in
            self.hosts.iter().flat_map(|host| (0..self.gpus).map(move |device| (host, device))).enumerate()
        {
            let _ = writeln!(
                out,
                "#  Rank {rank:>2} Group  0 Pid   1887 on {host:>10} device {device:>2} [0x8d] NVIDIA H100 80GB HBM3"
            );
        }
        out += "#\n#                                                              out-of-place                       in-place          \n\
             #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
             #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n";
        let mut sum = 0.0;
        for (bytes, times) in &self.rows {
            let _ = write!(out, "{bytes:>12} {:>13}     float {redop:>7} {root:>7}", bytes / 4 / blocks);
            for time in times {
                let algbw = *bytes as f64 / time / 1e3;
                sum += algbw * factor;
                let decimals = if *time >= 1e4 { 0 } else { 2 - usize::from(*time >= 100.0) };
                let _ = write!(out, " {time:>8.decimals$} {algbw:>7.2} {:>7.2} {:>6}", algbw * factor, 0);
            }
            out += "\n";
        }
        let average = sum / (2 * self.rows.len().max(1)) as f64;
        let wrong = &self.wrong_values;
        out + &format!(
            "# Out of bounds values : {wrong}\n# Avg bus bandwidth    : {average:.4} \n#\n# Collective test concluded: {name}_perf\n"
        )
    }
}
