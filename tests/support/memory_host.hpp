#pragma once

#include "io/host_calls.hpp"

#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/io/executor.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cordma::test {

/// Stream sockets over queues of bytes in this process. Limits and failures are the test's.
class memory_network final : public detail::socket_calls {
 public:
  static constexpr int first_fd = 1 << 20;  // The kernel's descriptors are lower.

  std::size_t sockets_max = 100;
  std::size_t unread_max = 1 << 16;  // Bytes on the way to one socket.
  std::size_t piece_max = 1 << 16;   // Bytes that one call takes or gives.
  bool interrupts = false;           // A signal interrupts every other call of each kind.
  bool connects_later = false;       // Connecting ends after the call.

  [[nodiscard]] std::size_t open_sockets() const noexcept { return all_.size(); }
  /// Returns the value of an option; 0: it was not set.
  [[nodiscard]] int option(int fd, detail::socket_option which) {
    return all_.at(fd).options[which];
  }
  /// Ends a connection as a peer's RST does.
  void reset(int fd) {
    end(all_.at(fd), ECONNRESET);
    touch(all_.at(fd));
  }

  /// Returns the readiness of a socket, and a number that changes with it.
  [[nodiscard]] std::pair<short, std::uint64_t> readiness(int fd) {
    const auto found = all_.find(fd);
    if (found == all_.end()) return {POLLERR, 0};
    socket& s = found->second;
    finish_connecting(s);
    int events = 0;
    if (s.error != 0) events |= POLLERR;
    if (!s.bytes.empty() || !s.backlog.empty() || s.peer_ended) events |= POLLIN;
    if (s.peer_ended) events |= POLLRDHUP;
    if (s.is_connected && room_of(s) > 0) events |= POLLOUT;
    return {short(events), s.changes};
  }

  int make(int) noexcept override {
    if (all_.size() >= sockets_max) return -EMFILE;
    all_[next_fd_];
    return next_fd_++;
  }
  int adopt(int fd) noexcept override { return all_.contains(fd) ? 0 : -EBADF; }
  int connect(int fd, const socket_address& to) noexcept override {
    socket& s = all_.at(fd);
    s.peer_address = to;
    s.local_address = socket_address::loopback(next_port_++);
    s.is_connecting = true;
    if (is_interrupted(connecting)) return -EINTR;
    if (connects_later) return -EINPROGRESS;
    finish_connecting(s);
    return -std::exchange(s.error, 0);
  }
  int bind(int fd, const socket_address& local) noexcept override {
    if (listener_at(local) != nullptr) return -EADDRINUSE;
    socket& s = all_.at(fd);
    s.local_address = local;
    if (local.port() == 0) s.local_address.set_port(next_port_++);
    return 0;
  }
  int listen(int fd, int) noexcept override {
    all_.at(fd).is_listening = true;
    return 0;
  }
  int accept(int fd) noexcept override {
    if (is_interrupted(accepting)) return -EINTR;
    socket& s = all_.at(fd);
    if (s.backlog.empty()) return -EAGAIN;
    const int made = make(AF_INET);
    if (made < 0) return made;
    const int client = s.backlog.front();
    s.backlog.pop_front();
    socket& theirs = all_.at(client);
    socket& ours = all_.at(made);
    ours.local_address = theirs.peer_address;
    ours.peer_address = theirs.local_address;
    ours.is_connected = true;
    ours.peer = client;
    ours.bytes.swap(theirs.early_bytes);
    ours.peer_ended = theirs.has_ended;
    theirs.peer = made;
    touch(ours);
    touch(theirs);
    return made;
  }
  std::ptrdiff_t send(int fd, std::span<const std::byte> from) noexcept override {
    if (is_interrupted(sending)) return -EINTR;
    socket& s = all_.at(fd);
    if (s.error != 0) return -std::exchange(s.error, 0);
    if (!s.is_connected || s.has_ended) return -EPIPE;
    const std::size_t count = std::min({from.size(), piece_max, room_of(s)});
    if (count == 0) return -EAGAIN;
    std::deque<std::byte>& to = queue_of(s);
    to.insert(to.end(), from.begin(), from.begin() + std::ptrdiff_t(count));
    touch_peer(s);
    return std::ptrdiff_t(count);
  }
  std::ptrdiff_t receive(int fd, std::span<std::byte> into) noexcept override {
    if (is_interrupted(receiving)) return -EINTR;
    socket& s = all_.at(fd);
    if (s.error != 0) return -std::exchange(s.error, 0);
    const std::size_t count = std::min({into.size(), piece_max, s.bytes.size()});
    if (count == 0) return s.peer_ended || into.empty() ? 0 : -EAGAIN;
    const auto end = s.bytes.begin() + std::ptrdiff_t(count);
    std::copy(s.bytes.begin(), end, into.begin());
    s.bytes.erase(s.bytes.begin(), end);
    touch_peer(s);
    return std::ptrdiff_t(count);
  }
  int shut_down(int fd, detail::socket_side side) noexcept override {
    socket& s = all_.at(fd);
    if (side == detail::socket_side::writing) end_writing(s);
    s.is_listening = false;
    return 0;
  }
  int local_address(int fd, socket_address& out) noexcept override {
    out = all_.at(fd).local_address;
    return 0;
  }
  int peer_address(int fd, socket_address& out) noexcept override {
    if (!all_.at(fd).is_connected) return -ENOTCONN;
    out = all_.at(fd).peer_address;
    return 0;
  }
  int take_error(int fd) noexcept override { return -std::exchange(all_.at(fd).error, 0); }
  int set_option(int fd, detail::socket_option which, int value) noexcept override {
    all_.at(fd).options[which] = value;
    return 0;
  }
  void close(int fd) noexcept override {
    if (!all_.contains(fd)) return;
    socket& s = all_.at(fd);
    end_writing(s);
    for (const int client : s.backlog) end(all_.at(client), ECONNRESET);
    for (auto& [other, one] : all_) {
      if (one.peer == fd) one.peer = nobody;
      std::erase(one.backlog, fd);
    }
    all_.erase(fd);
  }

 private:
  static constexpr int nobody = -1;
  struct socket {
    socket_address local_address;
    socket_address peer_address;
    std::deque<std::byte> bytes;        // To read.
    std::deque<std::byte> early_bytes;  // Written before the peer has accepted.
    std::deque<int> backlog;            // Clients' sockets.
    std::map<detail::socket_option, int> options;
    std::uint64_t changes = 1;
    int peer = nobody;
    int error = 0;
    bool is_listening = false;
    bool is_connecting = false;
    bool is_connected = false;
    bool has_ended = false;  // Ended writing.
    bool peer_ended = false;
  };

  enum kind : std::size_t { connecting, accepting, sending, receiving, kinds };

  bool is_interrupted(kind of) noexcept { return interrupts && calls_[of]++ % 2 == 0; }
  socket* listener_at(const socket_address& where) noexcept {
    for (auto& [fd, one] : all_)
      if (one.is_listening && one.local_address == where) return &one;
    return nullptr;
  }
  void finish_connecting(socket& s) noexcept {
    if (!std::exchange(s.is_connecting, false)) return;
    socket* const there = listener_at(s.peer_address);
    s.is_connected = there != nullptr;
    if (there == nullptr) return end(s, ECONNREFUSED);
    for (const auto& [fd, one] : all_)
      if (&one == &s) there->backlog.push_back(fd);
    touch(*there);
    touch(s);
  }
  std::deque<std::byte>& queue_of(socket& s) noexcept {
    return s.peer != nobody ? all_.at(s.peer).bytes : s.early_bytes;
  }
  std::size_t room_of(socket& s) noexcept {
    return unread_max - std::min(unread_max, queue_of(s).size());
  }
  static void touch(socket& s) noexcept { ++s.changes; }
  void touch_peer(socket& s) noexcept {
    if (s.peer != nobody) touch(all_.at(s.peer));
  }
  static void end(socket& s, int error) noexcept {
    s.error = error;
    s.peer_ended = s.has_ended = true;
    touch(s);
  }
  void end_writing(socket& s) noexcept {
    s.has_ended = true;
    if (s.peer == nobody) return;
    all_.at(s.peer).peer_ended = true;
    touch_peer(s);
  }

  std::map<int, socket> all_;
  std::array<unsigned, kinds> calls_{};
  int next_fd_ = first_fd;
  std::uint16_t next_port_ = 1000;
};

/// A host on such a network, without threads.
class memory_host final : public detail::host_calls {
 public:
  memory_host() : memory_host{std::make_shared<memory_network>()} {}
  explicit memory_host(std::shared_ptr<memory_network> shared)
      : network{*shared}, shared_{std::move(shared)} {}

  memory_network& network;
  std::map<std::string, socket_address> names;  ///< Other names the kernel's resolver knows.
  std::vector<socket_address> addresses;
  std::string boot = "first boot";
  std::function<void()> on_pause = [] {};

  detail::socket_calls& sockets() noexcept override { return network; }
  std::vector<socket_address> resolve(const std::string& host, std::uint16_t port) override {
    const auto found = names.find(host);
    if (found == names.end()) return host_calls::resolve(host, port);
    socket_address address = found->second;
    address.set_port(port);
    return {address};
  }
  std::vector<socket_address> own_addresses() override { return addresses; }
  socket_address address_toward(const socket_address&) override { return addresses.at(0); }
  std::string boot_id() override { return boot; }
  [[nodiscard]] bool has_threads() const noexcept override { return false; }
  void pause() noexcept override { on_pause(); }

 private:
  const std::shared_ptr<memory_network> shared_;
};

/// Watches sockets of a host in memory. All else it leaves to the kernel's epoll.
class memory_reactor final : public reactor {
 public:
  explicit memory_reactor(memory_host& host) : host_{host}, network_{host.network} {}

  [[nodiscard]] const char* name() const noexcept override { return "memory"; }
  void enable() override { kernel_->enable(); }
  void watch(fd_watch& w) override {
    if (w.fd() < memory_network::first_fd) return kernel_->watch(w);
    watches_.push_back({&w, 0});
  }
  void unwatch(fd_watch& w) noexcept override {
    if (w.fd() < memory_network::first_fd) return kernel_->unwatch(w);
    std::erase_if(watches_, [&](const watched& one) { return one.watch == &w; });
  }
  void set_alarm(time_point at) noexcept override { kernel_->set_alarm(at); }
  void poll() noexcept override {
    fire();
    kernel_->poll();
    alarm_fired_ |= kernel_->take_alarm();
  }
  void wait() noexcept override {
    if (!fire()) kernel_->wait();
    alarm_fired_ |= kernel_->take_alarm();
  }
  void wake() noexcept override { kernel_->wake(); }
  [[nodiscard]] detail::host_calls& host() noexcept override { return host_; }

 private:
  struct watched {
    fd_watch* watch;
    std::uint64_t seen;  // Changes of the socket; 0: none.
  };

  bool fire() noexcept {
    // A call may end any watch, and begin others.
    for (bool has_fired = false;; has_fired = true) {
      const auto due = std::ranges::find_if(watches_, [&](watched& one) {
        const auto [events, changes] = network_.readiness(one.watch->fd());
        const bool is_new = std::exchange(one.seen, changes) != changes;
        return is_new && (events & (short(one.watch->events()) | POLLERR)) != 0;
      });
      if (due == watches_.end()) return has_fired;
      fd_watch& w = *due->watch;
      if (w.kind() == watch_kind::once) watches_.erase(due);
      w.fired();
    }
  }

  memory_host& host_;
  memory_network& network_;
  std::unique_ptr<reactor> kernel_ = on_epoll();
  std::vector<watched> watches_;
};

inline executor_options on_memory(memory_host& host) {
  return {.reactor = std::make_unique<memory_reactor>(host)};
}

}  // namespace cordma::test
