#include "object/address_handle.hpp"

#include "multicast/group.hpp"
#include "multicast/membership.hpp"
#include "node/gid_table.hpp"
#include "node/node.hpp"
#include "node/port.hpp"
#include "object/context.hpp"
#include "object/counted.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"

#include <cerrno>
#include <memory>

namespace softverbs {
namespace {

/// The hop limit of an address handle that has none.
constexpr std::uint8_t default_hop_limit = 64;
constexpr std::uint32_t flow_label_mask = 0xfffff;

}  // namespace

namespace verb {

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  const bool is_group = attr->is_global != 0 && is_multicast(attr->grh.dgid);
  const auto host = host_of(*attr);
  const bool has_target = is_group ? attr->grh.sgid_index < gid_count() : host.has_value();
  if (attr->port_num != 1 || !has_target) return fail(EINVAL);
  auto ah = std::make_unique<address_handle>();
  if (is_group) groups_of(pd->context).watch(attr->grh.dgid);
  if (!counts_of(pd->context).handles.add(limits().max_ah)) return fail(ENOMEM);
  ah->handle = {.context = pd->context, .pd = pd, .handle = 0};
  ah->pd = origin_of(pd);
  if (!is_group) ah->host = softverbs::soft(pd->context).local_node->resolve(*host, 0).host;
  if (is_infiniband()) ah->class_and_flow = std::uint32_t{attr->sl} << service_level_shift;
  if (attr->is_global != 0) {
    ah->gid = attr->grh.dgid;
    ah->source_gid = gid_at(attr->grh.sgid_index);
    ah->class_and_flow |=
        std::uint32_t{attr->grh.traffic_class} << 20 | (attr->grh.flow_label & flow_label_mask);
    ah->hop_limit = attr->grh.hop_limit != 0 ? attr->grh.hop_limit : default_hop_limit;
  }
  softverbs::soft(pd).users.fetch_add(1);
  return &ah.release()->handle;
}

int destroy_ah(ibv_ah* handle) {
  softverbs::soft(handle->pd).users.fetch_sub(1);
  counts_of(handle->context).handles.remove();
  delete reinterpret_cast<address_handle*>(handle);
  return 0;
}

}  // namespace verb
}  // namespace softverbs
