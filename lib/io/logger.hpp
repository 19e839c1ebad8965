#pragma once

#include <cordma/base/event_log.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/io/socket_address.hpp>

#include <cstdint>
#include <string_view>

namespace cordma::detail {

/// The contents of a record, as the rooms have them. A record leaves out what is unset.
struct log_facts {
  const socket_address* peer = nullptr;
  std::string_view peer_name{};  ///< In place of `peer`.
  std::string_view identity{};
  const socket_address* local = nullptr;
  std::string_view local_name{};  ///< In place of `local`.
  std::string_view bootstrap{};
  std::uint32_t qpn = 0;
  std::uint64_t bytes = 0;
  std::string_view note{};
  const failure* why = nullptr;
};

/// Makes a runtime's records, and passes them to the program's hook. \thread the executor's.
class logger {
 public:
  logger(const cordma::executor& clock, event_log options) noexcept;
  logger(const logger&) = delete;

  [[nodiscard]] bool wants(event_log::kind event) const noexcept {
    return (wanted_ >> unsigned(event) & 1) != 0;
  }
  void write(event_log::kind event, const log_facts& facts) const noexcept;

 private:
  const cordma::executor& clock_;
  const callback<void(const event_log::record& record)> hook_;
  std::uint32_t wanted_ = 0;  ///< A bit for each event that the hook is told.
};

/// Writes a record if there is a logger, and it wants that event.
inline void log_to(const logger* to, event_log::kind event, const log_facts& facts) noexcept {
  if (to != nullptr && to->wants(event)) to->write(event, facts);
}

}  // namespace cordma::detail
