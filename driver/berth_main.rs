// SPDX-License-Identifier: GPL-2.0
//! Driver of the Berth RDMA NIC.
//!
//! To make it probe, start QEMU with `-device vfio-user-pci` and a socket of `berth-sim`.
//!
//! Folders, lowest first; each imports only those before it, and `abi`, the layout shared with card and library:
//!
//! * `abi`: layouts and numbers that driver, firmware, RTL and library share.
//! * `kernel`: safe abstractions of what the `kernel` crate does not wrap. All `unsafe` is there, but for what the
//!   module's start and `probe` need.
//! * `card`: one card alone: rings, commands, fence, watchdog, reset, firmware, registers.
//! * `net`: the card as an ordinary network device.
//! * `pages`: pinning what the card asks for, and taking it back.
//! * `process`: what processes own of a card: contexts, queue pairs, completion queues, connections.
//! * `rdma`: the card as an RDMA device, for programs that use verbs.
//!
//! Above them: `events` (the interrupt thread), `debugfs`, `params` (the module's parameters), `cards` (by their numbers),
//! `uapi` (`/dev/berthN`), and this file (module and `probe`).
//!
//! Lock order, outermost first: `Card::naming` or `Link::registered`, the lock of the network configuration (`Rtnl`);
//! `Context::control`, `Card::reset_lock`, `Card::events`, `AddressSpace::space` (pages and requests), the process's budget (`Share::budget`), the card's
//! (`PageService::budget`), then the leaves: `table`, `waiting`, `pool`, `costs`, `needs` and `spaces` of the page
//! service, `answers`, `cmd`, `calls`, `log` and `owner` of the card, and `Registry::tables` or a
//! context's `objects`, under either of which its events are queued and dropped. All from
//! `AddressSpace::space` on are spin locks. The MMU notifier takes only these; none of them is held
//! while memory is allocated with reclaim or pages are pinned. A reset releases notifiers that wait
//! for a fence before it takes memory or any lock that is held while memory is allocated.

// What serves verbs is part of the driver where the kernel has RDMA devices.
#![cfg_attr(not(CONFIG_INFINIBAND), allow(dead_code))]

use ::kernel::{
    debugfs::Dir,
    device::{Bound, Core},
    dma::{Device, DmaMask},
    driver,
    miscdevice::{MiscDeviceOptions, MiscDeviceRegistration},
    pci,
    prelude::*,
    sync::Arc,
    InPlaceModule, ModuleMetadata, ThisModule,
};

/// The layout shared with card, library and tools. Not all of it concerns the driver.
#[path = "abi/src/layout/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod abi;
mod card;
mod cards;
mod debugfs;
mod events;
mod kernel;
mod net;
mod pages;
mod params;
mod process;
#[cfg(CONFIG_INFINIBAND)]
mod rdma;
mod uapi;

use crate::kernel::{
    errno,
    gate::{BoundRef, GateOwner},
    interrupt::{Interrupt, Vector},
    pin::SharedPages,
    users,
    workqueue::OwnedQueue,
};
use abi::host::{HOST_CAPS0, HOST_CAPS1, HOST_CAPS2, HOST_CAPS3};
use card::{regs::Regs, Card, CardConfig};
use cards::{shares_of, Instance, GLOBAL};
use events::Events;
use net::Link;
use pages::{service::PageConfig, PageService};
use params::Params;
use process::{registry::RegistryConfig, Registry};
use uapi::Session;

/// Work items that may be under way at once, without page requests.
const MAX_WORKERS: c_int = 256;
/// Most page requests and checks of suspect pages that may wait for pages at once: as many as a
/// work queue can have, several times what a card can ask for at a time (480). Some may be of
/// closed contexts, whose pages never come.
const MAX_FAULTS: c_int = 2048;

/// Takes a card out of service when dropped, while all of its resources are still there.
struct Service(Arc<Registry>);

impl Drop for Service {
    fn drop(&mut self) {
        let gone = GLOBAL.lock().cards[self.0.card.instance].take();
        drop(gone);
        self.0.unbind();
    }
}

/// Takes the network device away when dropped, while the card is in service.
struct NetworkDevice(Arc<Registry>);

impl Drop for NetworkDevice {
    fn drop(&mut self) {
        if let Some(link) = &self.0.link {
            link.end();
        }
    }
}

/// Frees the rings when dropped.
struct Rings(Arc<Card>);

impl Drop for Rings {
    fn drop(&mut self) {
        self.0.free_rings();
    }
}

/// Takes the doorbell pages away from processes when dropped, after the gate is closed.
struct Doorbells(Arc<Registry>);

impl Drop for Doorbells {
    fn drop(&mut self) {
        self.0.take_doorbells();
    }
}

/// Bus device data. The fields are dropped in this order.
#[pin_data]
struct BerthData<'bound> {
    #[pin]
    _debugfs: debugfs::Files,
    #[pin]
    _misc: MiscDeviceRegistration<Session>,
    _net: NetworkDevice,
    _service: Service,
    #[pin]
    _interrupt: Interrupt<'bound, Events>,
    _rings: Rings,
    /// Waits until the device is not used any more.
    _gate: GateOwner,
    _doorbells: Doorbells,
    _instance: Instance,
    _root: Dir,
}

struct BerthDriver;

::kernel::pci_device_table!(
    PCI_TABLE,
    <BerthDriver as pci::Driver>::IdInfo,
    [(
        pci::DeviceId::from_id(pci::Vendor::XILINX, abi::card::PCI_DEVICE),
        ()
    )]
);

impl pci::Driver for BerthDriver {
    type IdInfo = ();
    type Data<'bound> = BerthData<'bound>;

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        pin_init::pin_init_scope(move || {
            let no = |why: &'static str| move |e: Error| refused(pdev, why, e);
            pdev.enable_device_mem()
                .map_err(no("its registers cannot be enabled (`lspci -vv`: did the firmware of the machine give it room?)"))?;
            pdev.set_master();
            // SAFETY: There are no DMA allocations or mappings of this device yet.
            unsafe { pdev.dma_set_mask_and_coherent(DmaMask::new::<62>()) }.map_err(no(
                "this machine does not allow addresses of 62 bits for its DMA",
            ))?;
            let vector = Vector::new(pdev)
                .map_err(|e| if e == ENOMEM { e } else { errno::unsupported() })
                .map_err(no(
                    "it gets no MSI-X interrupt, and has no other (booted with pci=nomsi?)",
                ))?;

            let (instance, gate, registry) = prepare(pdev)?;
            let card = registry.card.clone();
            let name = uapi::NAMES[instance.0];
            let root = Dir::new(c"berth");
            let files_registry = registry.clone();
            let events = Events(registry.clone());
            // SAFETY: The interrupt becomes part of the bus device data (or is dropped when probing fails), which is
            // dropped before the device is unbound.
            let interrupt = unsafe { Interrupt::new(vector, name, events) };
            Ok(try_pin_init!(BerthData {
                _doorbells: Doorbells(registry.clone()),
                _gate: gate,
                _rings: Rings(card.clone()),
                _interrupt <- interrupt,
                _service: Service(registry.clone()),
                _: {
                    registry.begin();
                    // A card without usable firmware stays bound, so that users can ask why, and
                    // reset it with better firmware.
                    let started = card.reset("probe");
                    if matches!(started, Err(e) if e == ENODEV) {
                        return Err(ENODEV);
                    }
                    card.start_watching();
                },
                _net: NetworkDevice(registry.clone()),
                _: {
                    #[cfg(CONFIG_INFINIBAND)]
                    if let Some(link) = &registry.link {
                        let module = GLOBAL.lock().module.ok_or(ENODEV)?;
                        link.attach(rdma::Verbs::new(&registry, module)?);
                    }
                },
                _misc <- MiscDeviceRegistration::register(MiscDeviceOptions { name }),
                _: {
                    GLOBAL.lock().cards[instance.0] = Some(registry.clone());
                    dev_info!(card.dev, "berth: {} is there\n", name);
                },
                _debugfs <- debugfs::files(&root, name, files_registry),
                _root: root,
                _instance: instance,
            }? Error))
        })
    }
}

/// Says why the driver does not take a card.
fn refused(pdev: &pci::Device<Bound>, why: &str, e: Error) -> Error {
    dev_err!(pdev, "berth: the card is not used: {}: {:?}\n", why, e);
    e
}

/// Tries one DMA mapping: a machine that refuses it would refuse each queue.
fn try_mapping(bound: &BoundRef) -> Result {
    let page = card::PAGE as usize;
    SharedPages::new(bound.clone(), page).map(drop).map_err(|e| {
        let why = if e == errno::unsupported() {
            "its DMA would go through bounce buffers, but it reads and writes the memory of processes itself \
             (booted with swiotlb=force, or a guest with encrypted memory?)"
        } else {
            "no memory can be mapped for its DMA (too little of it, or its IOMMU group has no domain?)"
        };
        refused(bound, why, e)
    })
}

/// Checks the card and sets up the driver's part of it.
fn prepare(pdev: &pci::Device<Bound>) -> Result<(Instance, GateOwner, Arc<Registry>)> {
    let no = |why: &'static str| move |e: Error| refused(pdev, why, e);
    let regs = Regs::new(pdev).map_err(no("BAR0 is too small, or others use it"))?;
    if !regs.present() {
        dev_err!(pdev, "berth: no Berth card behind BAR0\n");
        return Err(ENODEV);
    }
    let version = regs.read(abi::host::HOST_ABI);
    if version != abi::card::ABI_VERSION {
        dev_err!(
            pdev,
            "berth: the card speaks ABI version {}, the driver {}\n",
            version,
            abi::card::ABI_VERSION
        );
        return Err(ENODEV);
    }
    if pdev.resource_len(2).unwrap_or(0) < u64::from(abi::card::BAR2_SIZE) {
        return Err(refused(pdev, "BAR2 is too small or has no address", ENODEV));
    }
    let caps = [HOST_CAPS0, HOST_CAPS1, HOST_CAPS2, HOST_CAPS3];
    let sizes = abi::card::Sizes::from_registers(caps.map(|at| regs.read(at)));
    let sizes =
        sizes.ok_or_else(|| refused(pdev, "its registers name sizes that no card has", ENODEV))?;
    let instance = Instance::new().map_err(no("there are 16 others, and no more names"))?;
    let (queue, faults) = GLOBAL.lock().queues.clone().ok_or(ENODEV)?;
    // SAFETY: The owner becomes part of the bus device data (or is dropped when probing
    // fails), which is dropped before the device is unbound.
    let gate = unsafe { GateOwner::new(pdev) }.map_err(no(NO_MEMORY))?;
    let bound = gate.gate().enter().ok_or(ENODEV)?;
    try_mapping(&bound)?;
    let doorbells = pdev.resource_start(2)?;
    // All but the kernel's own, which come first.
    let own = card::PAGE;
    let of_processes = u64::from(abi::card::BAR2_SIZE) - own;
    if let Err(e) = bound.combine_writes(doorbells + own, of_processes) {
        dev_info!(
            pdev,
            "berth: doorbell pages are uncached instead of write-combining, which costs each send a little (no PAT, or others have mapped them): {:?}\n",
            e
        );
    }
    drop(bound);
    let params = given();
    let card = CardConfig {
        instance: instance.0,
        queue,
        loss_window_ms: i64::from(params.loss_window_ms),
        doorbells,
        sizes,
    };
    let pages = PageConfig {
        faults,
        linger_ms: params.linger_ms,
        card_pages: params.card_pages().min(sizes.table.entries().into()),
        context_pages: params.process_pages(),
        copy_pages: params.copy_pages().min(sizes.table.entries().into()),
    };
    let registry = Card::new(gate.gate(), regs, card)
        .and_then(|card| {
            let processes = RegistryConfig {
                link: match params.network_device {
                    0 => None,
                    _ => Some(Link::new(&card)?),
                },
                max_process_qps: params.max_process_qps,
                max_process_cqs: params.max_process_cqs,
                max_process_contexts: params.max_process_contexts,
                shares_of,
                take_events: events::take,
            };
            Registry::new(&PageService::new(&card, pages)?, processes)
        })
        .map_err(no(NO_MEMORY))?;
    Ok((instance, gate, registry))
}

/// Why a card is not used: the driver has no memory for it.
const NO_MEMORY: &str = "no memory for its rings and tables";

/// The module's parameters.
fn given() -> Params {
    Params {
        linger_ms: module_parameters::linger_ms.value(),
        card_budget: module_parameters::card_budget.value(),
        process_budget: module_parameters::process_budget.value(),
        copy_pool: module_parameters::copy_pool.value(),
        max_process_qps: module_parameters::max_process_qps.value(),
        max_process_cqs: module_parameters::max_process_cqs.value(),
        max_process_contexts: module_parameters::max_process_contexts.value(),
        loss_window_ms: module_parameters::loss_window_ms.value(),
        network_device: module_parameters::network_device.value(),
    }
}

/// Lets all work finish when dropped: no code of the module runs afterwards.
struct Quiesce(Arc<OwnedQueue>, Arc<OwnedQueue>);

impl Drop for Quiesce {
    fn drop(&mut self) {
        let queues = GLOBAL.lock().queues.take();
        drop(queues);
        // Page requests hand work to the other queue, not the other way round.
        self.1.flush();
        self.0.flush();
    }
}

/// The module. The fields are dropped in this order.
#[pin_data]
struct BerthModule {
    #[pin]
    _driver: driver::Registration<pci::Adapter<BerthDriver>>,
    _quiesce: Quiesce,
}

impl InPlaceModule for BerthModule {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        // SAFETY: Called once, before anything else of the module.
        unsafe { GLOBAL.init() };
        // SAFETY: As above.
        unsafe { users::init() };
        try_pin_init!(Self {
            _quiesce: {
                given().check()?;
                let queue = Arc::new(OwnedQueue::new(c"berth", MAX_WORKERS)?, GFP_KERNEL)?;
                let faults = OwnedQueue::new(c"berth_faults", MAX_FAULTS)?;
                let faults = Arc::new(faults, GFP_KERNEL)?;
                {
                    let mut global = GLOBAL.lock();
                    global.queues = Some((queue.clone(), faults.clone()));
                    global.module = Some(module);
                }
                Quiesce(queue, faults)
            },
            _driver <- driver::Registration::new(<Self as ModuleMetadata>::NAME, module),
        })
    }
}

module! {
    type: BerthModule,
    name: "berth",
    authors: ["The Berth authors"],
    description: "Berth RDMA NIC",
    license: "GPL",
    firmware: ["berth/berth-fw.bin"],
    params: {
        linger_ms: u32 {
            default: 50,
            description: "Milliseconds that unused pages stay pinned",
        },
        card_budget: u64 {
            default: 16777216,
            description: "Bytes that one card may have pinned",
        },
        process_budget: u64 {
            default: 8388608,
            description: "Bytes that one process may have pinned",
        },
        copy_pool: u64 {
            default: 4194304,
            description: "Bytes that one card may have copied for sending; 0: none",
        },
        max_process_qps: u32 {
            default: 48,
            description: "Queue pairs that one process may have",
        },
        max_process_cqs: u32 {
            default: 48,
            description: "Completion queues that one process may have",
        },
        max_process_contexts: u32 {
            default: 16,
            description: "Contexts (open descriptors with a doorbell page) that one process may have",
        },
        loss_window_ms: u32 {
            default: 60000,
            description: "Milliseconds in which firmware may be lost eight times and is started again",
        },
        network_device: u32 {
            default: 1,
            description: "Whether the card is a network device and an RDMA device as well",
        },
    },
}
