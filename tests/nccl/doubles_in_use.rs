//! The stand-ins for libcuda and libnccl behave as documented, and the kernels agree with the host reference.
//!
//! Needs no launcher: the ranks are this program, started again.

use crate::common;

mod api;
mod every_call;
mod faults;
mod forms;
mod kernels;
mod launch;
mod nccl;
mod unkind;

use launch::Launch;
use nccl::Rank;

/// What this process does where it was started as a rank; nothing as a test by itself.
#[test]
fn a_rank() {
    let Some((task, me)) = launch::task() else { return };
    let connected: fn(Rank) = match task.as_str() {
        "kernels" => return kernels::agree_with_the_host(),
        "time" => return kernels::pass_time(),
        "events" => return unkind::events_come_late_and_in_steps(),
        "implicit waits" => return unkind::what_waits_without_a_word(),
        "no device" => return no_device(),
        "symbols" => return symbols(),
        "init hang" => return faults::init_hang(Rank::begin_to_connect(me)),
        "not blocking" => {
            return forms::a_communicator_that_does_not_block_is_in_progress_first(Rank::begin_to_connect(me));
        }
        "memory" => return faults::out_of_memory(Rank::apart(me)),
        "shared device" => return faults::shared_device(Rank::apart(me)),
        "every call" => every_call::is_right,
        "premulsum" => every_call::multiplies_first,
        "group" => forms::a_group_posts_its_calls_together,
        "split" => forms::a_split_makes_groups_by_colour_and_key,
        "graph" => forms::a_graph_does_again_what_was_captured,
        "streams" => forms::calls_on_several_streams_keep_their_order,
        "registered" => forms::registered_buffers_are_known,
        "hang" => faults::hang,
        "slow" => faults::slow,
        "corrupt" => faults::corrupt,
        "async error" => faults::async_error,
        "error" => faults::error,
        "lost" => faults::lost,
        "kill" => faults::kill,
        "open group" => faults::open_group,
        "different calls" => faults::different_calls,
        "messages connect" => unkind::messages_connect_on_the_host,
        "full queue" => unkind::a_full_queue_holds_the_host,
        "cost" => unkind::communicators_cost,
        "no room" => unkind::kernels_without_room,
        "registration differs" => unkind::registration_differs,
        other => panic!("no task is called {other}"),
    };
    connected(Rank::connect(me));
}

#[test]
fn kernels_give_the_bits_of_the_host_reference() {
    Launch::with_faults("kernels", 1, &[]).succeeds();
    Launch::with_faults("time", 1, &[]).succeeds();
}

#[test]
fn every_collective_type_operation_and_placement_is_right_on_2_3_and_4_ranks() {
    for ranks in [2, 3, 4] {
        Launch::with_faults("every call", ranks, &[]).succeeds();
    }
    Launch::with_faults("premulsum", 3, &[]).succeeds();
}

#[test]
fn groups_splits_graphs_streams_and_registered_buffers_work() {
    for (task, ranks) in
        [("group", 3), ("group", 1), ("split", 4), ("graph", 2), ("streams", 3), ("registered", 2), ("not blocking", 3)]
    {
        Launch::with_faults(task, ranks, &[]).succeeds();
    }
}

#[test]
fn devices_and_nccl_are_as_unkind_as_the_real_ones() {
    for (task, ranks) in [
        ("events", 1),
        ("implicit waits", 1),
        ("messages connect", 3),
        ("full queue", 3),
        ("cost", 2),
        ("registration differs", 2),
    ] {
        Launch::with_faults(task, ranks, &[]).succeeds();
    }
}

#[test]
fn kernels_that_have_no_room_together_end_in_a_common_order_and_hang_without_one() {
    for (nccl, blocks, implicit, expected) in [
        (common::doubles::NCCL_VERSION, "8", "1", "an end"),
        (common::doubles::NCCL_VERSION, "8", "0", "a hang"),
        ("2.25.1", "8", "1", "a hang"),
        (common::doubles::NCCL_VERSION, "16", "0", "an end"),
    ] {
        let set = [
            ("COMMGAUGE_DOUBLE_BLOCKS", blocks),
            ("COMMGAUGE_DOUBLE_ORDER", "1"),
            ("NCCL_LAUNCH_ORDER_IMPLICIT", implicit),
            ("COMMGAUGE_TEST_EXPECTS", expected),
        ];
        Launch { nccl, ..Launch::with_faults("no room", 2, &set) }.succeeds();
    }
}

#[test]
fn each_fault_strikes_the_rank_and_the_op_that_were_named() {
    for (task, faults) in [
        ("hang", "hang rank=1 op=2"),
        ("slow", "slow rank=1 op=2 microseconds=50000"),
        ("corrupt", "corrupt rank=1 op=2"),
        ("corrupt", "corrupt rank=1 call=all_reduce op=2"),
        ("async error", "async_error rank=1 op=2-"),
        ("error", "error rank=1 op=2; error rank=7"),
        ("lost", "lost rank=1 op=2"),
        ("open group", "open_group rank=1 op=2"),
        ("different calls", ""),
        ("init hang", "init_hang rank=1 communicator=1"),
    ] {
        Launch::with_faults(task, 3, &[("COMMGAUGE_DOUBLE_FAULTS", faults)]).succeeds();
    }
    let small =
        [("COMMGAUGE_DOUBLE_FAULTS", "out_of_memory rank=1 allocation=2"), ("COMMGAUGE_DOUBLE_MEMORY", "1048576")];
    Launch::with_faults("memory", 2, &small).succeeds();
}

#[test]
fn a_rank_that_is_killed_leaves_the_others_waiting_and_nothing_in_shared_memory() {
    let faults = [("COMMGAUGE_DOUBLE_FAULTS", "kill rank=1 op=2")];
    let before = common::doubles::left_in_shared_memory();
    let ran = Launch::with_faults("kill", 3, &faults).run();
    let codes: Vec<_> = ran.iter().map(|rank| rank.code).collect();
    assert_eq!(codes, [Some(0), None, Some(0)]);
    let new: Vec<_> =
        common::doubles::left_in_shared_memory().into_iter().filter(|path| !before.contains(path)).collect();
    // Other tests of this program may be creating communicators; their files are removed a moment later.
    common::wait_until(20, "shared memory is clean", || new.iter().all(|path| !path.exists()));
}

#[test]
fn settings_that_cannot_be_read_end_the_process() {
    for (faults, message) in [("hnag rank=1", "hnag"), ("hang rank=one", "rank=one"), ("hang op=0", "op=0")] {
        for ran in Launch::with_faults("memory", 1, &[("COMMGAUGE_DOUBLE_FAULTS", faults)]).run() {
            ran.ended_with(2).printed_error(message);
        }
    }
}

#[test]
fn ranks_share_a_device_only_where_nccl_is_configured_so_and_new_enough() {
    Launch::with_faults("shared device", 2, &[]).succeeds();
    Launch::with_faults("shared device", 2, &[("NCCL_MULTI_RANK_GPU_ENABLE", "1")]).succeeds();
}

#[test]
fn a_host_without_devices_says_so() {
    Launch::with_faults("no device", 1, &[("COMMGAUGE_DOUBLE_DEVICES", "0")]).succeeds();
    Launch::with_faults("no device", 1, &[("CUDA_VISIBLE_DEVICES", "")]).succeeds();
}

fn no_device() {
    assert_eq!(api::call!(api::Library::load("libcuda.so.1"), "cuInit", 0 => u32), 100);
}

#[test]
fn an_older_nccl_has_its_version_and_lacks_what_came_later() {
    for version in ["2.16.2", "2.18.1", "2.20.5", "2.25.1", "2.27.3", common::doubles::NCCL_VERSION] {
        Launch { task: "symbols", ranks: 1, nccl: version, set: &[("COMMGAUGE_TEST_NCCL", version)] }.succeeds();
    }
}

fn symbols() {
    let wanted = std::env::var("COMMGAUGE_TEST_NCCL").expect("the test says which");
    let nccl = api::Library::load("libnccl.so.2");
    let mut version = 0;
    api::good!(nccl, "ncclGetVersion", &mut version => *mut i32);
    let parts: Vec<i32> = wanted.split('.').map(|part| part.parse().expect("a version")).collect();
    assert_eq!(version, 10_000 * parts[0] + 100 * parts[1] + parts[2]);
    for (symbol, since) in [
        ("ncclAllReduce", 0),
        ("ncclCommInitRankConfig", 14),
        ("ncclCommSplit", 18),
        ("ncclMemAlloc", 19),
        ("ncclCommRegister", 19),
        ("ncclGroupSimulateEnd", 22),
        ("ncclCommInitRankScalable", 23),
        ("ncclCommWindowRegister", 27),
        ("ncclAlltoAll", 28),
        ("ncclGather", 28),
        ("ncclScatter", 28),
    ] {
        assert_eq!(nccl.symbol(symbol).is_some(), parts[1] >= since, "{symbol} of {wanted}");
    }
}
