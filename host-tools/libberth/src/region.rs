// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that peers may be given keys for.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use berth_abi::ioctl;
use berth_abi::rows::{recv, send};
use berth_queue::Remote;

use crate::context::Inner;
use crate::cq::CompletionQueue;
use crate::error::{Error, Result};
use crate::mapping::{Buffer, FileMap};
use crate::qp::{QpConfig, QueuePair};

/// What a peer may do with a region, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// READ it.
    pub read: bool,
    /// WRITE to it.
    pub write: bool,
    /// Atomics in it.
    pub atomic: bool,
    /// One operation only; after that the key opens nothing until the region is bound anew (QP-12).
    pub one_shot: bool,
}

impl Access {
    /// To be written to, any number of times.
    pub const WRITE: Self = Self { read: false, write: true, atomic: false, one_shot: false };

    /// To be read, any number of times.
    pub const READ: Self = Self { read: true, write: false, atomic: false, one_shot: false };

    fn rights(self) -> u32 {
        let right = |given, bit| if given { bit } else { 0 };
        right(self.read, recv::RIGHT_READ)
            | right(self.write, recv::RIGHT_WRITE)
            | right(self.atomic, recv::RIGHT_ATOMIC)
    }

    /// As a BIND has it.
    pub(crate) fn scope(self) -> send::Bind {
        send::Bind { rights: self.rights(), one_shot: self.one_shot.into(), ..send::Bind::default() }
    }

    fn flags(self) -> u32 {
        if self.one_shot { ioctl::REGISTER_ONE_SHOT } else { 0 }
    }
}

#[derive(Debug)]
struct Domain {
    context: Arc<Inner>,
    number: u32,
    identity: u64,
}

impl Drop for Domain {
    fn drop(&mut self) {
        let (what, request) = ("destroy a protection domain", ioctl::IOC_DESTROY_DOMAIN);
        end(&self.context, what, request, self.number, self.identity);
    }
}

/// Ends an object that is dropped, unless that has been done for us.
fn end(context: &Inner, what: &'static str, request: u32, value: u32, identity: u64) {
    if !context.is_owned() {
        return;
    }
    let mut arg = ioctl::Handle { value, reserved: 0, identity };
    if let Err(error) = context.ioctl(what, request, &mut arg)
        && !matches!(error, Error::DeviceLost | Error::NotFound { .. })
    {
        tracing::warn!(what, value, %error, "not done");
    }
}

/// A protection domain: peers of its queue pairs may use the keys of its regions, and no others (QP-11). Clones share it;
/// it lasts as long as something is in it.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    inner: Arc<Domain>,
}

impl ProtectionDomain {
    pub(crate) fn new(context: &Arc<Inner>) -> Result<Self> {
        let mut arg = ioctl::Handle::default();
        context.ioctl("make a protection domain", ioctl::IOC_CREATE_DOMAIN, &mut arg)?;
        let context = Arc::clone(context);
        Ok(Self { inner: Arc::new(Domain { context, number: arg.value, identity: arg.identity }) })
    }

    /// Its number on the card, and its identity.
    pub(crate) fn name(&self) -> (u32, u64) {
        (self.inner.number, self.inner.identity)
    }

    /// Makes a queue pair in it. [`Context::create_qp`](crate::Context::create_qp) makes one that is in none, whose peer may
    /// use no key.
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::Invalid`], [`Error::TooManyReads`].
    pub fn create_qp(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        config: &QpConfig,
    ) -> Result<QueuePair> {
        QueuePair::new(&self.inner.context, send_cq, recv_cq, config, Some(self))
    }

    /// Registers `len` bytes from `va` on, of any size and alignment. Nothing is pinned, and the memory need not be there
    /// yet: each access finds what the process has at that address then, or fails. 0 bytes at address 0 make a key that opens
    /// nothing yet.
    ///
    /// # Safety
    /// Peers that know the key may read and write the memory at any time, as `access` says, until the region is bound anew
    /// or dropped: nothing else may rely on its content, and what is at these addresses must be meant for them.
    ///
    /// # Errors
    /// [`Error::LimitReached`], [`Error::Invalid`].
    pub unsafe fn register(&self, va: u64, len: u64, access: Access) -> Result<Region> {
        let (domain, domain_identity) = self.name();
        let (rights, flags) = (access.rights(), access.flags());
        let mut arg = ioctl::Register { va, len, domain, domain_identity, rights, flags, ..ioctl::Register::default() };
        self.inner.context.ioctl("register memory", ioctl::IOC_REGISTER, &mut arg)?;
        Ok(Region { domain: self.clone(), key: arg.key, identity: arg.identity })
    }
}

/// Memory of the process that peers may use with its key. When it has been dropped, no access to it is under way, and
/// none comes.
#[derive(Debug)]
pub struct Region {
    domain: ProtectionDomain,
    key: u32,
    /// Identity of the region: a later one may have its key.
    identity: u64,
}

impl Region {
    /// The key, to be told to peers.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Binds the key to other memory, or other rights; a one-shot key is fresh again. When this returns, no access under the
    /// old binding is under way.
    ///
    /// # Safety
    /// As [`ProtectionDomain::register`].
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::NotFound`] after a reset of the card.
    pub unsafe fn rebind(&self, va: u64, len: u64, access: Access) -> Result<()> {
        let mut arg = ioctl::Register {
            va,
            len,
            rights: access.rights(),
            flags: access.flags(),
            key: self.key,
            identity: self.identity,
            ..ioctl::Register::default()
        };
        self.domain.inner.context.ioctl("bind a key", ioctl::IOC_REBIND, &mut arg)
    }

    /// Binds the key to nothing: when this returns, it opens nothing, and no access is under way.
    ///
    /// # Errors
    /// As [`Region::rebind`].
    pub fn unbind(&self) -> Result<()> {
        // SAFETY: no memory.
        unsafe { self.rebind(0, 0, Access::default()) }
    }

    /// As [`Region::unbind`]; answers whether the memory may go. If not, the card may still use it.
    pub(crate) fn let_go(&self) -> bool {
        matches!(self.unbind(), Ok(()) | Err(Error::DeviceLost | Error::NotFound { .. }))
    }
}

/// A file that peers may use with a key, for which it is mapped and registered: no `unsafe`. Nothing is pinned.
///
/// When it has been dropped, no access to it is under way, and none comes.
#[derive(Debug)]
pub struct FileRegion {
    /// `None` when it is being dropped only.
    map: Option<FileMap>,
    region: Region,
    file: File,
}

impl FileRegion {
    /// Peers may READ the whole of `file`, as long as it is now, and find its bytes as they are then.
    ///
    /// # Errors
    /// As [`FileMap::new`] and [`ProtectionDomain::register`].
    pub fn read_only(domain: &ProtectionDomain, file: File) -> Result<Self> {
        let map = FileMap::new(&file)?;
        Self::new(domain, map, file, Access::READ)
    }

    /// Peers may also WRITE. What they write is in memory of this process only, until it is [stored](Self::store): a card
    /// cannot write to the pages of a file on a disk (decision 16). `file` must be open for reading and writing.
    ///
    /// # Errors
    /// As [`FileRegion::read_only`].
    pub fn writable(domain: &ProtectionDomain, file: File) -> Result<Self> {
        let map = FileMap::writable(&file)?;
        Self::new(domain, map, file, Access { read: true, ..Access::WRITE })
    }

    fn new(domain: &ProtectionDomain, map: FileMap, file: File, access: Access) -> Result<Self> {
        // SAFETY: the mapping is kept until the region has been unbound, and its content is handed out to nobody here.
        let region = unsafe { domain.register(map.address(), map.len() as u64, access) }?;
        Ok(Self { map: Some(map), region, file })
    }

    fn map(&self) -> &FileMap {
        self.map.as_ref().expect("there until it is dropped")
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.map().len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.map().is_empty()
    }

    /// Its first byte, to be told to peers.
    pub fn remote(&self) -> Remote {
        Remote { va: self.map().address(), key: self.region.key() }
    }

    /// Writes a range, as peers have left it, to the file and to its medium.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that the file did not have, [`Error::Os`].
    pub fn store(&self, range: Range<usize>) -> Result<()> {
        self.map().store(&self.file, range)?;
        self.file.sync_data().map_err(|source| Error::Os { what: "sync the file", source })
    }
}

impl Drop for FileRegion {
    fn drop(&mut self) {
        if !self.region.let_go() {
            self.map.take().into_iter().for_each(FileMap::leak);
        }
    }
}

/// An owned buffer that peers may READ, WRITE and change by atomics with a key: no `unsafe`. Nothing is pinned.
///
/// When it has been dropped, no access to it is under way, and none comes.
#[derive(Debug)]
pub struct BufferRegion {
    /// `None` when it is being dropped, or was taken out.
    buffer: Option<Buffer>,
    region: Region,
}

impl BufferRegion {
    /// Gives peers the buffer.
    ///
    /// # Errors
    /// As [`ProtectionDomain::register`].
    pub fn new(domain: &ProtectionDomain, buffer: Buffer) -> Result<Self> {
        let access = Access { read: true, atomic: true, ..Access::WRITE };
        Self::with(domain, buffer, access).map_err(|(error, _)| error)
    }

    /// As [`BufferRegion::new`] with other rights; gives the buffer back if that cannot be.
    pub(crate) fn with(domain: &ProtectionDomain, buffer: Buffer, access: Access) -> Result<Self, (Error, Buffer)> {
        let va = buffer.mapping().as_ptr() as u64;
        // SAFETY: the buffer is kept until the region has been unbound, and is handed out to nobody here.
        match unsafe { domain.register(va, buffer.len() as u64, access) } {
            Ok(region) => Ok(Self { buffer: Some(buffer), region }),
            Err(error) => Err((error, buffer)),
        }
    }

    /// Takes the buffer from the peers; `None` if the card may still use it.
    pub(crate) fn into_buffer(mut self) -> Option<Buffer> {
        if self.region.let_go() { self.buffer.take() } else { None }
    }

    /// Its first byte, to be told to peers.
    pub fn remote(&self) -> Remote {
        let buffer = self.buffer.as_ref().expect("there until it is dropped");
        Remote { va: buffer.mapping().as_ptr() as u64, key: self.region.key() }
    }
}

impl Drop for BufferRegion {
    fn drop(&mut self) {
        if self.buffer.is_some() && !self.region.let_go() {
            self.buffer.take().into_iter().for_each(Buffer::leak);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let (what, request) = ("deregister memory", ioctl::IOC_DEREGISTER);
        end(&self.domain.inner.context, what, request, self.key, self.identity);
    }
}
