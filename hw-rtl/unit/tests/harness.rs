// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way from a bench to a module's ports.
#![cfg(feature = "fastpath")]

use berth_rtl_unit::Module;

#[test]
fn ports_are_found_by_name_with_their_widths_and_values() {
    let Some(&width) = Module::widths("berth_xlt").first() else { return };
    let mut module = Module::new("berth_xlt", width);
    let (tag, words, vpn) = (module.port("xhead.tag"), module.port("xev_words"), module.port("lk_vpn"));
    assert_eq!((tag.bits(), words.bits(), module.words(words).len()), (16, 224, 4));
    assert!(module.find("nothing").is_none());
    module.set(tag, 0xbeef_u16);
    module.set_wide(vpn, &[u64::MAX; 8]);
    // fields of a record, and the record as a whole: neither disturbs what stands beside it
    let (all, va, give_back) = (module.port("xhead"), module.port("xhead.va"), module.port("xhead.give_back"));
    assert_eq!((all.bits(), va.bits()), (123, 64));
    module.set(va, 0x0123_4567_89ab_cdef_u64);
    assert_eq!((module.get(va), module.get(tag), module.is(give_back)), (0x0123_4567_89ab_cdef, 0xbeef, false));
    assert_eq!(module.words(all), [0xbeef | 0x0123_4567_89ab_cdef << 47, 0x0123_4567_89ab_cdef >> 17]);
    module.reset();
    module.settle();
    assert_eq!((module.get(tag), module.cycles()), (0xbeef, 4));
    let above = vpn.bits() as usize % 64;
    let last = module.words(vpn).pop();
    assert_eq!(last, Some(if above == 0 { u64::MAX } else { (1 << above) - 1 }), "nothing above the port's width");
}
