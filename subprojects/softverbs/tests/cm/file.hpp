#pragma once

#include "double.hpp"

#include <cstring>
#include <optional>

namespace softverbs::cm::test {

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
