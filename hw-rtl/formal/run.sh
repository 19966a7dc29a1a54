#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Proves properties of the RTL for all inputs and all times (property-directed reachability or induction,
# Yosys and ABC), and shows for each proof that it would notice: the same proof fails when the
# design is changed for the worse. The table of docs/develop/proofs.md must have each proof as it is here, and no other.
# Runs in the sysroot: run.sh [NAME...]; without names all, as many at a time as there are processors. BERTH_MUTANTS says how
# many changes of each proof are tried: a number, or all, as without it. BERTH_PROVED names a folder, if any, that keeps what
# was proved: by all that goes into the proof, the tools included. What is in it holds without being proved again.
set -eu
cd "$(dirname "$0")/../rtl"
table=../../docs/develop/proofs.md
if [ $# = 0 ]; then
    names=$(sed -n 's/^proof \([a-z_]*\) .*/\1/p' ../formal/run.sh)
    for row in $(sed -n 's/^| `\([a-z_]*\)` | .* | \(PDR\|induction\) | [0-9]* |$/\1/p' $table); do
        echo "$names" | grep -qx "$row" || { echo "$table: there is no proof $row" >&2; exit 1; }
    done
    echo "$names" | xargs -n 1 -P "$(nproc)" sh ../formal/run.sh
    exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wanted=" $* "
few=${BERTH_MUTANTS:-all}
failures=0
skip=1

# What a proof may say of itself, and its mutants' search with it (`proof`):
#   parameters  of its top module, for `chparam`
#   silent      files whose own assertions are no part of it
#   induction   its assertions are inductive by themselves, and are proved so (SAT, one step); a mutant must break them within
#               that many steps after the reset
#   frames      mutants are looked at for so many clocks by ABC instead, which finds what SAT takes long for
#   free        memories of the design that are taken away: what is read from them is free
#   cut         wires of the design that are taken out of it, and free
#   start       mutants are looked at with these parameters, from a state that the design comes to; in it the design itself
#               does not fail
settings="parameters silent induction frames free cut start"

# solve TOP PARAMETERS FILES: writes "holds", "fails" or "unknown" to $work/verdict
solve() {
    {
        for file in $3; do
            case " $silent " in *" ${file##*/} "*) quiet=-noassert ;; *) quiet= ;; esac
            echo "read_verilog -sv -formal $quiet $file"
        done
        [ -z "$2" ] || echo "chparam $2 $1"
        cat <<END
prep -flatten -top $1
$(for memory in $free; do echo "delete t:\$mem_v2 r:MEMID=*$memory %i"; done)
${free:+setundef -undriven -anyseq}
$(for wire in $cut; do echo "cutpoint w:$wire"; done)
async2sync
memory_map
opt -full
chformal -lower
formalff -setundef -clk2ff -ff2anyinit
opt
setundef -undriven -anyseq
opt_clean
END
        if [ -n "$induction" ] && [ "$engine" = prove ]; then
            echo "tee -q -o $work/sat.log sat -tempinduct -maxsteps $induction -prove-asserts -set-assumes"
        else
            cat <<END
techmap
opt
dffunmap
abc -g AND -fast
opt_clean
write_aiger -zinit $work/p.aig
END
        fi
    } >"$work/p.ys"
    again=
    [ "$engine" = prove ] && command="pdr -T ${BERTH_PROOF_SECONDS:-900}" || command="bmc3 -F $frames"
    kept=
    if [ -n "${BERTH_PROVED:-}" ]; then
        tools=$(cat "$(command -v yosys)" "$(command -v yosys-abc)" | sha256sum)
        # shellcheck disable=SC2086 # a list of files
        kept=$BERTH_PROVED/$({ echo "$tools $engine $induction $command"; sed "s#$work##g" "$work/p.ys"; cat $3 ../formal/*.svh; } |
            sha256sum | cut -c 1-32)
        if [ -f "$kept" ]; then
            echo holds >"$work/verdict"
            again=", proved before"
            return
        fi
    fi
    # A name that a proof has wrong would be a wire of its own, and free; a row that it has wrong would have free bits.
    yosys -q -e 'implicitly declared|Widening signal' -l "$work/yosys.log" "$work/p.ys" >/dev/null || { cat "$work/yosys.log" >&2; exit 1; }
    if [ -n "$induction" ] && [ "$engine" = prove ]; then
        if grep -q "Induction step proven: SUCCESS" "$work/sat.log"; then echo holds
        elif grep -q "SAT temporal induction proof finished - model found for base case: FAIL" "$work/sat.log"; then echo fails
        else echo unknown; fi >"$work/verdict"
        keep
        return
    fi
    yosys-abc -c "read_aiger $work/p.aig; fold; orpos; strash; $command" >"$work/abc.log"
    if grep -q "Property proved" "$work/abc.log"; then echo holds
    elif grep -q "was asserted in frame" "$work/abc.log"; then echo fails
    else echo unknown; fi >"$work/verdict"
    keep
}

# keep: what holds is kept, if it is to be
keep() {
    [ -z "$kept" ] || [ "$(cat "$work/verdict")" != holds ] || date >"$kept"
}

# wrong TEXT
wrong() {
    echo "WRONG $1"
    failures=$((failures + 1))
}

# close: the proof before must have a mutant that fails if any was tried, and its row in the table
close() {
    [ -z "$skip" ] || return 0
    skip=1
    [ "$few" = 0 ] || [ "$killed" -gt 0 ] || wrong "$name: no mutant fails"
    grep -q "^| \`$name\` | .* | $method | $named |\$" $table || wrong "$name: no row in $table with | $method | $named |"
}

# where FILE: its path from hw-rtl/rtl; a module's file needs no folder
where() {
    if [ -f "$1" ]; then path=$1; else path=$(find . -name "$1"); fi
    [ -n "$path" ] || { echo "$name: there is no $1" >&2; exit 1; }
}

# proof NAME TOP [SETTING=VALUE...] FILE...: must hold; `settings` that it does not give are empty
proof() {
    close
    name=$1 top=$2 files=
    shift 2
    for setting in $settings; do eval "$setting="; done
    for word in "$@"; do
        case " $settings " in
        *" ${word%%=*} "*) eval "${word%%=*}=\${word#*=}" ;;
        *) files="$files $word" ;;
        esac
    done
    case $wanted in "  " | *" $name "*) skip= ;; *) skip=1; return 0 ;; esac
    short=$files files=
    for file in $short; do where "$file"; files="$files $path"; done
    engine=prove killed=0 named=0
    [ -n "$induction" ] && method=induction || method=PDR
    solve "$top" "$parameters" "$files"
    report "$name" holds
    [ -n "$start" ] && [ "$few" != 0 ] || return 0
    engine=search
    solve "$top" "$start" "$files"
    report "$name, from where mutants are looked at" unknown
}

# mutant FILE SED: the proof before must fail with the file changed so
mutant() {
    [ -z "$skip" ] || return 0
    where "$1"
    sed "$2" "$path" >"$work/$1"
    if cmp -s "$path" "$work/$1"; then
        wrong "$name: nothing in $1 matches $2"
        return 0
    fi
    named=$((named + 1))
    [ "$few" = all ] || [ "$named" -le "$few" ] || return 0
    changed=
    for file in $files; do
        if [ "$file" = "$path" ]; then changed="$changed $work/$1"; else changed="$changed $file"; fi
    done
    [ -z "$frames" ] || engine=search
    solve "$top" "${start:-$parameters}" "$changed"
    report "$name, $1 with $2" fails
    [ "$verdict" != fails ] || killed=$((killed + 1))
}

report() {
    verdict=$(cat "$work/verdict")
    if [ "$verdict" = "$2" ]; then
        echo "ok    $1: $verdict$again"
    else
        wrong "$1: $verdict"
    fi
}

fifo="../formal/fifo_proof.sv berth_fifo.sv berth_lutfifo.sv"
proof fifo fifo_proof $fifo
mutant berth_fifo.sv 's/(!out_valid_q || rd_ready)/!rd_ready/'
mutant berth_fifo.sv 's/assign wr_ready = !full/assign wr_ready = 1/'
proof fifo_pass fifo_proof parameters="-set PASS 1" $fifo
mutant berth_fifo.sv 's/wire pass = PASS != 0 .*/wire pass = PASS != 0 \&\& wr_valid;/'
mutant berth_fifo.sv 's/assign rd_data = passed_q ? data_q : out_q;/assign rd_data = out_q;/'
proof lutfifo fifo_proof parameters="-set LUT 1" $fifo
mutant berth_lutfifo.sv 's/assign wr_ready = .*;/assign wr_ready = 1;/'
mutant berth_lutfifo.sv 's/if (rd_valid \&\& rd_ready)/if (rd_ready)/'

proof wr_arb wr_arb_proof \
    berth_card_pkg.sv ../formal/wr_arb_proof.sv berth_wr_arb.sv
mutant berth_wr_arb.sv 's/assign sel = .*/assign sel = pick;/'
mutant berth_wr_arb.sv 's/lock_q <= !(hwr_ready \&\& hwr.last);/lock_q <= hwr_ready \&\& !hwr.last;/'
mutant berth_wr_arb.sv 's/ \&\& allow\[k\]//'
proof wr_turn wr_turn_proof \
    berth_card_pkg.sv ../formal/wr_turn_proof.sv berth_wr_arb.sv
mutant berth_wr_arb.sv "s/k = SW'(32'(sel_q) + i);/k = SW'(i);/"
mutant berth_wr_arb.sv 's/i = N; i > 0; i--/i = N; i > 1; i--/'
mutant berth_wr_arb.sv 's/      sel_q  <= sel;/      sel_q  <= hwr.last ? sel : sel_q;/'

proof dma_wr dma_wr_proof induction=6 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/dma_wr_proof.sv berth_dma_wr.sv berth_dma_page.sv ../formal/queue_free.sv
# two rules keep to the page; without both it is left
mutant berth_dma_wr.sv 's/line_left = line - .*/line_left = line;/;s/left      = pg.len - off_q/left      = pg.len/'
mutant berth_dma_page.sv 's/ \&\& !hold \&\& room) looking_q/ \&\& room) looking_q/'
mutant berth_dma_page.sv 's/len = left_q < page_left ? .*/len = left_q;/'

proof atomic atomic_proof silent=berth_atomic.sv free="places operations tags results bytes behind last marks" induction=1 frames=20 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/atomic_proof.sv ../formal/queue_free.sv berth_fp_first.sv berth_atomic.sv
mutant berth_atomic.sv 's/assign clash  = .*/assign clash = 0;/'
mutant berth_atomic.sv 's/ = end_valid_q \&\& !judging;/ = end_valid_q;/'
mutant berth_atomic.sv 's/own_mark != store_mark;/own_mark != own_mark;/'
mutant berth_atomic.sv 's/ ? !kept : clash/ ? 1'"'b0"' : clash/'
mutant berth_atomic.sv 's/!out_q\[heir\] || (loaded_valid .*) again_q/!out_q[heir]) again_q/'
mutant berth_atomic.sv 's/last_at  = clash ? owner : found_slot_q;/last_at  = found_slot_q;/'

proof fp_ready fp_ready_proof \
    ../formal/fp_ready_proof.sv berth_fp_ready.sv
mutant berth_fp_ready.sv 's/bits_q\[next\] <= 1.b0;//'
mutant berth_fp_ready.sv 's/later = here \& .*/later = here;/'
mutant berth_fp_ready.sv 's/if (set\[i\]) bits_q/if (set[i] \&\& !pop) bits_q/'

proof fp_pool fp_pool_proof \
    ../formal/fp_pool_proof.sv berth_fp_pool.sv
mutant berth_fp_pool.sv 's/free_q <= free_q & ~found;/free_q <= free_q;/'
mutant berth_fp_pool.sv 's/if (!valid || take) begin/if (!valid) begin/'
mutant berth_fp_pool.sv 's/if (give) free_q/if (give \&\& !take) free_q/'

proof dma_rd dma_rd_proof silent="berth_dma_rd.sv berth_dma_page.sv" free="base_q len_q next_q kind_q" induction=6 frames=12 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/dma_rd_proof.sv berth_dma_rd.sv berth_dma_page.sv ../formal/queue_free.sv
mutant berth_dma_rd.sv 's/line_left = line - .*/line_left = line;/'
mutant berth_dma_rd.sv 's/failed = giving_q || hcpl.err || hurt_q /failed = giving_q || hcpl.err /'
mutant berth_dma_rd.sv 's/ || (hcpl.err \&\& hcpl.len == 0))/ || hcpl.err)/'
mutant berth_dma_rd.sv 's/(fits \&\& last_byte)/last_byte/'
mutant berth_dma_rd.sv 's/live = fly_q & ~dead_q;/live = fly_q;/'
mutant berth_dma_rd.sv 's/ \&\& !stop \&\& free_tag_ok/ \&\& free_tag_ok/'
mutant berth_dma_rd.sv 's/ \&\& enable \&\& !hold;/ \&\& enable;/'
mutant berth_dma_rd.sv "s/if (hrd_ready) hrd_v_q <= 1'b0/hrd_v_q <= 1'b0/"
mutant berth_dma_rd.sv 's/wrong = hcpl.off != next || /wrong = /'

proof dma_mapped dma_mapped_proof silent="berth_dma_wr.sv berth_dma_page.sv" induction=6 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/dma_mapped_proof.sv berth_dma_wr.sv berth_dma_page.sv ../formal/queue_free.sv
mutant berth_dma_page.sv "s/pg.len    <= refuse || miss ? '0 : len;/pg.len    <= refuse ? '0 : len;/"
mutant berth_dma_page.sv 's/{virt_q ? lk_page : addr_q\[63:12\]/{addr_q[63:12]/'
mutant berth_dma_wr.sv 's/front_cmd.virt  = fast ? !store.bus : wcmd.virt/front_cmd.virt  = !fast/'
mutant berth_dma_wr.sv "s/off_q <= refuse || len == left ? '0 : off_q + len;/off_q <= off_q + len;/"
proof dma_fence dma_fence_proof silent="berth_dma_wr.sv berth_dma_page.sv" induction=6 frames=12 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/dma_fence_proof.sv berth_dma_wr.sv berth_dma_page.sv ../formal/queue_free.sv
mutant berth_dma_page.sv 's/ \&\& !hold \&\& room) looking_q/ \&\& room) looking_q/'
mutant berth_dma_page.sv 's/      looking_q <= 1.b0;$/      looking_q <= miss;/'
mutant berth_dma_page.sv 's/(bad_q \&\& !hold)/bad_q/'
mutant berth_dma_wr.sv "s/ + 7'(word_pop);/;/"
mutant berth_dma_wr.sv 's/ || (seg_valid \&\& empty_seg \&\& !hold_done);/;/'
mutant berth_dma_wr.sv 's/get_pop = get_valid \&\& get_free;/get_pop = get_valid \&\& get_free \&\& word_valid;/'
proof xlt_hash xlt_hash_proof silent="berth_xlt.sv berth_xlt_range.sv" free="ram counts" cut="dut.a_asid_q dut.a_vpn_q" induction=6 \
    small/berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/xlt_hash_proof.sv ../formal/queue_free.sv berth_xlt_range.sv berth_xlt.sv
mutant berth_xlt.sv "s/x \* 9'h1c7/x * 9'h1c6/"
mutant berth_xlt.sv 's/row_of(ch\.index\[WW-1\], /row_of(!ch.index[WW-1], /'
mutant berth_xlt.sv 's/ vpn\[8:0\] ^ a ^ b ^ c;/ vpn[9:1] ^ a ^ b ^ c;/'
proof xlt xlt_proof silent="berth_xlt.sv berth_xlt_range.sv" free="ram counts" cut="dut.row0 dut.row1 dut.at_home" induction=2 \
    frames=14 start="-set CLEARED 1" \
    small/berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/xlt_proof.sv ../formal/queue_free.sv ../formal/range_free.sv berth_xlt.sv
mutant berth_xlt.sv 's/(ch\.op != EVICT || evict_now)) begin/(ch.op == INSTALL || evict_now)) begin/'
mutant berth_xlt.sv "s/== {b_asid_q, b_vpn_q\[47:9\]}/== {entries[ENTRY*w+91+:8], b_vpn_q[47:9]}/"
mutant berth_xlt.sv 's/(entries\[ENTRY\*w+99\] || !b_write_q)/1/'
mutant berth_xlt.sv 's/went = {at_home, /went = {1'"'b1"', /'
mutant berth_xlt.sv 's/(a_q || b_q || c_q || d_q)/(a_q)/'
mutant berth_xlt.sv "s/c_q \&\& c_who_q == WHO_WRITE, /c_q \&\& c_who_q >= WHO_READ, /"
mutant berth_xlt.sv 's/match_way\[WW-1\] ? b_row1_q : b_row0_q/b_row0_q/'
mutant berth_xlt.sv 's/wire evict_now = count_q == 0;/wire evict_now = r_busy == 0;/'
proof xlt_bound xlt_bound_proof silent="berth_xlt.sv" free="ram counts" induction=4 frames=14 start="-set CLEARED 1" \
    small/berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/xlt_bound_proof.sv ../formal/queue_free.sv ../formal/range_free.sv berth_xlt.sv
mutant berth_xlt.sv "s/open_q  <= 3'd4;/open_q  <= 3'd0;/"
mutant berth_xlt.sv 's/ch_valid \&\& (open_q == 0 || !any)/ch_valid/'
mutant berth_xlt.sv 's/lk_req \& ~asked_q;/lk_req;/'
mutant berth_xlt.sv 's/if (lk_new != 0) begin/if (lk_new != 0 \&\& !any) begin/'
proof xlt_range xlt_range_proof induction=2 frames=12 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/xlt_range_proof.sv ../formal/queue_free.sv berth_xlt_range.sv
mutant berth_xlt_range.sv 's/assign pg.vpn = cur_q ? vpn_q : give_vpn_q;/assign pg.vpn = vpn_q;/'
mutant berth_xlt_range.sv 's/ev_valid = giving_q \&\& give_q == 0/ev_valid = giving_q/'
mutant berth_xlt_range.sv 's/<= after_done;/<= after_done - 20'"'"'(after.write);/'
mutant berth_xlt_range.sv 's/all_q  <= an_last || hit;/all_q <= 1;/'
mutant berth_xlt_range.sv "s/done_q <= an_last ? '0 : /done_q <= /"
mutant berth_xlt_range.sv 's/ : !hit \&\& !flying.quiet;/ : !hit \&\& go_valid;/'
mutant berth_xlt_range.sv 's/ : !hit \&\& !flying.quiet;/ : !hit;/'
mutant berth_xlt_range.sv 's/(hit \&\& !flying.probe);/hit;/'
mutant berth_xlt_range.sv 's/ \&\& (ev_ready || !after_tell);/;/'
proof xlt_recent xlt_recent_proof free=pages induction=2 frames=12 \
    ../formal/xlt_recent_proof.sv berth_xlt_recent.sv
mutant berth_xlt_recent.sv 's/if (changing || rst) begin/if (rst) begin/'
mutant berth_xlt_recent.sv 's/ \&\& !looked_q \&\& !changing / \&\& !looked_q /'
mutant berth_xlt_recent.sv 's/match_q \&\& !changing;/match_q;/'
mutant berth_xlt_recent.sv 's/ \&\& !looked_q \&\& / \&\& /'
mutant berth_xlt_recent.sv 's/ == {lk_asid, lk_vpn}/ == {asid, lk_vpn}/'
proof cmd_fence cmd_fence_proof silent=berth_cmd.sv free="lines fw_ram" induction=1 frames=22 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/cmd_fence_proof.sv ../formal/queue_free.sv berth_cmd.sv
mutant berth_cmd.sv 's/assign hold = state_q == FENCE || /assign hold = /'
mutant berth_cmd.sv 's/CMD_FENCE: state_q <= FENCE;/CMD_FENCE: state_q <= quiet ? TOKEN : FENCE;/'
mutant berth_cmd.sv 's/if (ch_ready || !page_ok) begin/begin/'
mutant berth_cmd.sv 's/evict) \&\& page_q != further;/evict);/'
mutant berth_cmd.sv 's/ \&\& !used_q\[put_q\] \&\& / \&\& /'
proof fp_window fp_window_proof silent=berth_fp_send.sv induction=6 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_window_proof.sv ../formal/queue_free.sv berth_fp_send.sv
mutant berth_fp_send.sv 's/if (!real_piece || !windowed || /if (!real_piece || /'
mutant berth_fp_send.sv 's/windowed   = flight < /windowed   = flight <= /'

proof fp_arrival fp_arrival_proof silent=berth_fp_arrival.sv induction=3 frames=8 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_arrival_proof.sv ../formal/queue_free.sv berth_fp_first.sv berth_fp_arrival.sv
mutant berth_fp_arrival.sv 's/f.seen    = r_q.seen | bit_at/f.seen    = r_q.seen/'
mutant berth_fp_arrival.sv "s/>= 24'(W);/> 24'(W);/"
mutant berth_fp_arrival.sv 's/(bit_at & r_q.seen)/bit_at/'
mutant berth_fp_arrival.sv 's/same_q  <= .*/same_q <= 0;/'
proof fp_cut fp_cut_proof silent=berth_fp_cut.sv induction=6 frames=12 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_cut_proof.sv ../formal/queue_free.sv berth_fp_cut.sv
mutant berth_fp_cut.sv 's/ \&\& ((credit \&\& (message || size != 32.d0)) || alone);/;/'
mutant berth_fp_cut.sv 's/needs  = .*;/needs  = !one;/'
mutant berth_fp_cut.sv 's/needs  = .*;/needs  = !remote || e_imm;/'
mutant berth_fp_cut.sv 's/next_in != next_out \&\& !late_q;/next_in != next_out;/'
mutant berth_fp_cut.sv 's/kept     = .*/kept     = next_in - give_n;/'
proof fp_builder fp_builder_proof silent=berth_fp_builder.sv induction=3 frames=14 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_builder_proof.sv ../formal/queue_free.sv berth_fp_meter.sv ../formal/cap_free.sv berth_fp_builder.sv
mutant berth_fp_builder.sv "s/ \&\& !row.list_sent \&\& fresh != '0/ \&\& fresh != '0/"
mutant berth_fp_builder.sv 's/ \&\& after(r.landed, r.trigger_at)//'
mutant berth_fp_builder.sv 's/fresh = row.committed - row.announced/fresh = row.posted - row.announced/'
mutant berth_fp_builder.sv 's/if (run_q \&\& q_next == q_q) take = 1.b0;//'
mutant berth_fp_builder.sv 's/tell_first = row.list_first;//'
mutant berth_fp_builder.sv 's/ \&\& row.withheld >= pass.n;/;/'
mutant berth_fp_builder.sv "s/at_q      <= tell_first\[6:0\];/at_q      <= '0;/"
proof fp_fence fp_fence_proof silent=berth_fp_scatter.sv induction=3 frames=12 \
    berth_card_pkg.sv ../formal/fp_fence_proof.sv ../formal/queue_free.sv berth_fp_scatter.sv
mutant berth_fp_scatter.sv 's/f_queue_q - 5.(head_pop .*);/f_queue_q;/'
mutant berth_fp_scatter.sv "s/((go && over) || !(look_q || read_q))/1'b1/"
mutant berth_fp_scatter.sv 's/fenced = f_state_q == F_FLIGHT && .*/fenced = f_state_q == F_FLIGHT;/'
mutant berth_fp_scatter.sv "s/f_flight_q <= flights_q + .*/f_flight_q <= flights_q - (TW + 1)'(stored_valid);/"
proof fp_block fp_block_proof silent=berth_fp_block.sv cut=dut.clear_q induction=3 frames=8 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_block_proof.sv ../formal/queue_free.sv berth_fp_block.sv
mutant berth_fp_block.sv 's/bytes - back < (serve_q/bytes - back <= (serve_q/'
mutant berth_fp_block.sv 's/need && pieces != cut ? LOOK : IDLE/need ? LOOK : IDLE/'
mutant berth_fp_block.sv "s/x_kind_q == READY && x_asked && good/x_kind_q == READY \&\& good/"
mutant berth_fp_block.sv 's/if (!fixing && len > {11.d0, reach}).*//'
mutant berth_fp_block.sv 's/, want - len, ctx_ends/, want, ctx_ends/'
mutant berth_fp_block.sv 's/in_ctx < want ? in_ctx : want/want/'
mutant berth_fp_block.sv 's/ \&\& fits \&\& !still_q;/ \&\& fits;/'
grant="../formal/queue_free.sv berth_fp_grant.sv"
proof fp_grant_row fp_grant_row_proof silent=berth_fp_grant.sv cut=dut.r induction=1 frames=8 berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_grant_row_proof.sv $grant
mutant berth_fp_grant.sv 's/same_q  *<= .*/same_q <= 0;/'
mutant berth_fp_grant.sv 's/same_q  *<= .*/same_q <= state_q != IDLE;/'
proof fp_grant_times fp_grant_times_proof silent=berth_fp_grant.sv cut=dut.r_q berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_grant_times_proof.sv $grant
mutant berth_fp_grant.sv "s/37'd15) << UNIT_W/37'd16) << UNIT_W/"
mutant berth_fp_grant.sv "s/if (grown > 21'(r_q.most)) .*//"
proof fp_grant_bound fp_grant_bound_proof silent=berth_fp_grant.sv cut="dut.may_hold dut.to_come" induction=1 frames=14 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_grant_bound_proof.sv $grant
mutant berth_fp_grant.sv 's/ || too_much || too_soon);/ || too_soon);/'
mutant berth_fp_grant.sv "s/ \&\& r_q.ask != n_freed_q \&\& / \&\& r_q.ask != n_freed_q + 16'd1 \&\& /"
mutant berth_fp_grant.sv "s/ahead     = .*/ahead = 34'(32'(r_q.fresh + size + r_q.newest));/"
mutant berth_fp_grant.sv "s/{2'd0, r_q.asked - n_given_q} + /34'(r_q.asked - n_given_q) + /"
mutant berth_fp_grant.sv "s/^            r.asked = r_q.asked - 32'(again_len);/            r.asked = r_q.asked - 32'({again_len, 1'b0});/"
proof fp_grant_window fp_grant_window_proof silent=berth_fp_grant.sv induction=1 frames=14 berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_grant_window_proof.sv $grant
mutant berth_fp_grant.sv 's/!(r_q.on \&\& r_q.waits\[slot_q\]);/!r_q.on;/'
mutant berth_fp_grant.sv "s/r.own\[at_slot_q\] = 1.b0;//"
mutant berth_fp_grant.sv 's/if (r_q.hold != .0 || r_q.whole) have/if (r_q.whole) have/'
proof fp_keys fp_keys_proof induction=2 frames=16 start="-set KEYS 2" \
    berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_keys_proof.sv ../formal/queue_free.sv berth_fp_keys.sv
mutant berth_fp_keys.sv 's/scope.live \&\& entry.key == a_q.key/scope.live/'
mutant berth_fp_keys.sv 's/scope.domain == a_q.domain/1/'
mutant berth_fp_keys.sv 's/in_range  *= !wraps_q \&\& /in_range = /'
mutant berth_fp_keys.sv 's/last_q <= entry.last/a_q.va <= entry.last/'
mutant berth_fp_keys.sv 's/scope.rights \& ~denies/scope.rights/'
mutant berth_fp_keys.sv 's/fresh_q  *<= !claim.taken/fresh_q <= 1/'
mutant berth_fp_keys.sv 's/begins  *= ahead == .0 \&\& !claim.over/begins = ahead == 0/'
mutant berth_fp_keys.sv "s/if (op_q == OP_OVER) claim_new.over = 1'b1;/if (op_q == OP_OVER) claim_new = '0;/"
mutant berth_fp_keys.sv 's/claim_we  *= entry_we || claims/claim_we = claims/'
mutant berth_fp_keys.sv 's/state_q <= CLEAR;/state_q <= IDLE;/'
proof fp_tx_places fp_tx_places_proof silent=berth_fp_tx_places.sv free="waits next_of list_of last_of made over answer_of" induction=3 frames=16 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/fp_tx_places_proof.sv ../formal/queue_free.sv berth_fp_tx_places.sv
mutant berth_fp_tx_places.sv 's/ \&\& !fails) || (op_q == FAIL/) || (op_q == FAIL/'
mutant berth_fp_tx_places.sv 's/ | (complete ? step_bit : .0)) & ~open_bit/ \& ~open_bit) | (complete ? step_bit : 0)/;s/whole_q   <= (whole_q/whole_q   <= whole_q | (0/'
mutant berth_fp_tx_places.sv 's/m_shown_q  <= !failed_q.number(m_pick).;/m_shown_q  <= 1;/'
mutant berth_fp_tx_places.sv 's/open\.over ? open_bit/1 ? 0/'
mutant berth_fp_tx_places.sv 's/(follows_q & ~open_bit)/follows_q/'
mutant berth_fp_tx_places.sv 's/head_ready = !loaded_valid && !pass_q/head_ready = !loaded_valid/'
mutant berth_fp_tx_places.sv 's/data_here && !pass_q/data_here/'
mutant berth_fp_tx_places.sv 's/gone_here && !pass_q/gone_here/'
mutant berth_fp_tx_places.sv "s/18'd4608/18'd4096/"
proof pktram_turn pktram_turn_proof silent="berth_cpu_bus.sv berth_pktram.sv berth_ram.sv berth_fwram.sv" free="mem stats" induction=3 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/pktram_turn_proof.sv ../formal/queue_free.sv berth_cpu_bus.sv berth_fwram.sv berth_pktram.sv berth_ram.sv
mutant berth_cpu_bus.sv 's/(at_pkt \&\& pkt_last_q)$/1'"'b0"'/'
mutant berth_cpu_bus.sv 's/pkt_last_q <= p_valid/pkt_last_q <= p_valid \&\& p_we \&\& m_sel[0]/'
mutant berth_pktram.sv 's/pr_ready = !(cpr \&\& (cp_r ? pr_r : pr_t))/pr_ready = !(cpr \&\& (cp_r ? pr_r : pr_t)) \&\& !pw_valid/'
proof mac_rx mac_rx_proof silent=berth_mac_rx.sv free="tops mem" induction=3 frames=16 \
    berth_regs_pkg.sv berth_card_pkg.sv berth_row_pkg.sv ../formal/mac_rx_proof.sv ../formal/queue_free.sv berth_mac_rx.sv berth_ram.sv
mutant berth_mac_rx.sv "s/free_q\[pick\] <= 1.b0;/free_q <= free_q;/"
mutant berth_mac_rx.sv 's/ \&\& lent_q\[slot_free_n\[3:0\]\]) begin/) begin/'
mutant berth_mac_rx.sv 's/if (!slot_valid_q || (take \&\& !in_frame_q))/if (!slot_valid_q || take)/'
mutant berth_mac_rx.sv 's/if (!in_frame_q)$/if (1)/'
mutant berth_mac_rx.sv 's/core_n < CORE_SLOTS/core_n <= CORE_SLOTS/'
mutant berth_mac_rx.sv 's/if (ev_core_full)$/if (0)/'
close

[ "$failures" = 0 ] || { echo "$failures wrong" >&2; exit 1; }
