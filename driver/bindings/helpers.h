/* SPDX-License-Identifier: GPL-2.0 */
/* What the kernel has only as inline functions or macros, as functions that Rust can call. */
#ifndef HELPERS_H
#define HELPERS_H

#include <linux/dma-mapping.h>
#include <linux/netdevice.h>
#include <linux/pagemap.h>
#include <linux/skbuff.h>
#include <rdma/ib_verbs.h>

void *helper_netdev_priv(const struct net_device *dev);
void helper_set_netdev_dev(struct net_device *dev, struct device *parent);
void helper_eth_hw_addr_set(struct net_device *dev, const u8 *addr);
void helper_eth_hw_addr_random(struct net_device *dev);
bool helper_is_valid_ether_addr(const u8 *addr);
bool helper_netif_running(const struct net_device *dev);
void helper_netif_start_queue(struct net_device *dev);
void helper_netif_stop_queue(struct net_device *dev);
void helper_netif_wake_queue(struct net_device *dev);
bool helper_netif_queue_stopped(const struct net_device *dev);
void helper_netif_tx_disable(struct net_device *dev);
bool helper_netdev_xmit_more(void);
void helper_netif_napi_add(struct net_device *dev, struct napi_struct *napi,
			   int (*poll)(struct napi_struct *, int));
void helper_netif_napi_del(struct napi_struct *napi);
void helper_napi_schedule(struct napi_struct *napi);
unsigned int helper_skb_headlen(const struct sk_buff *skb);
unsigned int helper_skb_nr_frags(const struct sk_buff *skb);
int helper_skb_linearize(struct sk_buff *skb);
int helper_skb_tailroom(const struct sk_buff *skb);
void helper_skb_tx_timestamp(struct sk_buff *skb);
void helper_dev_kfree_skb_any(struct sk_buff *skb);
struct sk_buff *helper_netdev_alloc_skb_ip_align(struct net_device *dev, unsigned int len);
dma_addr_t helper_dma_map_single(struct device *dev, void *ptr, size_t bytes, enum dma_data_direction dir);
dma_addr_t helper_skb_frag_dma_map(struct device *dev, const struct sk_buff *skb, unsigned int i, unsigned int *bytes);
int helper_dma_mapping_error(struct device *dev, dma_addr_t addr);
void helper_dma_unmap_page(struct device *dev, dma_addr_t addr, size_t bytes, enum dma_data_direction dir);
netdev_features_t helper_netdev_features(void);
void helper_napi_receive(struct napi_struct *napi, struct net_device *dev, struct sk_buff *skb);
int helper_dev_transmit(struct net_device *dev, struct sk_buff *skb);
void helper_ib_set_parent(struct ib_device *ib, struct device *parent);
int helper_ib_asked(struct ib_udata *udata, void *asked, size_t bytes);
int helper_ib_respond(struct ib_udata *udata, const void *answer, size_t bytes);
struct ib_udata *helper_uverbs_udata(struct uverbs_attr_bundle *attrs);
struct ib_ucontext *helper_rdma_udata_context(struct ib_udata *udata);
int helper_rdma_map_page(struct ib_ucontext *context, struct vm_area_struct *area, unsigned long pfn);
size_t helper_fault_in(u64 address, size_t bytes, bool write);
void helper_use_mm(struct mm_struct *mm);
void helper_unuse_mm(struct mm_struct *mm);
size_t helper_copy_in(struct page *to, u64 from, size_t bytes);

#endif
