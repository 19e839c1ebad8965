#include "device_calls.hpp"

#include "host_state.hpp"
#include "world_state.hpp"

#include <algorithm>
#include <iterator>

namespace cordma::sim::detail {
namespace {

host_state& host_of(void* context) noexcept { return *static_cast<host_state*>(context); }

void has_work(void* context, softverbs_host* /*device*/) { host_of(context).device_has_work(); }

void sent(void* context, const softverbs_end* from, const softverbs_frame* frame) {
  host_state& host = host_of(context);
  host.world().network().sent(host, *from, *frame);
}

void ended(void* context, const softverbs_end* end) {
  host_state& host = host_of(context);
  host.world().network().ended(host, *end);
}

softverbs_host* find(void* context, const ibv_gid* gid, std::uint16_t slot) {
  const host_state* const found = host_of(context).world().host_at(slot);
  if (found == nullptr || !found->is_running()) return nullptr;
  const ibv_gid own = found->gid();
  return std::equal(std::begin(own.raw), std::end(own.raw), std::begin(gid->raw)) ? found->device()
                                                                                  : nullptr;
}

int called(void* context, softverbs_host* /*device*/, const char* verb, ibv_context* on) {
  return host_of(context).on_verb(verb, on);
}

void written(void* context, softverbs_host* /*device*/, std::uint64_t address, std::uint64_t length,
             std::uint32_t remote_key) {
  const host_state& host = host_of(context);
  host.world().memory().written(host, address, length, remote_key);
  if (remote_key != 0) host.world().requests().landed(host, address, length, remote_key);
}

void readable(void* context, softverbs_host* /*device*/, int /*fd*/) {
  host_of(context).something_came();
}

void destroyed(void* context, softverbs_host* /*device*/, const void* queue) {
  const host_state& host = host_of(context);
  host.world().requests().forget(host, queue);
}

}  // namespace

softverbs_world device_calls(host_state& host) noexcept {
  return {.context = &host,
          .has_work = &has_work,
          .sent = &sent,
          .ended = &ended,
          .find = &find,
          .called = &called,
          .written = &written,
          .readable = &readable,
          .destroyed = &destroyed,
          .keeps_tokens = 1,
          .arms_for_later = host.world().arms_for_later(),
          .link_bytes = host.world().link_bytes()};
}

}  // namespace cordma::sim::detail
