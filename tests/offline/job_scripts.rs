//! The jobs of scripts/slurm: that on GPUs differs from the one on host memory in what it asks for, and in nothing that it does.

use std::path::Path;
use std::process::Command;

fn script(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/slurm").join(name))
        .expect("it is shipped")
}

/// What Slurm is asked for, and the commands.
fn parts(text: &str) -> (Vec<&str>, Vec<&str>) {
    let asked = text.lines().filter_map(|line| line.strip_prefix("#SBATCH ")).collect();
    let commands = text.lines().filter(|line| !line.starts_with('#')).collect();
    (asked, commands)
}

#[test]
fn the_job_on_gpus_does_what_the_job_on_host_memory_does() {
    let (host, gpu) = (script("commgauge.sbatch"), script("commgauge-gpu.sbatch"));
    let ((_, host), (asked, gpu)) = (parts(&host), parts(&gpu));
    assert!(asked.contains(&"--gpus-per-node=8") && asked.contains(&"--ntasks-per-node=8"), "{asked:?}");
    let as_on_host: Vec<String> =
        gpu.iter().map(|line| line.replace(":-qualify-gpu}", ":-quick}").replace(" --backend nccl", "")).collect();
    assert_eq!(as_on_host, host);
    assert!(gpu.iter().any(|line| line.contains(":-qualify-gpu}") && line.contains("--backend nccl")));
}

#[test]
fn every_job_is_a_script_that_bash_reads_and_ends_with_the_verdict() {
    for name in ["commgauge.sbatch", "commgauge-gpu.sbatch", "commgauge-pairs.sbatch"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/slurm").join(name);
        assert!(Command::new("bash").arg("-n").arg(&path).status().expect("bash").success(), "{name}");
        let text = script(name);
        assert!(text.contains("\"$program\" judge \"$record\"") && text.contains("--page"), "{name}");
        assert!(text.trim_end().ends_with("exit \"$((verdict == 0 ? code : verdict))\""), "{name}");
    }
}
