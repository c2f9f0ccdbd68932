//! The expected commands, launcher by launcher.

use super::*;
use proptest::prelude::*;

fn launcher(family: Family) -> Launcher {
    let program = match family {
        Family::OpenMpi4 | Family::OpenMpi5 => "mpirun",
        Family::Mpich | Family::IntelMpi => "mpiexec",
        Family::Slurm => "srun",
    };
    Launcher { program: program.into(), family, version: "1".into(), can_bind: true }
}

fn request(ranks: u32, root: bool) -> Request {
    Request {
        ranks,
        cores: 4,
        root,
        program: "suite".into(),
        program_arguments: vec!["a b".into()],
        ..Request::default()
    }
}

/// By default MPICH waits without ever yielding a processor.
const MPICH_8: &str = "env MPIR_CVAR_POLLS_BEFORE_YIELD=1 MPIR_CVAR_CH4_PROGRESS_THROTTLE=true \
    MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT=1 mpiexec -n 8 -bind-to none suite 'a b'";

fn line(family: Family, request: &Request) -> String {
    build(&launcher(family), request).expect("a command").for_shell()
}

#[test]
fn variables_of_nccl_reach_ranks_that_are_started_by_ssh_and_none_is_given_twice() {
    use Family::{IntelMpi, Mpich, OpenMpi4, OpenMpi5, Slurm};
    let passed = || vec!["NCCL_ALGO".to_owned(), "NCCL_IB_HCA".to_owned()];
    let own: Vec<String> = words("-x NCCL_ALGO=Ring");
    for (family, own, expected) in [
        (OpenMpi4, vec![], "mpirun -n 4 --bind-to none -x NCCL_ALGO -x NCCL_IB_HCA suite 'a b'"),
        (OpenMpi5, own.clone(), "mpirun -n 4 --bind-to none -x NCCL_IB_HCA -x NCCL_ALGO=Ring suite 'a b'"),
        // They pass on all variables by themselves.
        (Mpich, vec![], "mpiexec -n 4 -bind-to none suite 'a b'"),
        (IntelMpi, vec![], "mpiexec -n 4 -bind-to none suite 'a b'"),
        (Slurm, vec![], "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --cpu-bind=none suite 'a b'"),
    ] {
        let request =
            Request { has_threads: true, passed_variables: passed(), launcher_arguments: own, ..request(4, false) };
        assert_eq!(line(family, &request), expected, "{family:?}");
    }
}

#[test]
fn every_launcher_gets_the_number_of_ranks_that_have_a_gpu_on_each_host() {
    use Family::{IntelMpi, Mpich, OpenMpi4, OpenMpi5, Slurm};
    let on_gpus = |ranks| Request { has_threads: true, ranks_per_host: Some(2), ..request(ranks, false) };
    for (family, ranks, expected) in [
        (OpenMpi4, 4, "mpirun -n 4 --map-by ppr:2:node:OVERSUBSCRIBE --bind-to none suite 'a b'"),
        (
            OpenMpi5,
            8,
            "mpirun -n 8 --map-by ppr:2:node:OVERSUBSCRIBE --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'",
        ),
        (Mpich, 4, "mpiexec -n 4 -ppn 2 -bind-to none suite 'a b'"),
        (IntelMpi, 4, "mpiexec -n 4 -ppn 2 -bind-to none suite 'a b'"),
        (Slurm, 4, "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --ntasks-per-node=2 --cpu-bind=none suite 'a b'"),
        (
            Slurm,
            8,
            "srun --ntasks=8 --kill-on-bad-exit=0 --wait=30 --ntasks-per-node=2 --overcommit --cpu-bind=none suite 'a b'",
        ),
    ] {
        assert_eq!(line(family, &on_gpus(ranks)), expected, "{family:?}");
    }
    let named = Request { hosts: Some("a:3,b:1".into()), ..on_gpus(4) };
    assert_eq!(line(OpenMpi4, &named), "mpirun -n 4 --host a:3,b:1 --bind-to none suite 'a b'");
    let own = Request { launcher_arguments: words("--map-by node"), ..on_gpus(4) };
    assert_eq!(line(OpenMpi4, &own), "mpirun -n 4 --bind-to none --map-by node suite 'a b'");
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn ranks_whose_library_has_threads_are_not_bound_to_single_cores() {
    use Family::{Mpich, OpenMpi4, OpenMpi5, Slurm};
    for (family, hosts, expected) in [
        (OpenMpi4, None, "mpirun -n 4 --bind-to none suite 'a b'"),
        (OpenMpi5, Some("a:2,b:2"), "mpirun -n 4 --host a:2,b:2 --bind-to none suite 'a b'"),
        (Mpich, None, "mpiexec -n 4 -bind-to none suite 'a b'"),
        (Slurm, None, "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --cpu-bind=none suite 'a b'"),
    ] {
        let request = Request { has_threads: true, hosts: hosts.map(str::to_owned), ..request(4, false) };
        assert_eq!(line(family, &request), expected);
    }
    let own = ["--bind-to".to_owned(), "numa".to_owned()].to_vec();
    let request = Request { has_threads: true, launcher_arguments: own, ..request(4, false) };
    assert_eq!(line(OpenMpi4, &request), "mpirun -n 4 --bind-to numa suite 'a b'");
}

#[test]
fn every_launcher_gets_its_flags_for_root_and_oversubscription() {
    use Family::{IntelMpi, Mpich, OpenMpi4, OpenMpi5, Slurm};
    let four = "mpirun -n 4 --bind-to core suite 'a b'";
    let four_as_root = "mpirun --allow-run-as-root -n 4 --bind-to core suite 'a b'";
    for (family, ranks, root, expected) in [
        (OpenMpi4, 4, false, four),
        (OpenMpi4, 4, true, four_as_root),
        (OpenMpi4, 8, false, "mpirun -n 8 --oversubscribe --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'"),
        (
            OpenMpi4,
            8,
            true,
            "mpirun --allow-run-as-root -n 8 --oversubscribe --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'",
        ),
        (OpenMpi5, 4, false, four),
        (OpenMpi5, 4, true, four_as_root),
        (
            OpenMpi5,
            8,
            false,
            "mpirun -n 8 --map-by :OVERSUBSCRIBE --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'",
        ),
        (
            OpenMpi5,
            8,
            true,
            "mpirun --allow-run-as-root -n 8 --map-by :OVERSUBSCRIBE --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'",
        ),
        (Mpich, 4, false, "mpiexec -n 4 -bind-to core suite 'a b'"),
        (Mpich, 4, true, "mpiexec -n 4 -bind-to core suite 'a b'"),
        (Mpich, 8, false, MPICH_8),
        (Mpich, 8, true, MPICH_8),
        (IntelMpi, 4, true, "mpiexec -n 4 -bind-to core suite 'a b'"),
        (IntelMpi, 8, false, "mpiexec -n 8 -bind-to none suite 'a b'"),
        (Slurm, 4, false, "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --cpu-bind=cores suite 'a b'"),
        (Slurm, 4, true, "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --cpu-bind=cores suite 'a b'"),
        (Slurm, 8, false, "srun --ntasks=8 --kill-on-bad-exit=0 --wait=30 --overcommit --cpu-bind=none suite 'a b'"),
        (Slurm, 8, true, "srun --ntasks=8 --kill-on-bad-exit=0 --wait=30 --overcommit --cpu-bind=none suite 'a b'"),
    ] {
        assert_eq!(line(family, &request(ranks, root)), expected);
    }
}

#[test]
fn a_launcher_that_cannot_bind_ranks_is_not_asked_to() {
    let unable = Launcher { can_bind: false, ..launcher(Family::Mpich) };
    let command = |request: &Request| build(&unable, request).expect("a command").for_shell();
    assert_eq!(command(&request(4, false)), "mpiexec -n 4 suite 'a b'");
    let requested = Request { launcher_arguments: vec!["-bind-to".into(), "core".into()], ..request(4, false) };
    assert_eq!(command(&requested), "mpiexec -n 4 -bind-to core suite 'a b'");
}

#[test]
fn srun_gets_its_mpi_plugin_and_every_launcher_a_stop_signal_that_it_forwards() {
    let pmix = Request { srun_mpi: Some("pmix".into()), ..request(4, false) };
    let expected = "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --mpi=pmix --cpu-bind=cores suite 'a b'";
    assert_eq!(line(Family::Slurm, &pmix), expected);
    let own = Request { launcher_arguments: vec!["--mpi=none".into()], ..pmix };
    let expected = "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --cpu-bind=cores --mpi=none suite 'a b'";
    assert_eq!(line(Family::Slurm, &own), expected);
    for family in [Family::Slurm, Family::OpenMpi4, Family::OpenMpi5, Family::Mpich] {
        assert_eq!(build(&launcher(family), &own).expect("a command").stop_signal, Some(10));
    }
}

#[test]
fn hosts_that_the_user_names_keep_the_launchers_own_binding() {
    let named = Request { hosts: Some("a:2,b:2".into()), ..request(4, false) };
    let listed = Request { host_file: Some("my hosts".into()), ..request(4, false) };
    for (family, hosts, file) in [
        (Family::OpenMpi4, "mpirun -n 4 --host a:2,b:2 suite 'a b'", "mpirun -n 4 --hostfile 'my hosts' suite 'a b'"),
        (Family::OpenMpi5, "mpirun -n 4 --host a:2,b:2 suite 'a b'", "mpirun -n 4 --hostfile 'my hosts' suite 'a b'"),
        (Family::Mpich, "mpiexec -n 4 -hosts a:2,b:2 suite 'a b'", "mpiexec -n 4 -f 'my hosts' suite 'a b'"),
        (
            Family::IntelMpi,
            "mpiexec -n 4 -hosts a,b -ppn 2 suite 'a b'",
            "mpiexec -n 4 -machinefile 'my hosts' suite 'a b'",
        ),
        (
            Family::Slurm,
            "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --nodelist=a,b --ntasks-per-node=2 suite 'a b'",
            "env 'SLURM_HOSTFILE=my hosts' srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --distribution=arbitrary suite 'a b'",
        ),
    ] {
        assert_eq!(line(family, &named), hosts);
        assert_eq!(line(family, &listed), file);
    }
}

#[test]
fn more_ranks_than_the_named_slots_are_oversubscribed() {
    let crowded = Request { hosts: Some("a,b".into()), ..request(4, false) };
    assert_eq!(
        line(Family::OpenMpi4, &crowded),
        "mpirun -n 4 --host a,b --oversubscribe --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'"
    );
}

#[test]
fn hosts_that_cannot_be_meant_are_refused() {
    for (hosts, words) in [
        ("", "is not HOST"),
        ("a:0", "\"a:0\" is not HOST"),
        ("a:x", "\"a:x\""),
        (":2", "\":2\""),
        ("a:1,b:3", "same number of ranks for every host"),
    ] {
        let request = Request { hosts: Some(hosts.into()), ..request(4, false) };
        for family in [Family::Slurm, Family::IntelMpi] {
            let error = build(&launcher(family), &request).expect_err(hosts);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    let twice = Request { hosts: Some("a".into()), host_file: Some("f".into()), ..request(1, false) };
    assert_eq!(build(&launcher(Family::Mpich), &twice).expect_err("both").exit_code(), 2);
}

#[test]
fn the_users_launcher_arguments_come_last_and_replace_ours() {
    let own = ["--bind-to", "none", "--mca", "btl", "self,tcp"].map(str::to_owned).to_vec();
    let request = Request { launcher_arguments: own, ..request(4, false) };
    assert_eq!(line(Family::OpenMpi4, &request), "mpirun -n 4 --bind-to none --mca btl self,tcp suite 'a b'");
}

#[test]
fn values_of_secret_variables_are_not_shown_however_a_launcher_takes_them() {
    use Family::{IntelMpi, Mpich, OpenMpi4, OpenMpi5, Slurm};
    for (family, own, expected) in [
        (OpenMpi4, "-x HF_TOKEN=abc", "-x 'HF_TOKEN=(hidden)' suite"),
        (OpenMpi5, "-x A_KEY=abc -x NCCL_DEBUG=INFO", "-x 'A_KEY=(hidden)' -x NCCL_DEBUG=INFO suite"),
        (Mpich, "-env DB_PASSWORD abc", "-env DB_PASSWORD '(hidden)' suite"),
        (Mpich, "--env DB_PASSWORD=abc", "--env 'DB_PASSWORD=(hidden)' suite"),
        (IntelMpi, "-genv A_SECRET abc", "-genv A_SECRET '(hidden)' suite"),
        (Slurm, "--export=ALL,MY_CREDENTIAL=abc", "'--export=ALL,MY_CREDENTIAL=(hidden)' "),
    ] {
        let own: Vec<String> = own.split(' ').map(str::to_owned).collect();
        let command =
            build(&launcher(family), &Request { launcher_arguments: own, ..request(4, false) }).expect("a command");
        let shown = command.for_shell();
        assert!(shown.contains(expected) && !shown.contains("abc") && command.has_secrets(), "{shown}");
        assert!(command.words().join(" ").contains("abc"), "it is started with the value");
    }
    assert!(!build(&launcher(OpenMpi4), &request(4, false)).expect("a command").has_secrets());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn the_shown_command_runs_as_built(words in prop::collection::vec("[^\0]{0,10}", 0..5), value in "[^\0]{0,8}") {
        let command = LaunchCommand {
            environment: vec![Variable::new("COMMGAUGE_TEST", value.clone())],
            program: "sh".into(),
            arguments: ["-c".into(), r#"printf '%s\0' "$COMMGAUGE_TEST" "$@""#.into(), "sh".into()]
                .into_iter().chain(words.clone()).collect(),
            stop_signal: None,
        };
        let output = std::process::Command::new("sh").args(["-c", &command.for_shell()]).output().expect("a shell");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let seen: Vec<&str> = text.split_terminator('\0').collect();
        let expected: Vec<&str> = std::iter::once(value.as_str()).chain(words.iter().map(String::as_str)).collect();
        prop_assert_eq!(seen, expected);
        prop_assert!(command.words().contains(&"env".to_owned()));
    }
}
