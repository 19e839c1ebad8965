#include <cordma/runtime/runtime.hpp>

#include "agent/lending.hpp"
#include "base/fork.hpp"
#include "base/published_list.hpp"
#include "connection/bootstrap_services.hpp"
#include "connection/connect.hpp"
#include "environment.hpp"
#include "io/logger.hpp"
#include "queue/completion_queue_driver.hpp"
#include "verbs/port_counters.hpp"

#include <cordma/detail/base/assert.hpp>
#include "connection/connection_resources.hpp"
#include "runtime/async_events.hpp"

#include <algorithm>
#include <vector>

namespace cordma {
namespace {

/// Devices round a queue's depth up: what was asked for is at least half of what is given.
constexpr unsigned rounding = 2;

connection_options defaults(const runtime_options& options) {
  connection_options o = options.connections;
  if (options.port != 0) o.port = options.port;
  if (options.gid_index) o.gid_index = options.gid_index;
  return o;
}

/// Returns the port; 0 if none works, and there is nothing to count.
unsigned port_of(const verbs::context& ctx, const connection_options& options) noexcept {
  if (options.port != 0) return options.port;
  try {
    return ctx.active_port().number;
  } catch (...) {  // Also without memory for the error.
    return 0;
  }
}

}  // namespace

namespace detail {

/// Members are in the order of construction; the last is destroyed first.
class runtime_state final : public driver_supplier {
 public:
  explicit runtime_state(runtime_options&& options);
  ~runtime_state();

  [[nodiscard]] connection_resources resources() noexcept {
    return {executor,   context,          pd,  *this, lending, *memory.front(),
            bootstraps, completions.mode, &log};
  }
  completion_queue_driver& driver_for(unsigned cqes, const shared_receives* pool) override;
  completion_queue_driver& add_driver(unsigned depth);
  mr_allocator& add_memory(const mr_allocator_options& options);

  completion_queue_options completions;
  const std::uint32_t process;  ///< Process that made it.
  cordma::executor executor;
  const logger log;
  verbs::context context;
  const connection_options connection_defaults;
  verbs::protection_domain pd;
  std::vector<std::unique_ptr<verbs::xrc_domain>> xrc_domains;
  /// The default allocator, then one per access.
  std::vector<std::unique_ptr<mr_allocator>> memory;
  std::vector<std::unique_ptr<shared_receives>> pools;
  cordma::lending lending;
  bootstrap_services bootstraps;
  async_events events;
  std::vector<std::unique_ptr<completion_queue_driver>> drivers;
  unsigned port;  ///< Port; 0: none is active.
  // `counted_memory` lets other threads read the allocators' counters.
  published_list<mr_allocator> counted_memory;
  published_list<shared_receives> counted_pools;
  published_list<completion_queue_driver> counted_drivers;
  std::unique_ptr<metrics_server> server;  ///< Null unless CORDMA_METRICS is on. Destroyed first.
};

runtime_state::runtime_state(runtime_options&& options)
    : completions{options.cq},
      process{process_epoch()},
      executor{std::move(options.executor)},
      log{executor, with_environment(std::move(options.log))},
      context{open_device(options.device.view())},
      connection_defaults{with_environment(defaults(options), context)},
      pd{context, options.thread_domain},
      lending{context, pd},
      bootstraps{executor, pd},
      events{executor, context, &log},
      port{port_of(context, connection_defaults)} {
  if (lending.has_windows()) options.memory.access |= verbs::access::mw_bind;
  add_memory(options.memory);
  add_driver(completions.depth);
}

runtime_state::~runtime_state() {
  CORDMA_ASSERT(process == process_epoch(),
                "a runtime is not destroyed in the child of a fork, where its devices are the "
                "parent's: leave it by _exit or exec");
  executor.discard_posted();
  // Connections dropped after the last `run` end here without waiting for their flushes: destroying
  // a queue pair takes its memory from the device as well.
  executor.closer().request_stop();
  while (executor.closer().running() > 0) {
    const std::size_t resumed = executor.run_ready();
    CORDMA_ASSERT(resumed > 0, "something in the closer does not stop");
  }
  for (const auto& driver : drivers) events.remove(*driver);
  pools.clear();  // Drivers outlive the pools of XRC domains.
}

mr_allocator& runtime_state::add_memory(const mr_allocator_options& options) {
  mr_allocator& made = *memory.emplace_back(std::make_unique<mr_allocator>(pd, options));
  counted_memory.add(made);
  return made;
}

completion_queue_driver& runtime_state::driver_for(unsigned cqes, const shared_receives* pool) {
  const unsigned room = cqes * rounding;
  const auto has_room = [&](const auto& driver) {
    return driver->room() >= room + driver->cqes_for(pool);
  };
  const auto found = std::find_if(drivers.begin(), drivers.end(), has_room);
  if (found != drivers.end()) return **found;
  const unsigned shared = pool != nullptr ? pool->buffers() : 0;
  const unsigned most = context.limits().cqe_max;
  return add_driver(
      std::min(std::max(completions.depth, room + shared), std::max(most, cqes + shared)));
}

completion_queue_driver& runtime_state::add_driver(unsigned depth) {
  completion_queue_options options = completions;
  options.depth = depth;
  completion_queue_driver& made = *drivers.emplace_back(
      std::make_unique<completion_queue_driver>(executor, context, options, &pd));
  events.add(made);
  counted_drivers.add(made);
  return made;
}

}  // namespace detail

runtime::runtime(runtime_options&& options)
    : state_{std::make_unique<detail::runtime_state>(std::move(options))} {
  state_->server = detail::serve_metrics(*this);
}
runtime::~runtime() { state_->server.reset(); }

cordma::executor& runtime::executor() noexcept { return state_->executor; }
verbs::context& runtime::context() noexcept { return state_->context; }
verbs::protection_domain& runtime::protection_domain() noexcept { return state_->pd; }
task<verbs::async_event> runtime::next_device_event() {
  // The channel is never closed.
  co_return *co_await state_->events.next();
}
mr_allocator& runtime::memory() noexcept { return *state_->memory.front(); }
std::string_view runtime::device_name() const noexcept { return state_->context.name(); }
const connection_options& runtime::connection_defaults() const noexcept {
  return state_->connection_defaults;
}
connection_resources runtime::resources() noexcept { return state_->resources(); }
std::size_t runtime::completion_queue_count() const noexcept { return state_->drivers.size(); }

task<connection> runtime::connect(endpoint server, const connection_changes& changes) {
  return detail::connect(resources(), std::move(server), changed(connection_defaults(), changes));
}

task<connection> runtime::connect(unique_fd stream, const connection_changes& changes) {
  return detail::connect(resources(), stream_socket{executor(), std::move(stream)},
                         changed(connection_defaults(), changes));
}

task<connection> runtime::accept(unique_fd stream, admission admit,
                                 const connection_changes& changes) {
  return detail::accept(resources(), stream_socket{executor(), std::move(stream)},
                        changed(connection_defaults(), changes), std::move(admit));
}

datagram_socket runtime::open_datagram(const datagram_options& options) {
  return {resources(), options};
}

prepared_connection runtime::prepare_connection(const connection_changes& changes) {
  return prepared_connection{resources(), changed(connection_defaults(), changes)};
}

listener runtime::listen(const endpoint& local, const listener_options& limits,
                         const connection_changes& changes) {
  return listener{resources(), local, changed(connection_defaults(), changes), limits};
}

mr_allocator& runtime::memory(verbs::access access) {
  if (state_->lending.has_windows()) access |= verbs::access::mw_bind;
  for (const auto& one : state_->memory)
    if (one->access() == access) return *one;
  mr_allocator_options options = memory().options();
  options.access = access;
  return state_->add_memory(options);
}

verbs::xrc_domain& runtime::open_xrc_domain(std::string_view path) {
  return *state_->xrc_domains.emplace_back(
      std::make_unique<verbs::xrc_domain>(state_->context, path));
}

verbs::xrc_domain& runtime::open_xrc_domain() {
  return *state_->xrc_domains.emplace_back(std::make_unique<verbs::xrc_domain>(state_->context));
}

shared_receives& runtime::share_receives(const shared_receives_options& options) {
  completion_queue_driver* const driver =
      options.xrc_domain != nullptr ? &state_->driver_for(options.buffers, nullptr) : nullptr;
  shared_receives& made = *state_->pools.emplace_back(
      std::make_unique<shared_receives>(state_->pd, memory(), options, driver));
  state_->events.add(made);
  state_->counted_pools.add(made);
  return made;
}

cordma::metrics runtime::metrics() const noexcept {
  cordma::metrics now;
  now.device = device_name();
  now.port = state_->port;
  state_->counted_drivers.for_each([&](const completion_queue_driver& driver) {
    now.completions += driver.counters();
    now.transfer += driver.requests();
  });
  // Receives posted to a pool are not yet on a completion queue.
  request_counters& receives = now.transfer.of(request_kind::receive);
  state_->counted_pools.for_each([&](const shared_receives& pool) {
    receives.posted += pool.posted();
    receives.failed += pool.withdrawn();
  });
  state_->counted_memory.for_each([&](const mr_allocator& one) { now.memory += one.counters(); });
  const detail::datagram_totals& datagrams = state_->bootstraps.datagrams;
  now.datagrams = {.routes_found = datagrams.routes_found.value(),
                   .routes_made = datagrams.routes_made.value(),
                   .routes_given_up = datagrams.routes_given_up.value(),
                   .routes_failed = datagrams.routes_failed.value(),
                   .groups_joined = datagrams.groups_joined.value()};
  const detail::connection_totals& connections = state_->bootstraps.connections;
  const std::uint64_t ended = connections.ended.value();
  now.connections = {.made = connections.made.value(), .lost = connections.lost.value()};
  now.connections.open = now.connections.made > ended ? now.connections.made - ended : 0;
  const lease_totals& leases = state_->lending.totals();
  now.leases = {.lent = leases.lent.value(),
                .borrowed = leases.borrowed.value(),
                .refused = leases.refused.value(),
                .expired = leases.expired.value(),
                .open = leases.open.value(),
                .open_bytes = leases.open_bytes.value(),
                .held = leases.held.value()};
  now.executor = state_->executor.counters();
  now.backend = state_->executor.reactor().name();
  if (now.port == 0) return now;
  now.rnr = verbs::read_rnr_counters(device_name(), now.port);
  now.qkey_violations = verbs::read_qkey_violations(state_->context, std::uint8_t(now.port));
  return now;
}

std::size_t runtime::poll() noexcept {
  std::size_t reaped = 0;
  for (const auto& driver : state_->drivers) reaped += driver->reap();
  return reaped;
}

}  // namespace cordma
