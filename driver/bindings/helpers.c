// SPDX-License-Identifier: GPL-2.0
#include <linux/etherdevice.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/uaccess.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "helpers.h"

void *helper_netdev_priv(const struct net_device *dev)
{
	return netdev_priv(dev);
}

void helper_set_netdev_dev(struct net_device *dev, struct device *parent)
{
	SET_NETDEV_DEV(dev, parent);
}

void helper_eth_hw_addr_set(struct net_device *dev, const u8 *addr)
{
	eth_hw_addr_set(dev, addr);
}

void helper_eth_hw_addr_random(struct net_device *dev)
{
	eth_hw_addr_random(dev);
}

bool helper_is_valid_ether_addr(const u8 *addr)
{
	return is_valid_ether_addr(addr);
}

bool helper_netif_running(const struct net_device *dev)
{
	return netif_running(dev);
}

void helper_netif_start_queue(struct net_device *dev)
{
	netif_start_queue(dev);
}

void helper_netif_stop_queue(struct net_device *dev)
{
	netif_stop_queue(dev);
}

void helper_netif_wake_queue(struct net_device *dev)
{
	netif_wake_queue(dev);
}

bool helper_netif_queue_stopped(const struct net_device *dev)
{
	return netif_queue_stopped(dev);
}

void helper_netif_tx_disable(struct net_device *dev)
{
	netif_tx_disable(dev);
}

bool helper_netdev_xmit_more(void)
{
	return netdev_xmit_more();
}

void helper_netif_napi_add(struct net_device *dev, struct napi_struct *napi,
			   int (*poll)(struct napi_struct *, int))
{
	netif_napi_add(dev, napi, poll);
}

void helper_netif_napi_del(struct napi_struct *napi)
{
	netif_napi_del(napi);
}

/* From a thread: what is scheduled there runs when bottom halves are enabled again. */
void helper_napi_schedule(struct napi_struct *napi)
{
	local_bh_disable();
	napi_schedule(napi);
	local_bh_enable();
}

unsigned int helper_skb_headlen(const struct sk_buff *skb)
{
	return skb_headlen(skb);
}

unsigned int helper_skb_nr_frags(const struct sk_buff *skb)
{
	return skb_shinfo(skb)->nr_frags;
}

int helper_skb_linearize(struct sk_buff *skb)
{
	return skb_linearize(skb);
}

int helper_skb_tailroom(const struct sk_buff *skb)
{
	return skb_tailroom(skb);
}

void helper_skb_tx_timestamp(struct sk_buff *skb)
{
	skb_tx_timestamp(skb);
}

void helper_dev_kfree_skb_any(struct sk_buff *skb)
{
	dev_kfree_skb_any(skb);
}

struct sk_buff *helper_netdev_alloc_skb_ip_align(struct net_device *dev, unsigned int len)
{
	return netdev_alloc_skb_ip_align(dev, len);
}

dma_addr_t helper_dma_map_single(struct device *dev, void *ptr, size_t bytes, enum dma_data_direction dir)
{
	return dma_map_single(dev, ptr, bytes, dir);
}

/* Maps fragment i for reading by the device, and says how long it is. */
dma_addr_t helper_skb_frag_dma_map(struct device *dev, const struct sk_buff *skb, unsigned int i, unsigned int *bytes)
{
	const skb_frag_t *frag = &skb_shinfo(skb)->frags[i];

	*bytes = skb_frag_size(frag);
	return skb_frag_dma_map(dev, frag, 0, *bytes, DMA_TO_DEVICE);
}

int helper_dma_mapping_error(struct device *dev, dma_addr_t addr)
{
	return dma_mapping_error(dev, addr);
}

void helper_dma_unmap_page(struct device *dev, dma_addr_t addr, size_t bytes, enum dma_data_direction dir)
{
	dma_unmap_page(dev, addr, bytes, dir);
}

/* Features of a device that reads packets out of several parts of any memory. */
netdev_features_t helper_netdev_features(void)
{
	return NETIF_F_SG | NETIF_F_HIGHDMA;
}

/* Hands a packet that begins with its Ethernet header to the stack. */
void helper_napi_receive(struct napi_struct *napi, struct net_device *dev, struct sk_buff *skb)
{
	skb->protocol = eth_type_trans(skb, dev);
	napi_gro_receive(napi, skb);
}

/* Sends an IPv4 packet that begins with its Ethernet header. */
int helper_dev_transmit(struct net_device *dev, struct sk_buff *skb)
{
	int result;

	skb->dev = dev;
	skb->protocol = htons(ETH_P_IP);
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, ETH_HLEN);
	result = dev_queue_xmit(skb);
	/* The macro evaluates its argument twice. */
	return net_xmit_eval(result);
}

void helper_ib_set_parent(struct ib_device *ib, struct device *parent)
{
	ib->dev.parent = parent;
}

/* The driver's part of a call, whose length has been checked. */
int helper_ib_asked(struct ib_udata *udata, void *asked, size_t bytes)
{
	return ib_copy_from_udata(asked, udata, bytes);
}

/* Adds the driver's part to an answer, as far as the caller has room for it. */
int helper_ib_respond(struct ib_udata *udata, const void *answer, size_t bytes)
{
	return ib_copy_to_udata(udata, (void *)answer, min(bytes, udata->outlen));
}

/* The driver's part of a call. */
struct ib_udata *helper_uverbs_udata(struct uverbs_attr_bundle *attrs)
{
	return &attrs->driver_udata;
}

/* The context of a process's call. */
struct ib_ucontext *helper_rdma_udata_context(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}

/* One page of registers, which the core takes away again when the device goes. */
int helper_rdma_map_page(struct ib_ucontext *context, struct vm_area_struct *area, unsigned long pfn)
{
	return rdma_user_mmap_io(context, area, pfn, PAGE_SIZE, pgprot_noncached(area->vm_page_prot), NULL);
}

/* Bytes of the memory that the caller reads which cannot be brought in. */
size_t helper_fault_in(u64 address, size_t bytes, bool write)
{
	char __user *at = u64_to_user_ptr(address);

	return write ? fault_in_safe_writeable(at, bytes) : fault_in_readable(at, bytes);
}

/* From now on the calling kernel thread, which has no address space, reads memory of this one. */
void helper_use_mm(struct mm_struct *mm)
{
	kthread_use_mm(mm);
}

void helper_unuse_mm(struct mm_struct *mm)
{
	kthread_unuse_mm(mm);
}

/* Bytes that cannot be copied to a page without a fault: none or all. */
size_t helper_copy_in(struct page *to, u64 from, size_t bytes)
{
	return copy_from_user_nofault(page_address(to), u64_to_user_ptr(from), bytes) ? bytes : 0;
}
