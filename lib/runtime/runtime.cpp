#include <cordma/runtime/runtime.hpp>

#include <cordma/detail/base/assert.hpp>
#include "base/fork.hpp"

#include <algorithm>

namespace cordma {
namespace {

/// Devices round a queue's depth up: what is asked for is at least half of what is given.
constexpr unsigned rounding = 2;

connection_options defaults(const runtime_options& options) {
  connection_options o = options.connections;
  if (options.port != 0) o.port = options.port;
  if (options.gid_index) o.gid_index = options.gid_index;
  return o;
}

/// Without one that works there is nothing to count.
unsigned port_of(const verbs::context& ctx, const runtime_options& options) noexcept {
  if (options.port != 0) return options.port;
  try {
    return ctx.active_port().number;
  } catch (const error&) {
    return 0;
  }
}

}  // namespace

runtime::runtime(runtime_options&& options)
    : completions_{.depth = options.cq_depth,
                   .mode = options.mode,
                   .poll_batch = options.poll_batch,
                   .spin_max = options.spin_max,
                   .doorbell_batching = options.doorbell_batching},
      connection_defaults_{defaults(options)},
      process_{detail::process_epoch()},
      executor_{std::move(options.executor)},
      context_{options.device.view()},
      pd_{context_},
      lending_{context_, pd_},
      events_{executor_, context_},
      port_{port_of(context_, options)} {
  if (lending_.has_windows()) options.memory.access |= verbs::access::mw_bind;
  add_memory(options.memory);
  add_driver(completions_.depth);
}

runtime::~runtime() {
  CORDMA_ASSERT(process_ == detail::process_epoch(),
                "a runtime is not destroyed in the child of a fork, where its devices are the "
                "parent's: leave it by _exit or exec");
  executor_.discard_posted();
  // What was dropped after the last `run` ends here without waiting for its flushes: destroying a
  // queue pair takes its memory from the device as well.
  executor_.closer().request_stop();
  while (executor_.closer().running() > 0) {
    const std::size_t resumed = executor_.run_ready();
    CORDMA_ASSERT(resumed > 0, "something in the closer does not stop");
  }
  for (const auto& driver : drivers_) events_.remove(*driver);
}

task<connection> runtime::connect(endpoint server, const connection_changes& changes) {
  return cordma::connect(resources(), std::move(server), changed(connection_defaults_, changes));
}

listener runtime::listen(const endpoint& local, const listener_options& limits,
                         const connection_changes& changes) {
  return listener{resources(), local, changed(connection_defaults_, changes), limits};
}

mr_allocator& runtime::memory(verbs::access access) {
  if (lending_.has_windows()) access |= verbs::access::mw_bind;
  for (const auto& one : memory_)
    if (one->access() == access) return *one;
  mr_allocator_options options = memory().options();
  options.access = access;
  return add_memory(options);
}

mr_allocator& runtime::add_memory(const mr_allocator_options& options) {
  mr_allocator& made = *memory_.emplace_back(std::make_unique<mr_allocator>(pd_, options));
  counted_memory_.add(made);
  return made;
}

shared_receives& runtime::share_receives(const shared_receives_options& options) {
  shared_receives& made =
      *shared_receives_.emplace_back(std::make_unique<shared_receives>(pd_, memory(), options));
  counted_pools_.add(made);
  return made;
}

cordma::metrics runtime::metrics() const noexcept {
  cordma::metrics now;
  now.device = device_name();
  now.port = port_;
  counted_drivers_.for_each([&](const completion_queue_driver& driver) {
    now.completions += driver.counters();
    now.transfer += driver.requests();
  });
  // What is posted to a pool has no completion queue yet.
  request_counters& receives = now.transfer.of(request_kind::receive);
  counted_pools_.for_each([&](const shared_receives& pool) {
    receives.posted += pool.posted();
    receives.failed += pool.withdrawn();
  });
  counted_memory_.for_each([&](const mr_allocator& one) { now.memory += one.counters(); });
  now.executor = executor_.counters();
  if (port_ != 0) now.rnr = verbs::read_rnr_counters(device_name(), port_);
  return now;
}

std::size_t runtime::poll() noexcept {
  std::size_t reaped = 0;
  for (const auto& driver : drivers_) reaped += driver->reap();
  return reaped;
}

completion_queue_driver& runtime::driver_for(unsigned entries, const shared_receives* pool) {
  const unsigned room = entries * rounding;
  const auto has_room = [&](const auto& driver) {
    return driver->room() >= room + driver->entries_for(pool);
  };
  const auto found = std::find_if(drivers_.begin(), drivers_.end(), has_room);
  if (found != drivers_.end()) return **found;
  const unsigned shared = pool != nullptr ? pool->buffers() : 0;
  const unsigned most = context_.limits().cqe_max;
  return add_driver(
      std::min(std::max(completions_.depth, room + shared), std::max(most, entries + shared)));
}

completion_queue_driver& runtime::add_driver(unsigned depth) {
  completion_queue_options options = completions_;
  options.depth = depth;
  completion_queue_driver& made = *drivers_.emplace_back(
      std::make_unique<completion_queue_driver>(executor_, context_, options));
  events_.add(made);
  counted_drivers_.add(made);
  return made;
}

}  // namespace cordma
