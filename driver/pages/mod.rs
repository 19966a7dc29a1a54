// SPDX-License-Identifier: GPL-2.0
//! The page service: pins what the card is about to use, and takes it back.
//!
//! The card asks for pages by virtual address (`EV_PAGE_NEED`). Each request is a work
//! item of its own, so that a page that never comes holds up nothing else. A page is
//! pinned and mapped once per address space, whatever the number of its uses; it stays
//! in the card's translation table until it has been idle for the linger time, or until
//! its place in the budget is wanted, or until the memory manager takes it away.
//!
//! What becomes of a page stands at [`space::PageState`], what becomes of a request at [`request::RequestState`].

pub(crate) mod address_space;
pub(crate) mod answer;
pub(crate) mod bring;
pub(crate) mod budget;
pub(crate) mod evict;
pub(crate) mod install;
pub(crate) mod needs;
pub(crate) mod plan;
pub(crate) mod recall;
pub(crate) mod recheck;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod revoke;
pub(crate) mod service;
pub(crate) mod share;
pub(crate) mod space;
pub(crate) mod table;
pub(crate) mod unpin;
