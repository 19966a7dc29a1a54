// SPDX-License-Identifier: GPL-2.0
//! The card's interrupt: one vector of MSI-X, and the thread that serves it.

use kernel::{
    device::Bound,
    irq::{Flags, IrqRequest, ThreadedHandler, ThreadedRegistration},
    pci::{Device, IrqType, IrqTypes, IrqVectorRegistration},
    prelude::*,
};

/// The vector, without a handler.
pub(crate) struct Vector<'bound>(KBox<IrqVectorRegistration<'bound>>);

impl<'bound> Vector<'bound> {
    /// Takes a vector for a device.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the kernel answers when the device or the machine has no MSI-X.
    pub(crate) fn new(pdev: &'bound Device<Bound>) -> Result<Self> {
        let vectors = pdev.alloc_irq_vectors(1, 1, IrqTypes::default().with(IrqType::MsiX))?;
        Ok(Self(KBox::new(vectors, GFP_KERNEL)?))
    }
}

/// The vector and its handler, which runs until this is dropped.
#[pin_data]
pub(crate) struct Interrupt<'bound, T: ThreadedHandler> {
    #[pin]
    _handler: ThreadedRegistration<'bound, T>,
    /// Dropped after the handler, which borrows from it.
    _vector: Vector<'bound>,
}

impl<'bound, T: ThreadedHandler + 'bound> Interrupt<'bound, T> {
    /// Has `handler` called in a thread of its own at each interrupt.
    ///
    /// # Safety
    ///
    /// What is made must be dropped before the device is unbound.
    pub(crate) unsafe fn new(
        vector: Vector<'bound>,
        name: &'static CStr,
        handler: T,
    ) -> impl PinInit<Self, Error> + 'bound {
        pin_init::pin_init_scope(move || {
            let at: *const IrqVectorRegistration<'bound> = &raw const *vector.0;
            // SAFETY: The box does not move, and is dropped after the handler that borrows from it.
            let request: IrqRequest<'bound> = unsafe { &*at }.index(0)?.into();
            // SAFETY: The caller sees to it that it is dropped.
            let registration = unsafe {
                ThreadedRegistration::new(
                    request,
                    Flags::TRIGGER_NONE,
                    name,
                    Ok::<_, Error>(handler),
                )
            };
            Ok(try_pin_init!(Self {
                _handler <- registration,
                _vector: vector,
            }? Error))
        })
    }
}
