//! The composition of grouped calls, checked by hand; the launched tests check that they carry the right bytes.

use super::*;
use commgauge_base::geometry::{Geometry, Splits};
use commgauge_base::units::Bytes;

fn pieces(collective: Collective, placement: Placement, me: u32, of: impl Fn(Parts) -> Vec<Piece>) -> Vec<Piece> {
    let splits = Splits::Given(vec![2, 0, 1]);
    let geometry = Geometry::new(collective, ElementType::Float32, Bytes(24), 3, &splits).unwrap();
    let view = View { collective, placement, geometry: &geometry, group: &[0, 1, 2], me, root: 2 };
    of(Parts { view: &view, element_bytes: 4 })
}

fn piece(what: Part, offset: usize, count: usize, peer: c_int) -> Piece {
    Piece { what, offset, count, peer }
}

#[test]
fn ranks_without_a_share_are_left_out_of_vector_forms() {
    let out = |me| pieces(Collective::AllGatherV, Placement::OutOfPlace, me, |of| of.all_gather());
    assert_eq!(out(1), [piece(Part::Receive, 0, 4, 0), piece(Part::Receive, 16, 2, 2)]);
    let reduced = pieces(Collective::ReduceScatterV, Placement::OutOfPlace, 2, |of| of.reduce_scatter());
    let reduce = |receives| Part::Reduce { in_place: false, receives };
    assert_eq!(reduced, [piece(reduce(false), 0, 4, 0), piece(reduce(true), 16, 2, 2)]);
}

#[test]
fn in_place_a_block_that_stays_is_not_sent_to_its_own_rank() {
    let gathered = pieces(Collective::AllGatherV, Placement::InPlace, 2, |of| of.all_gather());
    assert_eq!(
        gathered,
        [piece(Part::SendOwn, 16, 2, 0), piece(Part::Receive, 0, 4, 0), piece(Part::SendOwn, 16, 2, 1)]
    );
    for collective in [Collective::Gather, Collective::Scatter] {
        let at_root = pieces(collective, Placement::InPlace, 2, |of| match collective {
            Collective::Gather => of.gather(),
            _ => of.scatter(),
        });
        assert!(at_root.len() == 2 && at_root.iter().all(|piece| piece.peer != 2), "{collective}: {at_root:?}");
    }
}

#[test]
fn nccl_leaves_the_block_of_an_in_place_reduce_scatter_where_it_was() {
    let geometry =
        Geometry::new(Collective::ReduceScatter, ElementType::Float32, Bytes(48), 3, &Splits::Equal).unwrap();
    let offset = |placement| {
        let collective = Collective::ReduceScatter;
        result_offset(&View { collective, placement, geometry: &geometry, group: &[0, 1, 2], me: 2, root: 0 })
    };
    assert_eq!((offset(Placement::InPlace), offset(Placement::OutOfPlace)), (8, 0));
}
