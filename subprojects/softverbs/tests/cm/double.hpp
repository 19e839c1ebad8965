#pragma once

#include "cm/machine.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <vector>

// Machines of several processes in one test, joined by a double of the transport. Messages arrive
// when a machine runs; the clock stands still until the test moves it.

namespace softverbs::cm::test {

class double_transport;

class double_binding final : public binding {
 public:
  double_binding(double_transport& in, std::uint16_t space_of, const endpoint& name_of);
  ~double_binding() override;
  [[nodiscard]] const endpoint& at() const noexcept override { return name; }
  int listen() noexcept override {
    listens = true;
    return listen_error;
  }

  double_transport& owner;
  std::uint16_t space;
  endpoint name;
  bool listens = false;
  int listen_error = 0;
};

class double_conversation final : public conversation {
 public:
  explicit double_conversation(double_transport& in);
  ~double_conversation() override;
  void set_user(user& of) noexcept override { hears = &of; }
  void send(const message& what) noexcept override;
  [[nodiscard]] in6_addr peer_host() const noexcept override { return host; }

  double_transport& owner;
  user* hears = nullptr;
  double_conversation* peer = nullptr;
  std::deque<message> inbox;
  std::optional<int> ends;
  in6_addr host{};
};

/// The state that all processes of a test share.
struct network {
  std::vector<double_binding*> names;
  std::uint16_t next_port = 40000;
  int bind_error = 0;    ///< error of the next bind
  in6_addr peer_host{};  ///< the host that listeners take for their peers'
  bool silent = false;   ///< requests are lost
  node_service::time now{std::chrono::hours{1}};
};

class double_transport final : public transport {
 public:
  double_transport(network& of, transport::listener& to) : all{of}, listens{to} {}
  ~double_transport() = default;
  [[nodiscard]] int descriptor() const noexcept override { return -1; }
  void run(time) noexcept override;
  [[nodiscard]] time deadline() const noexcept override { return time::max(); }
  std::unique_ptr<binding> bind(std::uint16_t space, const endpoint& wanted, bool v6_only,
                                bool reuse, int& error) noexcept override;
  std::unique_ptr<conversation> start(const message& request,
                                      conversation::user&) noexcept override;

  struct arrival {
    double_binding* name;
    std::unique_ptr<double_conversation> from;
    message request;
  };
  network& all;
  transport::listener& listens;
  std::deque<arrival> arrivals;
  std::set<double_conversation*> live;
  bool worked = false;
};

/// A process: a machine, and the machine's host.
class process final : public machine_host {
 public:
  explicit process(network& of) : all{of}, rdma_cm{std::make_unique<machine>(*this)} { open(); }
  std::unique_ptr<transport> make_transport(transport::listener& to) noexcept override;
  time now() noexcept override { return all.now; }
  void on_earlier_deadline() noexcept override { ++earlier_deadlines; }
  /// The process is killed: its sockets close, and nothing else is said.
  void die();
  bool run();  ///< true if a message arrived

  network& all;
  int earlier_deadlines = 0;
  double_transport* net = nullptr;
  std::unique_ptr<machine> rdma_cm;

 private:
  void open();
};

}  // namespace softverbs::cm::test
