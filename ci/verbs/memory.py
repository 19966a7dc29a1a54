# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Registers memory and looks at what it costs: python3 memory.py DEVICE."""

import ctypes
import mmap
import subprocess
import sys

from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import (_IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, _IBV_ADVISE_MR_FLAG_FLUSH, IBV_ACCESS_LOCAL_WRITE,
                           IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QPT_RC, IBV_REREG_MR_CHANGE_ACCESS,
                           IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import SGE

MEGABYTE = 1 << 20
ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE


def kilobytes(name):
    """What the kernel says of this process's memory."""
    with open('/proc/self/status', encoding='ascii') as status:
        line = next(line for line in status if line.startswith(f'{name}:'))
    return int(line.split()[1])


def pinned():
    """Bytes that the kernel has pinned for this process."""
    return kilobytes('VmPin') * 1024


def resources(device):
    """What `rdma resource` says of the device, as {'pd': 1, ...}."""
    text = subprocess.run(['rdma', 'resource', 'show'], check=True, capture_output=True, text=True).stdout
    line = next(line for line in text.splitlines() if f'{device}:' in line)
    words = line.split(f'{device}:')[1].split()
    return dict(zip(words[::2], map(int, words[1::2])))


def main(device):
    # The kernel has some of its own.
    before = resources(device)
    context = Context(name=device)
    pd = PD(context)
    cq = CQ(context, 16)
    region = MR(pd, 64 * MEGABYTE, ACCESS)
    assert region.lkey != 0 or region.rkey != 0, 'a region has no key'
    assert pinned() == 0, f'{pinned()} bytes are pinned for a region of 64 MiB'
    qp = QP(pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(8, 8, 1, 1, 0)))
    seen = resources(device)
    more = {kind: seen[kind] - before[kind] for kind in ('pd', 'cq', 'qp', 'mr', 'ctx')}
    assert set(more.values()) == {1}, f'one more of each, but: {more}'
    assert pinned() == 0, f'{pinned()} bytes are pinned for a queue pair'
    # It changes without another key, but for its domain's.
    key = region.rkey
    region.rereg(IBV_REREG_MR_CHANGE_ACCESS, access=IBV_ACCESS_LOCAL_WRITE)
    memory = mmap.mmap(-1, 16 * MEGABYTE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    changes = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS
    region.rereg(changes, None, address, 16 * MEGABYTE, ACCESS)
    assert region.rkey == key
    other = PD(context)
    region.rereg(IBV_REREG_MR_CHANGE_PD, other)
    assert region.rkey != key and resources(device)['mr'] == seen['mr']
    # What will be used may be brought in.
    before_advice = kilobytes('VmRSS')
    sges = [SGE(address, 16 * MEGABYTE, region.lkey)]
    pd.advise_mr(_IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, _IBV_ADVISE_MR_FLAG_FLUSH, sges)
    assert kilobytes('VmRSS') - before_advice >= 15 * 1024, 'nothing was brought in'
    assert pinned() == 0, f'{pinned()} bytes are pinned by an advice'
    # A registration says at once that memory is not there.
    address = 0x7000_0000_0000
    try:
        MR(pd, 4096, ACCESS, address=address)
    except PyverbsRDMAError as error:
        print('refused, as it must be:', error)
    else:
        raise AssertionError('memory that is not there was registered')
    for thing in (qp, region, cq, other, pd, context):
        thing.close()
    assert resources(device) == before, resources(device)


main(sys.argv[1])
