#include "device_calls.hpp"

#include "host_state.hpp"
#include "world_state.hpp"

#include <algorithm>
#include <iterator>

namespace cordma::sim::detail {
namespace {

world_state& world_of(void* context) noexcept { return *static_cast<world_state*>(context); }

/// Calls `f` with the host of a device. A device that is being removed has none.
template <class F>
void with_host(void* context, const softverbs_host* device, F f) {
  if (host_state* const host = world_of(context).host_of(device)) f(*host);
}

void has_work(void* context, softverbs_host* device) {
  with_host(context, device, [](host_state& host) { host.device_has_work(); });
}

void sent(void* context, const softverbs_end* from, const softverbs_frame* frame) {
  with_host(context, from->host,
            [&](host_state& host) { world_of(context).network().sent(host, *from, *frame); });
}

void ended(void* context, const softverbs_end* end) {
  with_host(context, end->host,
            [&](host_state& host) { world_of(context).network().ended(host, *end); });
}

softverbs_host* find(void* context, const ibv_gid* gid, std::uint16_t slot) {
  const host_state* const found = world_of(context).host_at(slot);
  if (found == nullptr || !found->is_running()) return nullptr;
  const ibv_gid own = found->gid();
  return std::equal(std::begin(own.raw), std::end(own.raw), std::begin(gid->raw)) ? found->device()
                                                                                  : nullptr;
}

int called(void* context, softverbs_host* device, const char* verb, ibv_context* on) {
  host_state* const host = world_of(context).host_of(device);
  return host == nullptr ? 0 : host->on_verb(verb, on);
}

void written(void* context, softverbs_host* device, std::uint64_t address, std::uint64_t length,
             std::uint32_t remote_key) {
  with_host(context, device, [&](host_state& host) {
    world_of(context).memory().written(host, address, length, remote_key);
  });
}

void readable(void* context, softverbs_host* device, int /*fd*/) {
  with_host(context, device, [](host_state& host) { host.something_came(); });
}

void destroyed(void* context, softverbs_host* device, const void* queue) {
  with_host(context, device,
            [&](host_state& host) { world_of(context).requests().forget(host, queue); });
}

}  // namespace

softverbs_world device_calls(world_state& w) noexcept {
  return {.context = &w,
          .has_work = &has_work,
          .sent = &sent,
          .ended = &ended,
          .find = &find,
          .called = &called,
          .written = &written,
          .readable = &readable,
          .destroyed = &destroyed};
}

}  // namespace cordma::sim::detail
