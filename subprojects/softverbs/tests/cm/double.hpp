#pragma once

#include "cm/machine.hpp"

#include <cstring>
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
  double_binding(double_transport& in, std::uint16_t its_space, const endpoint& its_name);
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

/// An event as the program reads it.
struct seen_event {
  rdma_ucm_event_resp raw{};
  [[nodiscard]] event_kind kind() const { return static_cast<event_kind>(raw.event); }
  [[nodiscard]] int status() const { return static_cast<int>(raw.status); }
};

/// An open rdma_cm file of a process.
class file {
 public:
  explicit file(process& of);
  ~file();

  /// Serves a command as the kernel does: 0, or an errno value.
  template <class Command>
  int write(std::uint32_t number, const Command& command, std::size_t out_bytes = 0,
            std::size_t in_bytes = sizeof(Command)) {
    return write_raw(number, &command, in_bytes, out_bytes);
  }
  int write_raw(std::uint32_t number, const void* command, std::size_t in_bytes,
                std::size_t out_bytes);
  [[nodiscard]] bool readable() const;
  std::optional<seen_event> read_event(std::size_t out_bytes = sizeof(rdma_ucm_event_resp));

  // Shorthands; each fails the test on an error.
  std::uint32_t create(std::uint16_t space, std::uint64_t user, int qp_type = 0);
  std::uint32_t destroy(std::uint32_t id);  ///< the events that were reported
  int bind(std::uint32_t id, const address&);
  int resolve(std::uint32_t id, const address& to, const address& from = {});
  int resolve_route(std::uint32_t id, std::uint32_t timeout_ms = 1000);
  int listen(std::uint32_t id, std::uint32_t backlog = 0);
  int connect(std::uint32_t id, const rdma_ucm_conn_param&);
  int accept(std::uint32_t id, std::uint64_t user, const rdma_ucm_conn_param&);
  int reject(std::uint32_t id, const char* data = "", std::uint8_t reason = 0);
  int disconnect(std::uint32_t id);
  rdma_ucm_query_addr_resp query(std::uint32_t id, std::uint32_t option = RDMA_USER_CM_QUERY_ADDR);
  int query_error(std::uint32_t id);
  int init_qp_attr(std::uint32_t id, ibv_qp_state state, ib_uverbs_qp_attr& to);

  process& of;
  unique_fd descriptor;
  channel events;
};

address v4(const char* text, std::uint16_t port = 0);
address v6(const char* text, std::uint16_t port = 0);
rdma_ucm_conn_param parameters(std::uint32_t qpn, const char* private_data = "");

}  // namespace softverbs::cm::test
