// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 72-byte example of the credit lists, step by step.

mod common;
use berth_abi::counters::F_NO_BUFFER;
use common::*;

#[test]
fn cr_11_the_72_bytes_leave_as_3_7_22_40_and_the_lists_are_3_7_then_22_44_then_11() {
    let (mut w, mut a, mut b) = pair(1);
    let data = pattern(1, 72);
    w.nodes[0].hw.map(ASID, SRC, 4096, true);
    w.nodes[0].hw.poke(ASID, SRC, &data);
    w.nodes[1].hw.map(ASID, DST, 4096, true);
    let sizes = [3u32, 7, 22, 44, 11];
    let at = |i: usize| DST + sizes[..i].iter().sum::<u32>() as u64;

    // The sender has 72 bytes and no credit; it holds them (CR-3).
    w.post_send(&mut a, &[(SRC, 72)], 100);
    w.ring(&a);
    w.run(300_000);
    assert!(data_frames(&w, 0).is_empty());

    // Frames of the sender wait at the wire, so that nothing lands before we want it.
    w.hold[0] = true;
    w.post_recv(&mut b, &[(at(0), 3)], 0);
    w.post_recv(&mut b, &[(at(1), 7)], 1);
    w.ring(&b);
    w.run_until(10_000_000, |w| data_frames(w, 0).len() == 2);
    assert_eq!(lists(&w, 1), [(0, vec![3, 7])]);

    // Meanwhile the receiver posts 22, then 44: no list before the first buffer has data.
    w.post_recv(&mut b, &[(at(2), 22)], 2);
    w.ring(&b);
    w.run(200_000);
    w.post_recv(&mut b, &[(at(3), 44)], 3);
    w.ring(&b);
    w.run(200_000);
    assert_eq!(lists(&w, 1).len(), 1, "a second list before the proof");

    // The 3 bytes land: the list [22, 44] goes. (The acknowledgement of the list is a held frame, too.)
    let data_at = w.held[0].iter().position(|f| f[42] == 5).unwrap();
    w.release(0, data_at + 1);
    w.run_until(10_000_000, |w| lists(w, 1).len() == 2);
    assert_eq!(lists(&w, 1)[1], (2, vec![22, 44]));
    w.run_until(10_000_000, |w| data_frames(w, 0).len() == 4);
    w.post_recv(&mut b, &[(at(4), 11)], 4);
    w.ring(&b);
    w.run(200_000);
    assert_eq!(lists(&w, 1).len(), 2);

    // 22 and 40 land: [11] may go.
    w.hold[0] = false;
    w.release(0, usize::MAX);
    w.run_until(10_000_000, |w| lists(w, 1).len() == 3);
    assert_eq!(lists(&w, 1)[2], (4, vec![11]));
    w.run_until(10_000_000, |w| w.completions(&a, false).len() == 1);

    let frames = data_frames(&w, 0);
    assert_eq!(frames.iter().map(|f| f.2).collect::<Vec<_>>(), [3, 7, 22, 40]);
    // Bytes remaining (CR-9).
    assert_eq!(frames.iter().map(|f| f.3).collect::<Vec<_>>(), [69, 62, 40, 0]);
    let done = w.completions(&b, true);
    assert_eq!(
        done.iter().map(|c| (c[0], c[2], c[4] & 0xff, c[5], c[6])).collect::<Vec<_>>(),
        [(0, 3, 0, 69, 0), (1, 7, 0, 62, 1), (2, 22, 0, 40, 2), (3, 40, 0, 0, 3)]
    );
    assert_eq!(w.nodes[1].hw.peek(ASID, DST, 72), data);
    assert_eq!(w.completions(&a, false)[0][..5], [100, 0, 72, 16, 0x100]);
    assert_eq!(w.counter(1, F_NO_BUFFER), 0);
    // The receive of 11 is still granted; all else is released.
    assert_eq!(w.nodes[0].hw.pinned(), 0);
    w.destroy(&a);
    w.destroy(&b);
    w.run(1_000_000);
    assert_clean(&mut w);
}
