#include "queue/completion_channel.hpp"

#include "object/counted.hpp"
#include "object/soft_verbs.hpp"
#include "queue/completion_queue.hpp"

#include <cerrno>
#include <limits>
#include <memory>

namespace softverbs {
namespace {

completion_channel& behind(ibv_comp_channel* channel) noexcept {
  return *reinterpret_cast<completion_channel*>(channel);
}

}  // namespace

namespace verb {

ibv_comp_channel* create_comp_channel(ibv_context* ctx) {
  auto channel = std::make_unique<completion_channel>(ctx);
  node& local_node = *softverbs::soft(ctx).local_node;
  if (simulated_host* const host = local_node.simulated()) host->watch(channel->tokens);
  local_node.counts().channels.add(std::numeric_limits<int>::max());
  return &channel.release()->handle;
}

int destroy_comp_channel(ibv_comp_channel* channel) {
  {
    const std::lock_guard lock{behind(channel).mutex};
    if (channel->refcnt != 0) return EBUSY;
  }
  counts_of(channel->context).channels.remove();
  delete &behind(channel);
  return 0;
}

int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  completion_queue* from = nullptr;
  if (take_event(behind(channel), from) != 0) return -1;
  *cq = reinterpret_cast<ibv_cq*>(&from->handle);
  *cq_context = (*cq)->cq_context;
  return 0;
}

}  // namespace verb
}  // namespace softverbs
