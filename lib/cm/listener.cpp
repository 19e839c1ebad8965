#include "listener.hpp"

#include "base/check_option.hpp"
#include "failures.hpp"

#include <arpa/inet.h>

#include <cerrno>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace cordma::cm {

class listener::state final : public event_target {
 public:
  state(event_channel& events, const socket_address& local, int backlog,
        std::span<const std::byte> when_full)
      : channel_{events},
        ready_{std::size_t(backlog)},
        when_full_{when_full.begin(), when_full.end()},
        id_{events.create_id(*this)} {
    check_private_data(when_full.size(), rejection_bytes_max, "rdma_reject");
    if (rdma_bind_addr(id_.get(), const_cast<sockaddr*>(local.data())) != 0)
      throw error{call_failure(errno, "rdma_bind_addr", local)};
    if (rdma_listen(id_.get(), backlog) != 0)
      throw error{call_failure(errno, "rdma_listen", local)};
    address = local;
    address.set_port(ntohs(rdma_get_src_port(id_.get())));
  }
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() { close(); }

  task<id> accept() {
    std::optional<id> next = co_await ready_.receive();
    if (!next) throw error{why_closed_};
    co_return std::move(*next);
  }
  void close() noexcept {
    ready_.close();
    id_.reset();
    while (ready_.try_receive()) {
    }
  }

  [[nodiscard]] std::size_t waiting() const noexcept { return ready_.size(); }

  socket_address address;
  std::uint64_t refused = 0;

 private:
  void on_event(const cm_event& event) noexcept override {
    if (event.request != nullptr) {
      take(owned_id{event.request}, event.message);
    } else if (event.kind == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      why_closed_ = event_failure(event, "rdma_listen", address);
      close();
    }
  }
  void take(owned_id request, const peer_message& message) noexcept {
    ++refused;
    if (ready_.size() == ready_.capacity()) {
      // If this fails, the peer has gone.
      rdma_reject(request.get(), when_full_.data(), std::uint8_t(when_full_.size()));
      return;
    }
    try {
      if (ready_.try_send(id{channel_, std::move(request), message})) --refused;
    } catch (const std::bad_alloc&) {
      // The peer is told that its request is refused.
    }
  }

  event_channel& channel_;
  channel<id> ready_;
  const std::vector<std::byte> when_full_;
  failure why_closed_{.code = errc::closed, .call = "accept"};
  owned_id id_;
};

namespace {

int checked(int backlog) {
  check_option("cm::listener", "backlog", backlog, 1, 65535);
  return backlog;
}

}  // namespace

listener::listener(event_channel& channel, const socket_address& local, int backlog,
                   std::span<const std::byte> when_full)
    : state_{std::make_unique<state>(channel, local, checked(backlog), when_full)} {}
listener::listener(listener&&) noexcept = default;
listener& listener::operator=(listener&&) noexcept = default;
listener::~listener() = default;

task<id> listener::accept() { return state_->accept(); }
void listener::close() noexcept { state_->close(); }
const socket_address& listener::local_address() const noexcept { return state_->address; }
std::size_t listener::waiting() const noexcept { return state_->waiting(); }
std::uint64_t listener::refused() const noexcept { return state_->refused; }

}  // namespace cordma::cm
