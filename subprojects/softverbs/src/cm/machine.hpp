#pragma once

#include "cm/identifier.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace softverbs::cm {

/// A message without parameters.
[[nodiscard]] inline message plain_message(message_kind kind, std::uint16_t reason = 0) noexcept {
  message result;
  result.kind = kind;
  result.reason = reason;
  return result;
}

/// Refuses a request that has no identifier.
void refuse(conversation& from, const message& request, reject_reason, sidr_status) noexcept;

/// The machine's requests to the process around it.
class machine_host {
 public:
  using time = node_service::time;
  virtual std::unique_ptr<transport> make_transport(transport::listener&) noexcept = 0;
  virtual time now() noexcept = 0;
  /// Called when machine::deadline() has moved forward.
  virtual void on_earlier_deadline() noexcept = 0;

 protected:
  ~machine_host() = default;
};

/// The channel of a descriptor for MIGRATE_ID: 0, or ENOENT or EINVAL.
using channel_finder = std::function<int(int fd, channel*& found)>;

/// rdma_cm of one process: answers commands as the kernel's rdma_ucm does, and talks with other
/// processes by a transport. Errors are errno values. Every call is made under the mutex of the
/// room.
class machine final : private transport::listener {
 public:
  using time = node_service::time;

  /// No error: the command was not served, because it needs the node's engine. Repeat it when
  /// `channel::has_engine` is true.
  static constexpr int engine_needed = -1;

  explicit machine(machine_host& host) noexcept : host_{host} {}
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;
  ~machine();

  /// Serves one command, except GET_EVENT. \errors std::bad_alloc.
  int serve(channel&, std::uint32_t command, const command_body&, const channel_finder&);
  /// Checks GET_EVENT before the channel's eventfd is read.
  static int check_get_event(const command_body&) noexcept;
  /// Writes the oldest event of the channel. Returns false when there is none.
  bool get_event(channel&, const command_body&, int& error) noexcept;
  /// Destroys all identifiers of a channel.
  void close(channel&) noexcept;

  /// Makes the transport, without which no channel has an engine.
  int open_network() noexcept;
  /// Closes the transport: no channel with an engine is left.
  void close_network() noexcept { network_.reset(); }
  [[nodiscard]] transport* network() const noexcept { return network_.get(); }
  /// Does the work of the transport, and all work that is due.
  void run(time now) noexcept;
  [[nodiscard]] time deadline() const noexcept { return next_; }

 private:
  friend struct identifier;
  friend struct waiting_request;
  using handler = int (machine::*)(channel&, const command_body&);
  struct entry;
  static const entry commands[];

  // machine.cpp: the tables
  identifier& create(channel&);  ///< throws std::bad_alloc
  /// Tells the peer of the end as the state demands. Returns the events that were reported.
  std::uint32_t destroy(identifier&) noexcept;
  int find(const channel&, std::uint32_t number, identifier*& found) noexcept;
  int find_with_device(const channel&, std::uint32_t number, identifier*& found) noexcept;
  void set_deadline(identifier&, time when) noexcept;
  void wait_for_answer(identifier&) noexcept;
  bool ask(identifier&) noexcept;
  bool ask_later(identifier&) noexcept;

  // id_commands.cpp
  int create_id(channel&, const command_body&);
  int destroy_id(channel&, const command_body&);
  int migrate_id(channel&, const command_body&, const channel_finder&);
  int set_option(channel&, const command_body&);
  int set_id_option(identifier&, std::uint32_t name, const void* value, std::size_t bytes);
  int set_ib_path(identifier&, std::uint64_t records, std::size_t bytes);
  int notify(channel&, const command_body&);
  int write_event(channel&, const command_body&);

  // address_commands.cpp
  int bind_ip(channel&, const command_body&);
  int bind_address(channel&, const command_body&);
  int resolve_ip(channel&, const command_body&);
  int resolve_address(channel&, const command_body&);
  int resolve_route(channel&, const command_body&);
  int resolve_ib_service(channel&, const command_body&);
  int bind(identifier&, const address&);
  int bind_name(identifier&, const address&);
  int bind_service(identifier&, const address&);
  int resolve(identifier&, const address& from, const address& to);

  // query_commands.cpp
  int query_route(channel&, const command_body&);
  int query(channel&, const command_body&);

  // connection_commands.cpp
  int connect(channel&, const command_body&);
  int listen(channel&, const command_body&);
  int accept(channel&, const command_body&);
  int reject(channel&, const command_body&);
  int disconnect(channel&, const command_body&);
  int init_qp_attr(channel&, const command_body&);
  int send_request(identifier&, const rdma_ucm_conn_param&);
  int send_reply(identifier&, const rdma_ucm_conn_param&);
  int send_ready(identifier&);
  int send_reject(identifier&, reject_reason, const void* data, std::size_t bytes);
  int send_sidr_reply(identifier&, sidr_status, const void* data, std::size_t bytes);

  // multicast_commands.cpp
  int join_ip(channel&, const command_body&);
  int join(channel&, const command_body&);
  int leave(channel&, const command_body&);
  int join_group(channel&, const rdma_ucm_join_mcast&, const address& group, const command_body&);
  void leave_group(membership&) noexcept;

  // connection.cpp: what the peer and the clock do
  void on_request(binding& name, std::unique_ptr<conversation> from,
                  const message& request) noexcept override;
  void admit(identifier& listening, std::unique_ptr<conversation> from,
             const message& request) noexcept;
  void admit_waiting(identifier& listening) noexcept;
  void on_message(identifier&, const message&) noexcept;
  void on_end(identifier&, int error) noexcept;
  void on_deadline(identifier&) noexcept;
  void on_reply(identifier&, const message&) noexcept;
  void on_reject(identifier&, std::uint16_t reason, const message&) noexcept;
  void on_disconnect(identifier&, std::int32_t status) noexcept;
  void on_sidr_reply(identifier&, const message&) noexcept;
  void enter_timewait(identifier&) noexcept;
  void end(identifier&) noexcept;
  void raise(identifier&, event_kind, std::int32_t status = 0) noexcept;
  void raise(identifier&, event) noexcept;

  machine_host& host_;
  std::unique_ptr<transport> network_;
  std::vector<std::unique_ptr<identifier>> identifiers_;  ///< indexed by number
  std::uint32_t lowest_free_ = 0;
  std::vector<membership*> groups_;  ///< indexed by number
  time next_ = time::max();          ///< not after the earliest deadline
};

}  // namespace softverbs::cm
