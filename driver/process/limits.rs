// SPDX-License-Identifier: GPL-2.0
//! What a process may have, and has, of a card.

use crate::{
    abi::{card::*, counters::D_KEYS, host::*, ioctl},
    card::PAGE,
    process::{region::MAX_CONTEXT_DOMAINS, registry::MAX_SERVICES, Context, Registry},
};
use kernel::{mm::Mm, sync::atomic::Relaxed};

/// Services that one context listens to at most: a quarter of the card's is left to others.
pub(super) const MAX_PER_CONTEXT: usize = 48;

impl Registry {
    /// Usage and limits of the process with `mm`, of a context of it, and of all processes.
    pub(crate) fn limits(&self, mm: Option<&Mm>, context: Option<&Context>) -> ioctl::QueryLimits {
        let regions = context.map_or(0, Context::regions);
        let tables = self.tables.lock();
        let own = |asid: usize| {
            let owner = tables.contexts.get(asid).and_then(Option::as_ref);
            owner.is_some_and(|owner| mm.is_some_and(|mm| owner.space.share.is_of(mm)))
        };
        let taken = |taken: usize, most: u32| ioctl::Taken {
            taken: taken as u32,
            most,
        };
        let both = |owners: &[u8], most| {
            let all = owners.iter().filter(|asid| **asid != 0);
            let mine = all.clone().filter(|asid| own(usize::from(**asid)));
            [
                taken(mine.count(), most),
                taken(all.count(), owners.len() as u32),
            ]
        };
        let [process_cqs, card_cqs] = both(&tables.cq_owners, self.max_process_cqs);
        let [process_qps, card_qps] = both(&tables.qps, self.max_process_qps);
        let asids = tables.asids_taken.iter().enumerate();
        let contexts = asids.filter(|(_, there)| **there);
        let domains = |asid: u32| {
            let owners = tables.domains.iter();
            owners.filter(|owner| u32::from(**owner) == asid).count()
        };
        let services = context.map_or(0, |context| {
            let mine = tables.services.iter().filter(|s| s.asid == context.asid);
            mine.count()
        });
        ioctl::QueryLimits {
            process_contexts: taken(
                contexts.clone().filter(|(asid, _)| own(*asid)).count(),
                self.max_process_contexts,
            ),
            card_contexts: taken(contexts.count(), self.asids - 1),
            process_cqs,
            card_cqs,
            process_qps,
            card_qps,
            context_services: taken(services, context.map_or(0, |_| MAX_PER_CONTEXT as u32)),
            card_services: taken(tables.services.len(), MAX_SERVICES as u32),
            context_domains: taken(
                context.map_or(0, |context| domains(context.asid)),
                context.map_or(0, |_| MAX_CONTEXT_DOMAINS as u32),
            ),
            card_domains: taken(
                tables.domains.len() - domains(0),
                tables.domains.len() as u32,
            ),
            context_regions: taken(regions, context.map_or(0, |_| self.max_keys() as u32)),
            card_regions: taken(
                self.card.counters.get(D_KEYS) as usize,
                self.card.sizes.keys,
            ),
        }
    }

    /// Queries that work without a context.
    pub(crate) fn query(&self) -> ioctl::Query {
        let net = *self.card.net.lock();
        let fw = *self.card.fw.lock();
        let budget = *self.pages.budget.lock();
        let mut mac = [0; 8];
        mac[..6].copy_from_slice(&net.mac);
        ioctl::Query {
            abi: ABI_VERSION,
            fw_version: fw.version,
            fw_status: self.card.regs.read(HOST_STATUS),
            fw_code: self.card.regs.read(HOST_FW_CODE),
            max_qps: self.card.sizes.qps,
            max_cqs: self.process_cqs(),
            max_qps_per_process: self.max_process_qps,
            ipv4: net.ipv4,
            mtu: net.mtu,
            clock_hz: self.card.regs.read(HOST_CLOCK_HZ),
            mac,
            guid: net.guid,
            cycles: self.card.regs.cycles().unwrap_or(0),
            card_budget: budget.limit * PAGE,
            process_budget: self.pages.context_pages.min(budget.limit) * PAGE,
            linger_ms: self.pages.linger_ms.load(Relaxed),
            elf_id: fw.elf_id,
        }
    }
}
