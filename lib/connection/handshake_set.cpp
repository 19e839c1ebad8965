#include "handshake_set.hpp"

#include "base/failures.hpp"
#include "bootstrap.hpp"
#include "verbs/gid.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

namespace cordma::detail {

client_host host_of(const socket_address& address) noexcept {
  const std::optional<ibv_gid> ip = verbs::gid_of(*address.data());
  if (!ip) return {};
  client_host host{.family = AF_INET6};
  std::memcpy(host.address.data(), ip->raw, sizeof ip->raw);  // ::ffff:a.b.c.d for IPv4.
  return host;
}

failure dropped_at(const char* limit, unsigned value) noexcept {
  return {.code = errc::refused,
          .call = "handshake",
          .detail = detail_text("dropped for a newer client: %s is %u", limit, value)};
}

task<handshake_set::permit> handshake_set::enter(client_host newcomer) {
  for (;;) {
    const duration patience =
        permits_.available() > 0
            ? duration::max()
            : drop_one(newcomer, dropped_at("handshakes_max", handshakes_max_));
    // Another one that waits may get the place that was freed here: look again.
    const duration wait = std::min(patience, grace_);
    const auto taken = co_await as_result(with_timeout(permits_.acquire(), wait));
    if (taken.has_value()) co_return permit{&permits_};
    if (taken.is_cancelled()) throw cancelled{};
  }
}

duration handshake_set::drop_one(const client_host& newcomer, const failure& why) noexcept {
  member* victim = nullptr;
  if (failed_.count > 0) {
    victim = &failed_.members.front();
  } else {
    std::size_t most = 0;
    for (auto& [host, of_host] : hosts_) {
      const std::size_t count = of_host.count + (host == newcomer ? 1 : 0);
      member& oldest = of_host.members.front();
      if (count > most || (count == most && oldest.number_ < victim->number_)) {
        most = count;
        victim = &oldest;
      }
    }
    if (victim == nullptr) return duration::max();
    const duration age = clock_.now() - victim->begun_;
    if (age < grace_) return grace_ - age;
    victim->why_dropped_ = why;
  }
  victim->leave();
  victim->dropped_.set();
  return duration::max();
}

void handshake_set::drop_all(const failure& why) noexcept {
  while (failed_.count > 0 || !hosts_.empty()) {
    if (drop_one({}, why) != duration::max()) return;
  }
}

handshake_set::member::member(handshake_set& set, permit own, const client_host& host)
    : set_{set},
      permit_{std::move(own)},
      host_{host},
      number_{set.begun_++},
      begun_{set.clock_.now()} {
  join(set_.hosts_[host]);
}

void handshake_set::member::join(crowd& of) noexcept {
  of.members.push_back(*this);
  ++of.count;
  crowd_ = &of;
}

void handshake_set::member::leave() noexcept {
  crowd* const left = std::exchange(crowd_, nullptr);
  if (left == nullptr) return;
  unlink();
  if (--left->count == 0 && left != &set_.failed_) set_.hosts_.erase(host_);
}

task<connection> handshake_set::member::run(task<connection> handshake) {
  auto ended = co_await as_result(
      when_any(with_timeout(settle(std::move(handshake)), set_.timeout_), dropped_.wait()));
  if (why_dropped_) throw error{*why_dropped_};
  if (ended.is_cancelled()) throw cancelled{};
  if (ended.has_failure()) {
    throw error{bootstrap::name_timeout(ended.failure(), "handshake", set_.timeout_)};
  }
  co_return std::get<0>(std::move(*ended));
}

/// Moves the member in the step in which the handshake ends: whoever is dropped gives its place up.
task<connection> handshake_set::member::settle(task<connection> handshake) {
  try {
    connection made = co_await std::move(handshake);
    leave();
    // The handshake had its last byte already when it was dropped: another one goes.
    if (why_dropped_) set_.drop_one(host_, *std::exchange(why_dropped_, std::nullopt));
    co_return made;
  } catch (...) {
    if (crowd_ != nullptr) {
      leave();
      join(set_.failed_);
    }
    throw;
  }
}

task<> handshake_set::member::refuse(task<> refusal) {
  co_await when_any(std::move(refusal), dropped_.wait());
}

}  // namespace cordma::detail
