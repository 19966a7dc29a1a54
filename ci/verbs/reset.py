# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Uses two queue pairs of one process again after a reset: python3 reset.py DEVICE GID_INDEX."""

import sys
import time

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import (IBV_ACCESS_LOCAL_WRITE, IBV_MTU_1024, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPT_RC,
                           IBV_SEND_SIGNALED, IBV_WC_RECV, IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WR_FLUSH_ERR)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

SIZE = 3000


class End:
    """A queue pair with memory of its own."""

    def __init__(self, pd, cq, route):
        self.mr = MR(pd, SIZE, IBV_ACCESS_LOCAL_WRITE)
        self.sge = SGE(self.mr.buf, SIZE, self.mr.lkey)
        self.qp = QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(8, 8, 1, 1, 0)))
        self.route = route

    def attributes(self, peer):
        attributes = QPAttr(port_num=1)
        attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=self.route, dlid=0)
        attributes.dest_qp_num = peer.qp.qp_num
        attributes.path_mtu = IBV_MTU_1024
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry, attributes.min_rnr_timer = 20, 7, 7, 12
        return attributes

    def change(self, state):
        self.qp.modify(QPAttr(qp_state=state), IBV_QP_STATE)

    def receive(self, number):
        self.qp.post_recv(RecvWR(wr_id=number, num_sge=1, sg=[self.sge]))

    def send(self, number, byte):
        self.mr.write(byte * SIZE, SIZE)
        self.qp.post_send(SendWR(wr_id=number, num_sge=1, sg=[self.sge], send_flags=IBV_SEND_SIGNALED))


def completions(cq, count):
    """So many completions, as they come."""
    found = []
    while len(found) < count:
        found += cq.poll(count - len(found))[1]
        time.sleep(0.01)
    return found


def main(device, index):
    context = Context(name=device)
    pd = PD(context)
    cq = CQ(context, 64)
    route = GlobalRoute(dgid=context.query_gid(1, index), sgid_index=index)
    ends = [End(pd, cq, route), End(pd, cq, route)]
    for number, byte in enumerate(['a', 'b', 'c']):
        for end, peer in zip(ends, ends[::-1]):
            end.qp.to_rtr(end.attributes(peer))
        for end, peer in zip(ends, ends[::-1]):
            end.qp.to_rts(end.attributes(peer))
        sender, receiver = ends
        for left in (number, 50, 51):
            receiver.receive(left)
        sender.send(number, byte)
        done = completions(cq, 2)
        assert {(wc.opcode, wc.wr_id) for wc in done} == {(IBV_WC_SEND, number), (IBV_WC_RECV, number)}, done
        assert all(wc.status == IBV_WC_SUCCESS for wc in done), [wc.status for wc in done]
        assert receiver.mr.read(SIZE, 0) == byte.encode() * SIZE
        # Receives are left. They complete if the queue pair ends before, and a reset forgets that they did.
        if number == 1:
            receiver.change(IBV_QPS_ERR)
            assert [(wc.wr_id, wc.status) for wc in completions(cq, 1)] == [(50, IBV_WC_WR_FLUSH_ERR)]
        for end in ends:
            end.change(IBV_QPS_RESET)
        assert cq.poll()[0] == 0, 'a completion of what was forgotten'
        ends.reverse()
    for end in ends:
        end.qp.close()
        end.mr.close()
    for thing in (cq, pd, context):
        thing.close()


main(sys.argv[1], int(sys.argv[2]))
