#include <cordma/base/error.hpp>

#include "failures.hpp"
#include "text_writer.hpp"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace cordma {
namespace {

struct meaning {
  const char* text;
  failure::remedy_kind remedy = failure::remedy_kind::give_up;
};

meaning meaning_of(errc e) noexcept {
  using enum failure::remedy_kind;
  switch (e) {
    case errc::timed_out: return {"deadline passed", retry_later};
    case errc::disconnected: return {"disconnected", reconnect};
    case errc::closed: return {"closed on this side"};
    case errc::out_of_range: return {"out of range"};
    case errc::stale_slice: return {"slice of memory that was freed"};
    case errc::wrong_protection_domain: return {"memory of another protection domain"};
    case errc::access_denied: return {"memory not registered, or not lent, for this access"};
    case errc::misaligned: return {"not aligned to 8 bytes"};
    case errc::wrong_length: return {"wrong length"};
    case errc::too_many_slices: return {"too many slices"};
    case errc::limit_exceeded: return {"limit exceeded"};
    case errc::illegal_transition: return {"illegal queue-pair transition"};
    case errc::no_device: return {"no such RDMA device", fall_back};
    case errc::no_gid: return {"no usable GID", fall_back};
    case errc::incompatible_peer: return {"incompatible peer", fall_back};
    case errc::bad_handshake: return {"not a cordma handshake"};
    case errc::cq_overrun: return {"completion queue overrun", reconnect};
    case errc::device_failed: return {"device failed", reconnect};
    case errc::receive_queue_full: return {"receive queue full", retry_later};
    case errc::not_signaled: return {"unsignaled, and nothing signaled was posted after it"};
    case errc::no_scheduler: return {"no scheduler here"};
    case errc::not_supported: return {"not supported", fall_back};
    case errc::refused: return {"refused", retry_later};
    case errc::wrong_connection: return {"memory that another connection's peer lent"};
    case errc::lease_expired: return {"too little is left of the lease", retry_later};
    case errc::lease_ended: return {"the lease has ended", retry_later};
    case errc::bad_frame: return {"the peer broke the protocol", reconnect};
    case errc::bad_message: return {"not what its type says"};
    case errc::unknown_method: return {"the server has no such method"};
    case errc::handler_failed: return {"the call's handler failed"};
    case errc::shutting_down: return {"the server takes no more calls", retry_later};
    case errc::unknown_host: return {"no such host"};
    case errc::not_authenticated: return {"not authenticated"};
    case errc::rank_failed: return {"a rank has failed", fall_back};
    case errc::ranks_disagree: return {"the ranks of the group disagree"};
  }
  return {"unknown cordma error"};
}

const char* text_of(errc e) noexcept { return meaning_of(e).text; }
const char* text_of(wc_errc e) noexcept { return ::ibv_wc_status_str(ibv_wc_status(e)); }

template <class Enum>
class code_category final : public std::error_category {
 public:
  explicit constexpr code_category(const char* name) noexcept : name_{name} {}
  const char* name() const noexcept override { return name_; }
  std::string message(int value) const override { return text_of(Enum(value)); }

 private:
  const char* name_;
};

failure::remedy_kind remedy_of_errno(int value) noexcept {
  using enum failure::remedy_kind;
  switch (value) {
    case EAGAIN:
    case EBUSY:
    case EINTR:
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE:
    case ECONNREFUSED:
    case ETIMEDOUT:
    case EADDRINUSE: return retry_later;
    case ECONNRESET:
    case EPIPE:
    case EIO: return reconnect;
    case EOPNOTSUPP:
    case ENOSYS:
    case ENODEV: return fall_back;
    default: return give_up;
  }
}

}  // namespace

const std::error_category& error::category() noexcept {
  static const code_category<errc> instance{"cordma"};
  return instance;
}

const std::error_category& error::completion_category() noexcept {
  static const code_category<wc_errc> instance{"ibv_wc_status"};
  return instance;
}

namespace {

// The category is made at load time: a fork during the first call would leave the child none.
[[maybe_unused]] const auto& category_at_load = error::category();
[[maybe_unused]] const auto& completion_category_at_load = error::completion_category();

}  // namespace

failure errno_failure(int errno_value, const char* call, failure::object_id object,
                      fixed_text<240> detail) noexcept {
  return {.code = {errno_value, std::system_category()},
          .call = call,
          .object = object,
          .detail = detail};
}

failure::remedy_kind failure::remedy() const noexcept {
  if (code.category() == error::category()) return meaning_of(errc(code.value())).remedy;
  // Every failed work completion leaves the queue pair in the error state.
  if (code.category() == error::completion_category()) return remedy_kind::reconnect;
  return remedy_of_errno(code.value());
}

namespace {

/// Gives `put` the parts of a failure's text, in their order.
template <class Put>
void compose(const failure& f, std::string_view message, Put put) {
  put(f.call);
  if (f.object.kind != nullptr) {
    char name[64];
    // Ranks are counted by people, other numbers are the device's.
    const bool is_rank = std::string_view{f.object.kind} == "rank";
    std::snprintf(name, sizeof name, is_rank ? "(%s %" PRIu64 ")" : "(%s 0x%" PRIx64 ")",
                  f.object.kind, f.object.number);
    put(name);
  }
  if (*f.call != '\0' || f.object.kind != nullptr) put(": ");
  put(message);
  if (f.vendor != 0) {
    char number[32];
    std::snprintf(number, sizeof number, " (vendor 0x%" PRIx32 ")", f.vendor);
    put(number);
  }
  if (f.detail.empty()) return;
  put(": ");
  put(f.detail.view());
}

}  // namespace

std::string failure::to_string() const {
  std::string text;
  compose(*this, code.message(), [&](std::string_view part) { text += part; });
  return text;
}

std::string_view detail::write_failure(const failure& f, std::span<char> into) noexcept {
  text_writer out{into};
  char errno_text[96];
  const char* message = "unknown error";
  if (f.code.category() == error::category())
    message = text_of(errc(f.code.value()));
  else if (f.code.category() == error::completion_category())
    message = text_of(wc_errc(f.code.value()));
  else if (f.code.category() == std::system_category())
    message = ::strerror_r(f.code.value(), errno_text, sizeof errno_text);
  compose(f, message, [&](std::string_view part) { out.put(part); });
  return out.text();
}

error::error(const struct failure& f)
    : std::system_error{f.code},
      failure_{f},
      text_{std::make_shared<const std::string>(f.to_string())} {}
error::error(const error&) noexcept = default;
error& error::operator=(const error&) noexcept = default;
error::~error() = default;
const char* error::what() const noexcept { return text_->c_str(); }

cancelled::~cancelled() = default;
const char* cancelled::what() const noexcept { return "cordma: stopped"; }

void detail::throw_cancelled() { throw cancelled{}; }
void detail::throw_error(const failure& f) { throw error{f}; }

}  // namespace cordma
