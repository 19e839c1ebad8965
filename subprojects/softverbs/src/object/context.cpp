#include "object/context.hpp"

#include "multicast/membership.hpp"
#include "node/node.hpp"

#include <pthread.h>

#include <limits>
#include <memory>

namespace softverbs {

// The sysfs paths name no directory: soft0 is unknown to the kernel.
ibv_device soft_device{._ops = {},
                       .node_type = IBV_NODE_CA,
                       .transport_type = IBV_TRANSPORT_IB,
                       .name = "soft0",
                       .dev_name = "soft0",
                       .dev_path = "/sys/class/infiniband_verbs/soft0",
                       .ibdev_path = "/sys/class/infiniband/soft0"};

context& soft(ibv_context* ctx) noexcept {
  return *reinterpret_cast<context*>(reinterpret_cast<std::byte*>(ctx) -
                                     offsetof(verbs_context, context));
}

ibv_context* open_context(const verbs_context& verbs) {
  auto made = std::make_unique<context>();
  made->local_node = &node::acquire();
  try {
    if (simulated_host* const host = made->local_node->simulated())
      host->add_context(made->verbs.context, made->async.tokens());
  } catch (...) {
    node::release(*made->local_node);
    throw;
  }
  made->local_node->counts().contexts.add(std::numeric_limits<int>::max());
  made->verbs = verbs;
  made->verbs.sz = sizeof(verbs_context);
  ibv_context& ctx = made->verbs.context;
  ctx.device = &soft_device;
  // No kernel reads commands; but programs that share objects dup() this fd for ibv_import_device.
  ctx.cmd_fd = made->async.fd();
  ctx.async_fd = made->async.fd();
  ctx.num_comp_vectors = completion_vectors;
  ::pthread_mutex_init(&ctx.mutex, nullptr);
  ctx.abi_compat = __VERBS_ABI_IS_EXTENDED;
  return &made.release()->verbs.context;
}

void close_context(ibv_context* ctx) noexcept {
  const std::unique_ptr<context> closing{&soft(ctx)};
  ::pthread_mutex_destroy(&ctx->mutex);
  if (closing->uses_groups) closing->local_node->groups()->release();
  if (simulated_host* const host = closing->local_node->simulated()) host->remove_context(*ctx);
  closing->local_node->counts().contexts.remove();
  node::release(*closing->local_node);
}

group_membership& groups_of(ibv_context* ctx) {
  context& user = soft(ctx);
  group_membership& groups = group_membership::of(*user.local_node);
  groups.acquire(user.uses_groups);
  return groups;
}

}  // namespace softverbs
