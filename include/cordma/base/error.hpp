#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/fixed_text.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <system_error>

namespace cordma {

/// Errors that cordma itself finds. Numbers are stable: they may be logged and compared.
enum class errc : int {
  timed_out = 1,                ///< A deadline passed before the operation ended.
  disconnected = 2,             ///< The connection was closed or lost, by either side.
  closed = 3,                   ///< The queue, channel or listener was closed on this side.
  out_of_range = 4,             ///< A slice, offset or length lies outside its memory.
  stale_slice = 5,              ///< A slice of memory that has been freed since.
  wrong_protection_domain = 6,  ///< Memory of one PD used on a queue pair of another.
  access_denied = 7,            ///< Memory that was not registered, or not lent, for this use.
  misaligned = 8,               ///< An atomic's remote address is not a multiple of 8.
  wrong_length = 9,             ///< An atomic of other than 8 bytes; a message above the limit.
  too_many_slices = 10,         ///< More slices than the queue pair's max_send_sge or max_recv_sge.
  limit_exceeded = 11,          ///< A value above what the device or an option allows.
  illegal_transition = 12,      ///< A queue-pair state change the state machine does not have.
  no_device = 13,               ///< No RDMA device, or none of the asked name.
  no_gid = 14,                  ///< No usable GID on the port.
  incompatible_peer = 15,       ///< The version, link layer or capabilities of the peer do not fit.
  bad_handshake = 16,           ///< The peer's first bytes are not a cordma handshake.
  cq_overrun = 17,              ///< The completion queue overflowed; its CQEs are lost.
  device_failed = 18,           ///< The device or port reported a fatal asynchronous event.
  receive_queue_full = 19,      ///< post_recv found no free receive request.
  not_signaled = 20,            ///< No request that was posted later will complete this one.
  no_scheduler = 21,            ///< Awaited where nothing can run a timer or resume the waiter.
  not_supported = 22,           ///< The device or kernel lacks a required feature.
  refused = 23,                 ///< The peer refused, with a reason; or the resource is in use.
  wrong_connection = 24,        ///< Memory that another connection's peer lent.
  lease_expired = 25,           ///< Too little is left of the lease, or nothing.
  lease_ended = 26,             ///< Borrowed memory that was returned, handed over or revoked.
  bad_frame = 27,               ///< The peer's agent, stream or RPC does not keep to the protocol.
  bad_message = 28,             ///< A message that is not what its type says.
  unknown_method = 29,          ///< The server does not have it.
  handler_failed = 30,          ///< The call's handler threw, or its reply could not be sent.
  shutting_down = 31,           ///< The server takes no more calls; this one has not run.
  unknown_host = 32,            ///< A host name that does not resolve.
  not_authenticated = 33,       ///< The peer's key or certificate is not what this side asks for.
  rank_failed = 34,             ///< A rank of the group died, left, or was stopped meanwhile.
  ranks_disagree = 35,          ///< The ranks of a group called different operations.
};

/// Status of a failed work completion: the values of `ibv_wc_status` (ibv_poll_cq(3)), named
/// without <infiniband/verbs.h>.
enum class wc_errc : int {
  local_length = 1,
  local_qp_operation = 2,
  local_eec_operation = 3,
  local_protection = 4,
  flushed = 5,
  mw_bind = 6,
  bad_response = 7,
  local_access = 8,
  remote_invalid_request = 9,
  remote_access = 10,
  remote_operation = 11,
  retry_exceeded = 12,
  rnr_retry_exceeded = 13,
  local_rdd_violation = 14,
  remote_invalid_rd_request = 15,
  remote_aborted = 16,
  invalid_eec = 17,
  invalid_eec_state = 18,
  fatal = 19,
  response_timeout = 20,
  general = 21,
  tag_matching = 22,
  tag_matching_incomplete = 23,
};

std::error_code make_error_code(errc e) noexcept;
std::error_code make_error_code(wc_errc e) noexcept;

}  // namespace cordma

template <>
struct std::is_error_code_enum<cordma::errc> : std::true_type {};
template <>
struct std::is_error_code_enum<cordma::wc_errc> : std::true_type {};

namespace cordma {

/// Describes a failure: the call, the object, and the way out. Trivially copyable; building one
/// never allocates. Prints as: `ibv_modify_qp(qp 0x1a2): Invalid argument: INIT to RTS skips RTR`.
struct CORDMA_EXPORT [[nodiscard]] failure {
  /// Names the object on which a call failed: {"qp", 0x1a2}. `kind` is a string literal; null: no
  /// object.
  struct object_id {
    const char* kind = nullptr;
    std::uint64_t number = 0;
  };
  /// Ways in which a program can react (docs/errors.md has the table).
  enum class remedy_kind { retry_later, reconnect, fall_back, give_up };

  std::error_code code;   ///< An errno (system_category), a `wc_errc` or an `errc`.
  const char* call = "";  ///< A string literal: "ibv_modify_qp".
  object_id object{};
  fixed_text<240> detail{};  ///< The wrong value and the way out; may be empty.
  std::uint32_t vendor = 0;  ///< `ibv_wc::vendor_err`; 0 when there is none.
  std::uint32_t index = 0;   ///< Index, in a batch, of the request that failed first.

  [[nodiscard]] remedy_kind remedy() const noexcept;
  [[nodiscard]] std::string to_string() const;
};

/// Makes the `failure` of a system call or verb: `code` is `errno_value` in the system category.
CORDMA_EXPORT failure errno_failure(int errno_value, const char* call,
                                    failure::object_id object = {},
                                    fixed_text<240> detail = {}) noexcept;

/// Thrown by setup, and by awaiting an operation that failed. `what()` is `failure().to_string()`.
class CORDMA_EXPORT error : public std::system_error {
 public:
  explicit error(const failure& f);
  // Only copyable: a moved-from original must keep its `what()`.
  error(const error&) noexcept;
  error& operator=(const error&) noexcept;
  ~error() override;
  [[nodiscard]] const struct failure& failure() const noexcept { return failure_; }
  [[nodiscard]] const char* what() const noexcept override;

  /// The category of an `errc`.
  [[nodiscard]] static const std::error_category& category() noexcept;
  /// The category of a `wc_errc`.
  [[nodiscard]] static const std::error_category& completion_category() noexcept;

 private:
  struct failure failure_;
  // Shared, because exceptions are copied, and a copy must not throw.
  std::shared_ptr<const std::string> text_;
};

inline std::error_code make_error_code(errc e) noexcept { return {int(e), error::category()}; }
inline std::error_code make_error_code(wc_errc e) noexcept {
  return {int(e), error::completion_category()};
}

/// Thrown by awaiting an operation that was stopped. It is not an `error`, and not to be logged,
/// counted or reported. A scope treats it as a normal end.
class CORDMA_EXPORT cancelled : public std::exception {
 public:
  cancelled() noexcept = default;
  cancelled(const cancelled&) noexcept = default;
  cancelled& operator=(const cancelled&) noexcept = default;
  ~cancelled() override;
  [[nodiscard]] const char* what() const noexcept override;
};

namespace detail {
/// The throws of `cancelled`, and of an `error` of `f`: out of the way of those who seldom throw.
[[noreturn]] CORDMA_EXPORT void throw_cancelled();
[[noreturn]] CORDMA_EXPORT void throw_error(const failure& f);
}  // namespace detail

}  // namespace cordma
