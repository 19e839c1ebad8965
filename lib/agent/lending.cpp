#include "lending.hpp"

#include "window_probe.hpp"

#include <bit>

namespace cordma {

lending::lending(verbs::context& ctx, verbs::protection_domain& pd)
    : facts_{std::make_shared<device_facts>(ctx)}, pd_{pd} {}
lending::lending(const lending& other, verbs::protection_domain& pd)
    : facts_{other.facts_}, pd_{pd} {}

lending::~lending() {
  for (lent_memory& kept : stranded_) {
    // The queue pair is gone, and nobody reaches the memory any more. The device is asked again.
    if (kept.window) static_cast<void>(kept.window->deallocate());
    if (kept.registration) static_cast<void>(kept.registration->deregister());
  }
}

bool lending::has_windows() const noexcept { return pd_.limits().memory_window_type_2; }

isolation lending::strongest(cordma::executor& executor, const verbs::port_info& port,
                             const verbs::gid_entry& gid) {
  if (!facts_->strongest) {
    facts_->strongest = !has_windows() ? isolation::shared_key
                        : checks_window_ranges(executor, facts_->ctx, pd_, port, gid)
                            ? isolation::exact
                            : isolation::exact_registered;
  }
  return *facts_->strongest;
}

verbs::memory_window lending::take_window() {
  if (given_ - taken_ < rotation) {
    make_room_for_windows();
    return verbs::memory_window{pd_};
  }
  std::optional<verbs::memory_window>& oldest = idle_[taken_++ & (idle_.size() - 1)];
  verbs::memory_window taken = std::move(*oldest);
  oldest.reset();
  return taken;
}

void lending::make_room_for_windows() {
  const std::size_t idle = given_ - taken_;
  if (idle + lent_ <= idle_.size()) return;
  std::vector<std::optional<verbs::memory_window>> larger(std::bit_ceil(2 * (idle + lent_)));
  for (std::size_t i = 0; i < idle; ++i)
    larger[i] = std::move(idle_[(taken_ + i) & (idle_.size() - 1)]);
  idle_ = std::move(larger);
  taken_ = 0;
  given_ = idle;
}

bool lending::reserve(std::size_t bytes, const lending_policy& policy) {
  device_facts& facts = *facts_;
  if (facts.leases >= policy.total_leases_max || facts.bytes > policy.total_bytes_max ||
      bytes > policy.total_bytes_max - facts.bytes)
    return false;
  if (const std::size_t needed = stranded_.size() + lent_ + 1; needed > stranded_.capacity())
    stranded_.reserve(2 * needed);
  ++lent_;
  ++facts.leases;
  facts.bytes += bytes;
  return true;
}

void lending::release(std::size_t bytes) noexcept {
  --lent_;
  --facts_->leases;
  facts_->bytes -= bytes;
}

lending_domain::lending_domain(verbs::context& ctx, cordma::lending& of_runtime,
                               const mr_allocator_options& options)
    : from{of_runtime},
      pd{ctx,
         of_runtime.domain().queues() == verbs::protection_domain::queue_domain::thread_domain},
      memory{pd, options},
      lending{of_runtime, pd} {}

lending::own_domain lending::make_domain(mr_allocator& like) {
  return own_domain{&domains_.emplace_back(facts_->ctx, *this, like.options())};
}

void lending::leaver::operator()(lending_domain* domain) const noexcept {
  domain->is_left = true;
  domain->from.domains_.remove_if([](lending_domain& d) {
    if (!d.is_left) return false;
    d.memory.trim();  // Ends registrations that only the cache keeps.
    const mr_allocator_statistics now = d.memory.statistics();
    return now.in_use_bytes == 0 && now.external_bytes == 0;
  });
}

remote_mr_slice lending::flush_word() {
  if (!flush_registration_)
    flush_registration_.emplace(pd_, zeros_.data(), zeros_.size(), verbs::access::remote_read);
  return {reinterpret_cast<std::uint64_t>(zeros_.data()), zeros_.size(),
          flush_registration_->rkey()};
}

}  // namespace cordma
