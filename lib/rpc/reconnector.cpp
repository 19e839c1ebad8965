#include "reconnector.hpp"

#include "base/caught.hpp"
#include "client_core.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace cordma::rpc::detail {

reconnector::reconnector(client_core& core, client::connector connect,
                         const reconnect_options& options)
    : waiter{&on_done}, core_{core}, connector_{std::move(connect)}, options_{options} {}

std::coroutine_handle<> reconnector::on_done(waiter& self) noexcept {
  auto& me = static_cast<reconnector&>(self);
  me.is_running_ = false;
  me.core_.pump();
  return std::noop_coroutine();
}

void reconnector::connect() noexcept {
  if (is_running_) return;
  try {
    work_.emplace(connect_until_done());
  } catch (const std::bad_alloc&) {
    return core_.fail_waiting(errno_failure(ENOMEM, "connect"));
  }
  is_running_ = true;
  // The first attempt is made in a later iteration: this may be the middle of a reap.
  if (work_->start(*this, {&core_.executor_, {}})) is_running_ = false;
}

void reconnector::stop() noexcept {
  work_.reset();
  is_running_ = false;
}

task<> reconnector::connect_until_done() {
  co_await core_.executor_.sleep_for(delay());
  while (!core_.shut_ && core_.link_ == nullptr && !core_.waiting_.empty()) {
    core_.conn_ = {};  // The last attempt may have left one.
    try {
      core_.attach(co_await connector_());
      why_.reset();
      ++failed_attempts_;  // `note_answer` resets it.
      co_return;
    } catch (...) {
      why_ = caught("the client's connector", errc::disconnected);
    }
    ++failed_attempts_;
    const unsigned most = options_.attempts_max;
    if (most != 0 && failed_attempts_ >= most) {
      failed_attempts_ = 0;
      core_.fail_waiting(*why_);
    }
    co_await core_.executor_.sleep_for(delay());
  }
}

/// Doubles after each attempt. A random part keeps many clients from connecting at once.
duration reconnector::delay() noexcept {
  if (failed_attempts_ == 0) return {};
  const int growth = 1 << std::min(failed_attempts_ - 1, 20u);
  const duration first = options_.delay;
  const duration longest = std::min(first, duration{options_.delay_max} / growth) * growth;
  return longest - longest * (jitter_() % 1024) / 2048;
}

void reconnector::explain(failure& late) const noexcept {
  if (!why_) return;
  try {
    std::string text{late.detail.view()};
    late.detail = std::string_view{text.append(": ").append(why_->to_string())};
  } catch (const std::bad_alloc&) {
    // The text stays shorter.
  }
}

}  // namespace cordma::rpc::detail
